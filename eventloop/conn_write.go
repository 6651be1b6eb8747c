package eventloop

func (c *conn) rawSend(b []byte) (int, error) {
	c.loop.count.Writes++
	if c.stream != nil {
		return c.stream.send(b)
	}
	return fdSend(c.fd, b)
}

// Write sends or queues b.
func (c *conn) Write(b []byte) bool {
	if c.has(closed | failed | flushing) {
		return true
	}
	return c.rawWrite(b)
}

func (c *conn) rawWrite(b []byte) bool {
	l := c.loop
	n := 0
	if c.out == nil {
		if len(b) == 0 {
			return true
		}
		var err error
		if n, err = c.rawSend(b); err != nil {
			c.fail(err)
			return true
		}
		l.count.BytesWritten += uint64(n)
		if n == len(b) {
			return true
		}
		l.count.ShortWrites++
	}
	rest := b[n:]
	c.state &^= drained // it would be said of a queue that is not empty
	if c.out == nil {
		c.out, c.sent = l.pool.get(len(rest)), 0
	} else if int(c.sent) > 0 && len(c.out)+len(rest) > cap(c.out) {
		c.out, c.sent = c.out[:copy(c.out, c.out[c.sent:])], 0
	}
	c.out = l.pool.append(c.out, rest)
	l.count.QueuedBytes += int64(len(rest))
	return false
}

// Queued is what flush has still to send.
func (c *conn) Queued() int { return len(c.out) - int(c.sent) }

// flush sends what is queued. OnDrained, or the close that waited for it, is left to pump.
func (c *conn) flush() {
	l := c.loop
	n, err := c.rawSend(c.out[c.sent:])
	if err != nil {
		c.fail(err)
		return
	}
	c.sent += int32(n)
	l.count.BytesWritten += uint64(n)
	l.count.QueuedBytes -= int64(n)
	if int(c.sent) == len(c.out) {
		l.dropOut(c)
		c.state |= drained
	}
}

// dropOut gives the write queue's buffer back.
func (l *loop) dropOut(c *conn) {
	if c.out != nil {
		l.count.QueuedBytes -= int64(c.Queued())
		l.pool.put(c.out)
		c.out, c.sent = nil, 0
	}
}

// fail notes a failed write. The handler is told later in the turn, after what the peer sent before.
func (c *conn) fail(err error) {
	c.err = err
	c.state |= failed | hungUp | readable
	c.loop.dropOut(c)
	c.loop.wantTurn(c)
}
