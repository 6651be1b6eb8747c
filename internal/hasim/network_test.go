package hasim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"fencepost/internal/memconn"
)

// link is the way to a server, with the process behind it: what is stalled is delivered later, as TCP does it.
type link struct {
	mu      sync.Mutex    // guards what follows
	changed chan struct{} // closed when something below changes
	frozen  bool          // the process stands still: it takes connections (its kernel does), and answers nothing
	dead    bool          // nobody listens
	reset   bool          // connections that die are reset, not closed
	in, out bool          // what goes to the server, and what comes from it, is stalled
	slowIn  time.Duration // delays, at most
	slowOut time.Duration
	pending []*serverEnd // have ended without the peer being able to see it
	open    map[*serverEnd]bool
}

func newLink() *link {
	return &link{changed: make(chan struct{}), open: map[*serverEnd]bool{}}
}

// set changes the link. What has ended unseen is seen as soon as it can be.
func (l *link) set(f func(*link)) {
	l.mu.Lock()
	f(l)
	close(l.changed)
	l.changed = make(chan struct{})
	var seen []*serverEnd
	if !l.out {
		seen, l.pending = l.pending, nil
	}
	l.mu.Unlock()
	for _, c := range seen {
		c.end()
	}
}

// breakAll resets every connection, as a network does that has forgotten them.
func (l *link) breakAll() { l.breakThose(func(*serverEnd) bool { return true }) }

func (l *link) breakThose(which func(*serverEnd) bool) {
	l.mu.Lock()
	var all []*serverEnd
	for c := range l.open {
		if which(c) {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Break(errReset)
	}
}

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errNoRoute = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
)

// wait blocks while blocked says so; false if done is closed before. Who was blocked goes on at an instant of its own: all
// wake at once, beside the step that has changed the link, and would run in an order of the runtime's.
func (l *link) wait(done <-chan struct{}, r *rand.Rand, blocked func(*link) bool) bool {
	for {
		l.mu.Lock()
		stop, changed := blocked(l), l.changed
		l.mu.Unlock()
		if !stop {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
		if !travel(done, r, latency) {
			return false
		}
	}
}

// travel takes up to a time; false if done is closed before.
func travel(done <-chan struct{}, r *rand.Rand, most time.Duration) bool {
	t := time.NewTimer(1 + time.Duration(r.Int64N(int64(most))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// serverEnd is the server's end of a connection.
type serverEnd struct {
	*memconn.Conn
	link *link
	addr string // that was dialled
	once sync.Once
	gone chan struct{} // closed with the end

	reads, writes *rand.Rand // each of the goroutine that does so
}

// latency is what every packet takes: odd, so that no two events come at the same instant.
const latency = 200 * time.Microsecond

// pass waits until the link lets something through, in one direction.
func (c *serverEnd) pass(in bool) bool {
	l := c.link
	l.mu.Lock()
	most, r := l.slowOut, c.writes
	if in {
		most, r = l.slowIn, c.reads
	}
	l.mu.Unlock()
	return travel(c.gone, r, latency+most) && l.wait(c.gone, r, func(l *link) bool { return l.frozen || in && l.in || !in && l.out })
}

// Read implements net.Conn.
func (c *serverEnd) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.pass(true) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *serverEnd) Write(b []byte) (int, error) {
	if !c.pass(false) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close ends the connection; the peer sees it as soon as it can see anything.
func (c *serverEnd) Close() error {
	c.once.Do(func() {
		close(c.gone)
		l := c.link
		l.mu.Lock()
		delete(l.open, c)
		hidden := l.out
		if hidden {
			l.pending = append(l.pending, c)
		}
		l.mu.Unlock()
		if !hidden {
			c.end()
			return
		}
		past := time.Unix(1, 0)
		c.Conn.SetDeadline(past) //nolint:errcheck // a memconn takes every deadline
	})
	return nil
}

func (c *serverEnd) end() {
	l := c.link
	l.mu.Lock()
	reset := l.reset
	l.mu.Unlock()
	if reset {
		c.Conn.Break(errReset)
	}
	c.Conn.Close()
}

// clientEnd is Fencepost's end: it knows the address it was dialled at.
type clientEnd struct {
	*memconn.Conn
	remote net.Addr
}

// RemoteAddr implements net.Conn.
func (c *clientEnd) RemoteAddr() net.Addr { return c.remote }

// dial connects to whatever server is at the address now.
func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	c, _, err := w.connectTo(ctx, address)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (w *world) connectTo(ctx context.Context, address string) (*clientEnd, *server, error) {
	w.mu.Lock()
	w.dials++
	r := rand.New(rand.NewPCG(w.seed, 1<<32+uint64(w.dials)))
	w.mu.Unlock()
	if !travel(ctx.Done(), r, latency) {
		return nil, nil, dialError(ctx.Err())
	}
	s := w.at(address)
	if s == nil {
		return nil, nil, errNoRoute
	}
	if !s.link.wait(ctx.Done(), r, func(l *link) bool { return l.in || l.out }) {
		return nil, nil, dialError(ctx.Err())
	}
	s.link.mu.Lock()
	dead := s.link.dead
	s.link.mu.Unlock()
	if dead || s != w.at(address) {
		return nil, nil, errRefused
	}
	remote, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := memconn.Pipe(1 << 14)
	end := &serverEnd{Conn: theirs, link: s.link, addr: address, gone: make(chan struct{}), reads: r, writes: rand.New(rand.NewPCG(r.Uint64(), 1))}
	s.link.mu.Lock()
	s.link.open[end] = true
	s.link.mu.Unlock()
	s.pg.Serve(end)
	return &clientEnd{ours, remote}, s, nil
}

// at is the server that an address leads to.
func (w *world) at(address string) *server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.routes[address]
}

func dialError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &net.OpError{Op: "dial", Net: "tcp", Err: err}
}
