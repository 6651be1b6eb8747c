package network

import (
	"io"
	"net"
	"sync"
	"time"

	"fencepost/internal/poll"
	"fencepost/internal/relay"
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

// dialLimit bounds a connect to what is behind a relay.
const dialLimit = 5 * time.Second

// join connects a client to a target, and returns when both have ended. There and back wait until bytes may go on.
func (r *relays) join(client net.Conn, target string, delay func() time.Duration, there, back func() bool) {
	// The kernel has answered the client's connect already: what that would have taken comes on top of its first bytes.
	if !poll.At(time.Now().Add(2*delay()), r.gone) {
		return
	}
	server, err := net.DialTimeout("tcp4", target, dialLimit)
	if err != nil {
		client.(*net.TCPConn).SetLinger(0) //nolint:errcheck // else it ends in another way
		return
	}
	if !r.keep(server) {
		return
	}
	defer r.drop(server)
	late := func() relay.Late { d := delay(); return relay.Late{Min: d, Max: d} }
	relay.Join(client.(*net.TCPConn), server.(*net.TCPConn), relay.Way{Late: late, Pass: there}, relay.Way{Late: late, Pass: back})
}
