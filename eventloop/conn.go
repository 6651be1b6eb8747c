package eventloop

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

type flags uint16

const (
	readable flags = 1 << iota // the socket may have bytes
	hungUp                     // the peer closed or the socket failed; there may be bytes before the end
	ended                      // the end was read, or the socket failed: OnClosed is due
	reported                   // OnClosed was called
	failed                     // a write failed: err is set, nothing is written any more
	paused                     // by the handler
	again                      // stashed bytes are to be delivered once more
	drained                    // OnDrained is due
	flushing                   // CloseFlushed: no callbacks any more
	closed
	inReady  // on the loop's ready list
	inMasked // on the loop's list of connections of suspended actors
)

// conn is one connection of either kind. There is one per session, so its size counts; buffers belong to it only while
// it holds bytes.
//
// A layer such as a tls.Conn over the non-blocking socket fits between loop.read and rawRecv, and between Write and
// rawWrite: its inner net.Conn reads with rawRecv, reporting would-block as a temporary net.Error, and writes with
// rawWrite, which neither blocks nor fails. loop.read must then ask the layer whether decrypted bytes are left, because
// a short read of the socket no longer means that nothing is. A plain connection would pay a nil check for it.
type conn struct {
	loop   *loop
	h      Handler
	mb     *Mailbox
	stream *stream // nil when fd is read and written directly
	fd     int32
	gen    uint32 // tells apart connections that had the same fd; also the stable name in a seeded run
	pos    int32  // in loop.conns
	state  flags
	unix   bool
	stash  []byte // bytes kept by the handler; in loop.cur during its turn, else in a buffer of its own, from its start
	out    []byte // bytes to write, out[sent:]; nil when there are none
	sent   int32
	limit  *Timer // of CloseFlushed
	err    error
	remote netip.AddrPort
}

var _ Conn = (*conn)(nil)

var (
	errStopped   = errors.New("eventloop: the loop has stopped")
	errDetached  = errors.New("eventloop: the socket was adopted or closed before")
	errForeign   = errors.New("eventloop: the socket is not of this kind of loop")
	errWrongLoop = errors.New("eventloop: the mailbox belongs to another loop")
)

// Adopt registers a socket.
func (l *loop) Adopt(s Socket, h Handler, mb *Mailbox) (Conn, error) {
	k, ok := s.(*socket)
	if !ok {
		s.Close()
		return nil, errForeign
	}
	if mb != nil && mb.loop != l {
		k.Close()
		return nil, errWrongLoop
	}
	if k.taken {
		return nil, errDetached
	}
	l.gen++
	c := &conn{
		loop: l, h: h, mb: mb, stream: k.stream, fd: k.fd, gen: l.gen, pos: int32(len(l.conns)), unix: k.unix, remote: k.remote,
	}
	if err := l.poll.add(c); err != nil {
		k.Close()
		return nil, fmt.Errorf("watch socket: %w", err)
	}
	k.taken = true
	l.conns = append(l.conns, c)
	l.count.Conns++
	return c, nil
}

func (c *conn) has(f flags) bool { return c.state&f != 0 }

// Loop is the connection's loop.
func (c *conn) Loop() Loop { return c.loop }

// RemoteAddr is the peer's address.
func (c *conn) RemoteAddr() netip.AddrPort { return c.remote }

// LocalAddr is our address, asked of the socket each time.
func (c *conn) LocalAddr() netip.AddrPort { return localAddr(c.fd, c.stream) }

// IsUnix reports whether it is a unix-domain socket.
func (c *conn) IsUnix() bool { return c.unix }

// Stash keeps the tail of what OnData was given. Outside of OnData it also accepts a tail of Stashed.
func (c *conn) Stash(b []byte) {
	l := c.loop
	switch {
	case len(b) == 0:
		c.Unstash()
	case c.has(closed):
	case l.active == c && tailOf(b, l.cur):
		c.stash = b
	case l.active != c && tailOf(b, c.stash):
		c.stash = c.stash[:copy(c.stash, b)]
	default: // not what the contract asks for: a copy is right whatever it is
		kept := append(l.pool.get(len(b)), b...)
		c.Unstash()
		c.stash = kept
	}
}

// tailOf reports whether b, which is not empty, ends where whole ends.
func tailOf(b, whole []byte) bool {
	return len(b) <= len(whole) && &b[len(b)-1] == &whole[len(whole)-1]
}

// Stashed returns the bytes kept.
func (c *conn) Stashed() []byte { return c.stash }

