package eventloop

import (
	"errors"
	"io"
)

// errAgain says that a read or write would block.
var errAgain = errors.New("would block")

// wantTurn puts c on the ready list: it has something to do that no event will announce.
func (l *loop) wantTurn(c *conn) {
	if c.state&(inReady|closed) == 0 {
		c.state |= inReady
		l.ready = append(l.ready, c)
	}
}

// runReady gives each connection that is on the list now one turn.
func (l *loop) runReady() {
	for n := len(l.ready) - l.readyAt; n > 0 && l.readyAt < len(l.ready); n-- {
		c := l.ready[l.readyAt]
		l.ready[l.readyAt] = nil
		l.readyAt++
		if l.readyAt == len(l.ready) || l.readyAt > 64 && l.readyAt > len(l.ready)/2 {
			kept := copy(l.ready, l.ready[l.readyAt:])
			clear(l.ready[kept:])
			l.ready, l.readyAt = l.ready[:kept], 0
		}
		c.state &^= inReady
		l.count.Turns++
		l.pump(c)
	}
}

// event notes what the poller said and works it off.
func (l *loop) event(c *conn, ev events) {
	l.count.Turns++
	c.note(ev)
	l.pump(c)
}

func (c *conn) note(ev events) {
	if ev&(evReadable|evHangup) != 0 {
		c.state |= readable
	}
	if ev&evHangup != 0 {
		c.state |= hungUp
	}
	if ev&evWritable != 0 && c.out != nil {
		c.flush()
	}
}

// pump works off what is due on a connection: one callback after the other, each followed by the run queue, until
// nothing is due, the handler paused, or the connection had its share of the turn.
func (l *loop) pump(c *conn) {
	l.active = c
	left := turnBytes
	for left > 0 && l.step(c, &left) {
		if l.sim != nil {
			left = 0
		}
	}
	l.active = nil
	if left <= 0 && c.due() {
		l.wantTurn(c)
	}
}

// due reports whether pump would find something to do.
func (c *conn) due() bool {
	switch {
	case c.has(closed | reported):
		return false
	case c.has(drained | ended | hungUp):
		return true
	}
	return c.has(again|readable) && !c.has(paused)
}

// step does the next thing that is due on c and reports whether there may be more.
func (l *loop) step(c *conn, left *int) bool {
	switch {
	case c.has(closed | reported):
		return false
	case c.has(flushing):
		return l.stepFlushing(c)
	case c.mb != nil && c.mb.suspended:
		l.mask(c)
		return false
	case c.has(drained):
		c.state &^= drained
		l.owner.c = c
		c.h.OnDrained(c)
		l.owner.c = nil
		l.drain()
		return true
	case c.has(ended), c.has(hungUp) && c.has(paused):
		c.state |= reported
		err := c.failure(io.EOF)
		l.owner.c = c
		c.h.OnClosed(c, err)
		l.owner.c = nil
		l.drain()
		return false
	case c.has(paused):
		return false
	case c.has(again):
		c.state &^= again
		if c.stash != nil {
			own := c.stash
			c.stash = nil
			*left -= len(own)
			l.deliver(c, own, own)
		}
		return true
	case c.has(readable):
		return l.read(c, left)
	}
	return false
}

// stepFlushing keeps a closing connection's input from filling up, and its errors from being missed.
func (l *loop) stepFlushing(c *conn) bool {
	switch {
	case c.out == nil || c.has(failed):
		c.closeQuietly()
	case c.has(readable) && c.discard():
		c.state &^= readable | hungUp // no more to come; what is queued may still be wanted
	case c.has(readable):
		l.wantTurn(c)
	}
	return false
}

// read reads once and delivers. A read that does not fill the buffer has emptied the socket, unless the peer has
// closed: then no event will announce the end and it must be read.
func (l *loop) read(c *conn, left *int) bool {
	n, err := c.rawRecv(l.buf)
	if err != nil || n == 0 {
		switch {
		case err == errAgain && (!c.has(failed) || c.stream != nil): // a stream's reader announces its end
			c.state &^= readable | hungUp
			return false
		case err != nil && err != errAgain && c.err == nil:
			c.err = err
		}
		c.state |= ended
		return true
	}
	*left -= n
	l.count.BytesRead += uint64(n)
	if n < len(l.buf) && !c.has(hungUp) {
		c.state &^= readable
	}
	b := l.buf[:n]
	var own []byte
	if c.stash != nil {
		own = l.pool.append(c.stash, b)
		b, c.stash = own, nil
	}
	l.deliver(c, b, own)
	return true
}

func (l *loop) deliver(c *conn, b, own []byte) {
	l.cur, l.own = b, own
	l.owner.c = c
	c.h.OnData(c, b)
	l.owner.c = nil
	l.drain()
	l.settle(c)
}

// failure is the error that ended the connection, or otherwise.
func (c *conn) failure(otherwise error) error {
	if c.err == nil {
		if c.stream != nil {
			c.err = c.stream.failure()
		} else {
			c.err = fdFailure(c.fd)
		}
	}
	if c.err == nil {
		return otherwise
	}
	return c.err
}

// mask sets a connection aside until its actor's supervisor has decided.
func (l *loop) mask(c *conn) {
	if !c.has(inMasked) {
		c.state |= inMasked
		l.masked = append(l.masked, c)
	}
}

// unmask takes up what waited for the actor of mb.
func (l *loop) unmask(mb *Mailbox) {
	kept := l.masked[:0]
	for _, c := range l.masked {
		if c.mb != mb {
			kept = append(kept, c)
			continue
		}
		c.state &^= inMasked
		l.wantTurn(c)
	}
	clear(l.masked[len(kept):])
	l.masked = kept
	if len(l.timers.withheld) > 0 {
		l.timers.release(mb, 0)
	}
}

// rawRecv reads from the socket; 0 and nil is the end.
func (c *conn) rawRecv(b []byte) (int, error) {
	c.loop.count.Reads++
	if c.stream != nil {
		return c.stream.recv(b)
	}
	return fdRecv(c.fd, b)
}
