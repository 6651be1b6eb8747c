package network

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"fencepost/internal/poll"
)

// relays are connections that are passed on, until close. Whoever embeds it says where to.
type relays struct {
	gone    chan struct{} // closed by close
	running sync.WaitGroup

	mu     sync.Mutex // guards what follows
	ended  bool
	ends   map[io.Closer]struct{} // listeners and connections
	delays map[string]time.Duration
}

func (r *relays) init() {
	r.gone, r.ends, r.delays = make(chan struct{}), map[io.Closer]struct{}{}, map[string]time.Duration{}
}

// Slow implements [Network].
func (r *relays) Slow(server string, delay time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays[server] = delay
	return nil
}

// delayOf is how late what goes to or comes from a server is to arrive, from now on.
func (r *relays) delayOf(server string) func() time.Duration {
	return func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.delays[server]
	}
}

// keep notes what close is to close; false, and it is closed, once that has been.
func (r *relays) keep(c io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		c.Close()
		return false
	}
	r.ends[c] = struct{}{}
	return true
}

func (r *relays) drop(c io.Closer) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ends, c)
}

// close ends all connections, and waits for their goroutines.
func (r *relays) close() {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.gone)
	}
	for c := range r.ends {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

// accept has each connection of a listener carried, until that is closed.
func (r *relays) accept(ln net.Listener, carry func(net.Conn)) {
	if !r.keep(ln) {
		return
	}
	r.running.Go(func() {
		defer r.drop(ln)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if !r.keep(c) {
				return
			}
			r.running.Go(func() {
				defer r.drop(c)
				carry(c)
			})
		}
	})
}

// direction says how bytes go one way.
type direction struct {
	delay  func() time.Duration // asked for each piece
	passes func() bool          // waits until it may go on; false: never
}

func always() bool { return true }

// dialLimit bounds a connect to what is behind a relay.
const dialLimit = 5 * time.Second

// join connects a client to a target, and returns when both have ended.
func (r *relays) join(client net.Conn, target string, there, back direction) {
	// The kernel has answered the client's connect already: what that would have taken comes on top of its first bytes.
	if !poll.At(time.Now().Add(there.delay()+back.delay()), r.gone) {
		return
	}
	server, err := net.DialTimeout("tcp4", target, dialLimit)
	if err != nil {
		if t, ok := client.(*net.TCPConn); ok {
			t.SetLinger(0) //nolint:errcheck // else it ends in another way
		}
		return
	}
	if !r.keep(server) {
		return
	}
	defer r.drop(server)
	done := make(chan struct{})
	go func() { // ends with the connection
		defer close(done)
		r.copy(server, client, there)
	}()
	r.copy(client, server, back)
	<-done
}

// chunk is what one read brought, and when it is due at the other end.
type chunk struct {
	bytes []byte
	err   error // of the read, after the bytes
	due   time.Time
}

// Bounds on what is under way in one direction: enough that a long way is not a narrow one as well.
const (
	chunkSize = 16 << 10
	maxChunks = 64
)

// copy passes bytes on until one end is over, and then that.
func (r *relays) copy(dst, src net.Conn, d direction) {
	line := make(chan chunk, maxChunks)
	go read(src, line, d.delay) // ends with src, which is closed below unless it has ended
	for c := range line {
		if !poll.At(c.due, r.gone) || !d.passes() {
			break
		}
		if len(c.bytes) > 0 {
			if _, err := dst.Write(c.bytes); err != nil {
				break
			}
		}
		if c.err == nil {
			continue
		}
		if t, ok := dst.(*net.TCPConn); ok && errors.Is(c.err, io.EOF) && t.CloseWrite() == nil {
			return
		}
		break
	}
	// A reset, or the end of whoever does not read any more: both ends are over.
	dst.Close()
	src.Close()
	for range line { // so that the reader sees it
	}
}

// read fills the line, up to the end of the stream, and closes it.
func read(src net.Conn, line chan<- chunk, delay func() time.Duration) {
	defer close(line)
	buf := make([]byte, chunkSize)
	for {
		size, err := src.Read(buf)
		line <- chunk{slices.Clone(buf[:size]), err, time.Now().Add(delay())}
		if err != nil {
			return
		}
	}
}