// Unstash forgets them.
func (c *conn) Unstash() {
	l := c.loop
	if c.stash != nil && !(l.active == c && tailOf(c.stash, l.cur)) {
		l.pool.put(c.stash)
	}
	c.stash = nil
}

// settle ends a delivery: what is still stashed of the bytes in the shared buffer gets a buffer of the connection's own.
func (l *loop) settle(c *conn) {
	cur, own := l.cur, l.own
	l.cur, l.own = nil, nil
	switch {
	case cur == nil:
	case c.stash == nil || !tailOf(c.stash, cur):
		l.pool.put(own)
	case own != nil:
		c.stash = own[:copy(own[:cap(own)], c.stash)]
	default:
		c.stash = append(l.pool.get(len(c.stash)), c.stash...)
	}
}

// Pause stops OnData.
func (c *conn) Pause() { c.state |= paused }

// Paused reports whether reading is paused.
func (c *conn) Paused() bool { return c.has(paused) }

// Resume continues reading. Without a Pause before it does nothing.
func (c *conn) Resume() {
	if !c.has(paused) {
		return
	}
	c.state &^= paused
	if c.stash != nil {
		c.state |= again
	}
	if c.has(readable | hungUp | again) {
		c.loop.wantTurn(c)
	}
}

// Quiet asks the kernel for the socket's state.
func (c *conn) Quiet() bool {
	if c.has(closed | hungUp | ended | failed) {
		return false
	}
	if c.stream != nil {
		return c.stream.quiet()
	}
	return fdQuiet(c.fd)
}

// Close ends the connection.
func (c *conn) Close() {
	if c.has(closed) {
		return
	}
	c.leave()
	if c.stream != nil {
		c.stream.close()
	} else {
		closeFD(c.fd)
	}
}

// leave takes the connection off its loop, without closing the socket.
func (c *conn) leave() {
	l := c.loop
	c.state |= closed
	c.Unstash()
	l.dropOut(c)
	if c.limit != nil {
		l.StopTimer(c.limit)
	}
	if c.has(inMasked) {
		for i, m := range l.masked {
			if m == c {
				l.masked = append(l.masked[:i], l.masked[i+1:]...)
				break
			}
		}
	}
	last := l.conns[len(l.conns)-1]
	l.conns[c.pos], last.pos = last, c.pos
	l.conns[len(l.conns)-1] = nil
	l.conns = l.conns[:len(l.conns)-1]
	l.count.Conns--
	l.poll.forget(c)
}

// CloseFlushed closes when everything is written.
func (c *conn) CloseFlushed(limit time.Duration) {
	if c.has(closed | flushing) {
		return
	}
	if c.out == nil || c.has(failed) || limit <= 0 {
		c.closeQuietly()
		return
	}
	c.state = c.state&^(again|drained) | flushing
	c.Unstash()
	c.limit = &Timer{Fire: c.Close}
	c.loop.SetTimer(c.limit, limit)
	if c.has(readable | hungUp) {
		c.loop.wantTurn(c)
	}
}

// closeQuietly reads what has come in before it closes: a close with unread input makes the kernel send a reset, which
// may take the last message out of the peer's hands.
func (c *conn) closeQuietly() {
	if !c.has(failed | ended) {
		c.discard()
	}
	c.Close()
}

// discard reads and forgets input, up to a turn's worth; it reports the end of the stream.
func (c *conn) discard() (end bool) {
	l := c.loop
	if l.waste == nil {
		l.waste = make([]byte, 16<<10)
	}
	for left := turnBytes; left > 0; {
		n, err := c.rawRecv(l.waste)
		if err == errAgain {
			c.state &^= readable
			return false
		}
		if n == 0 || err != nil {
			return true
		}
		left -= n
	}
	return false
}

// Detach takes the connection off its loop.
func (c *conn) Detach() (Socket, error) {
	switch {
	case c.has(closed | flushing):
		return nil, errDetached
	case c.has(failed | reported):
		return nil, fmt.Errorf("detach a connection that failed: %w", c.failure(io.EOF))
	case c.out != nil:
		return nil, errors.New("eventloop: detach with bytes queued")
	case c.stash != nil:
		return nil, errors.New("eventloop: detach with bytes stashed")
	}
	c.loop.poll.remove(c)
	c.leave()
	return &socket{fd: c.fd, stream: c.stream, unix: c.unix, remote: c.remote}, nil
}
