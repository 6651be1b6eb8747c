// Package memconn has in-memory network connections with buffers, for tests and simulations. All waiting is on
// condition variables and timers, so that it is durable in a testing/synctest bubble.
package memconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is one end of a buffered, bidirectional in-memory connection. It implements net.Conn; like a TCP socket its
// writes return as soon as there is room in the buffer, and bytes written before a Close can still be read.
type Conn struct {
	in, out     *half
	local, peer addr
}

var _ net.Conn = (*Conn)(nil)

// half is one direction.
type half struct {
	mu       sync.Mutex
	changed  sync.Cond
	buf      []byte
	capacity int
	eof      bool  // the writer will write no more
	gone     bool  // the reader will read no more
	broken   error // set by Break
	reading  deadline
	writing  deadline
}

// deadline is when a Read or Write in progress has to give up.
type deadline struct {
	timer *time.Timer
	past  bool
	set   uint64 // how often it was set, so that a timer of an earlier setting has no effect
}

type addr string

func (a addr) Network() string { return "mem" }
func (a addr) String() string  { return string(a) }

// Pipe makes a connected pair. Each direction buffers up to capacity bytes; at least 1.
func Pipe(capacity int) (*Conn, *Conn) { return pipe(capacity, "mem-a", "mem-b") }

func pipe(capacity int, a, b addr) (*Conn, *Conn) {
	x, y := newHalf(capacity), newHalf(capacity)
	return &Conn{in: x, out: y, local: a, peer: b}, &Conn{in: y, out: x, local: b, peer: a}
}

func newHalf(capacity int) *half {
	h := &half{capacity: max(capacity, 1)}
	h.changed.L = &h.mu
	return h
}

// Read waits for bytes. It returns io.EOF once the peer has closed and everything was read.
func (c *Conn) Read(b []byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.broken != nil:
			return 0, h.broken
		case h.gone:
			return 0, net.ErrClosed
		case len(b) == 0:
			return 0, nil
		case len(h.buf) > 0:
			n := copy(b, h.buf)
			h.buf = h.buf[:copy(h.buf, h.buf[n:])]
			h.changed.Broadcast()
			return n, nil
		case h.eof:
			return 0, io.EOF
		case h.reading.past:
			return 0, os.ErrDeadlineExceeded
		}
		h.changed.Wait()
	}
}

// Write waits for room. It fails with io.ErrClosedPipe once the peer has closed.
func (c *Conn) Write(b []byte) (written int, err error) {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.broken != nil:
			return written, h.broken
		case h.eof:
			return written, net.ErrClosed
		case h.gone:
			return written, io.ErrClosedPipe
		case len(b) == 0:
			return written, nil
		case h.writing.past:
			return written, os.ErrDeadlineExceeded
		}
		if n := min(len(b), h.capacity-len(h.buf)); n > 0 {
			h.buf = append(h.buf, b[:n]...)
			b, written = b[n:], written+n
			h.changed.Broadcast()
			continue
		}
		h.changed.Wait()
	}
}

// Close ends both directions: the peer reads what is buffered and then io.EOF, and its writes fail.
func (c *Conn) Close() error {
	c.CloseWrite()
	c.in.update(func(h *half) {
		h.gone, h.buf = true, nil
		h.reading.stop()
	})
	return nil
}

// CloseWrite ends the direction to the peer.
func (c *Conn) CloseWrite() error {
	c.out.update(func(h *half) {
		h.eof = true
		h.writing.stop()
	})
	return nil
}

// Break makes both ends fail with err from now on; what is buffered is lost. It stands for a reset or a lost network.
func (c *Conn) Break(err error) {
	if err == nil {
		err = errors.New("memconn: broken")
	}
	for _, h := range []*half{c.in, c.out} {
		h.update(func(h *half) { h.broken, h.buf = err, nil })
	}
}

// Buffered is the number of bytes that the peer has written and Read has not returned yet.
func (c *Conn) Buffered() int {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return len(c.in.buf)
}

func (h *half) update(f func(*half)) {
	h.mu.Lock()
	f(h)
	h.changed.Broadcast()
	h.mu.Unlock()
}

// LocalAddr is a name, not a network address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's LocalAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.peer }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline makes Read fail with os.ErrDeadlineExceeded at t; the zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.update(func(h *half) { h.reading.arm(h, t) })
	return nil
}

// SetWriteDeadline does so for Write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.update(func(h *half) { h.writing.arm(h, t) })
	return nil
}

// arm is called with h.mu held.
func (d *deadline) arm(h *half, t time.Time) {
	d.stop()
	d.set++
	d.past = false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.past = true
		return
	}
	set := d.set
	d.timer = time.AfterFunc(wait, func() {
		h.update(func(*half) { d.past = d.past || d.set == set })
	})
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
