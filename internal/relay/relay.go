// Package relay is the network between clients and one server: a port that stays the same over the server's restarts, and
// bytes that can be made late, held, or cut off by a reset. One that was made by Listen also knows cancel requests from
// sessions, counts them, and delays, loses or does not answer them.
//
// A relay listens when its server does; that of Listen listens at first in any case. It finds out by itself that the server is back, and is told that it is gone (Down),
// or learns it from a connect that was refused; from then on it refuses, as the server's own port does.
//
// A relay that is cut (Cut) is a network that is down. Nothing passes, neither bytes nor the end of a connection; a new
// connect gets no answer, because the queue of the listening socket is full and the kernel drops what comes. After Heal
// everything that was under way arrives, in order, as TCP sees to by sending again.
package relay

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Late is how much later than sent bytes arrive: each piece by Min to Max, none before the one sent before it. The zero
// value is not at all.
type Late struct{ Min, Max time.Duration }

// Relay is one port in front of one server. All methods may be called from any goroutine.
type Relay struct {
	Cancels // those of a relay that was made by Listen

	addr    string
	peeks   bool                    // Cancels are looked for
	server  atomic.Pointer[string]  // "": nobody, connections are closed at once
	late    [2]atomic.Pointer[Late] // by direction
	gate    atomic.Pointer[gate]    // nil: bytes pass
	gone    chan struct{}           // closed by Close
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows; not held while anything is waited for but the end of accept
	sessions map[*session]struct{}
	ln       *net.TCPListener
	accepted chan struct{} // closed when the goroutine that accepts from ln has ended
	seeking  bool          // a goroutine waits for the server to listen
	down     bool          // the server was last seen dead
	fill     *filling      // of the listening socket's queue, while cut
	ended    bool
}

// gate is shut as long as open is not closed.
type gate struct{ open chan struct{} }

// The directions.
const (
	up   = iota // from the client to the server
	down        // from the server to the client
)

// At makes a relay at addr (host:port) for the server at server (host:port), which need not be there yet. Close ends it.
func At(addr, server string) *Relay {
	r := newRelay(addr, server)
	r.down = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seek()
	return r
}

// Listen makes a relay at a port of its own, which knows cancel requests from sessions. Close ends it.
func Listen(server string) (*Relay, error) {
	r := newRelay("127.0.0.1:0", server)
	r.peeks = true
	if err := r.listen(); err != nil {
		return nil, err
	}
	r.addr = r.ln.Addr().String()
	r.accept(nil)
	return r, nil
}

func newRelay(addr, server string) *Relay {
	r := &Relay{addr: addr, gone: make(chan struct{}), sessions: map[*session]struct{}{}}
	r.server.Store(&server)
	r.SetLate(Late{}, Late{})
	r.Treat(func() Treatment { return Treatment{} })
	return r
}

// Lead puts another server behind the relay, "" for none. What is open to the former one goes on.
func (r *Relay) Lead(server string) { r.server.Store(&server) }

// Addr is host:port of the relay.
func (r *Relay) Addr() string { return r.addr }

// SetLate makes bytes late from now on, also those of connections that are open: up from the client to the server, down
// the replies. What was late already stays as late as it was.
func (r *Relay) SetLate(toServer, toClient Late) {
	r.late[up].Store(&toServer)
	r.late[down].Store(&toClient)
}

// Down says that the server is dead: new connects are refused until it listens again. What is open ends by itself.
func (r *Relay) Down() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fell()
}

// fell is Down, for the holder of mu.
func (r *Relay) fell() {
	if r.ended || r.down {
		return
	}
	r.down = true
	if r.fill == nil { // a network that is down does not tell that a server behind it is dead
		r.shut()
		r.seek()
	}
}

// Listens reports whether a connect would be taken.
func (r *Relay) Listens() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended && r.ln != nil && r.fill == nil
}

// Reset resets every connection that is open, at both ends.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.sessions {
		s.abort()
	}
}

// Open is how many connections are open now.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}

// Cut takes the network down until Heal. From its return on nothing passes that was sent later.
func (r *Relay) Cut() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.fill != nil {
		return nil
	}
	r.gate.Store(&gate{make(chan struct{})})
	if r.ln == nil {
		if err := r.listen(); err != nil {
			return err
		}
	} else {
		r.ln.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a listener takes one
	}
	if r.accepted != nil {
		<-r.accepted
	}
	var err error
	r.fill, err = fill(r.ln)
	return err
}

// Heal takes the network up again.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.fill == nil {
		return
	}
	was := r.fill
	r.fill = nil
	if r.down {
		r.shut()
		r.seek()
	} else {
		r.ln.SetDeadline(time.Time{}) //nolint:errcheck // a listener takes one
		was.widen(r.ln)
		r.accept(was)
	}
	was.end()
	close(r.gate.Swap(nil).open)
}

// Close ends the relay and its connections and waits for its goroutines.
func (r *Relay) Close() {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.gone)
		r.shut()
		if r.fill != nil {
			r.fill.end()
		}
		for s := range r.sessions {
			s.abort()
		}
	}
	r.mu.Unlock()
	r.running.Wait()
}

// shut closes the listener. The caller holds mu.
func (r *Relay) shut() {
	if r.ln != nil {
		r.ln.Close()
		r.ln, r.accepted = nil, nil
	}
}

// listen opens the listener. The caller holds mu.
func (r *Relay) listen() error {
	ln, err := net.Listen("tcp", r.addr)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	r.ln = ln.(*net.TCPListener)
	return nil
}

// accept starts the goroutine that takes connections from ln, which ends with ln or when a deadline is set. The caller
// holds mu.
func (r *Relay) accept(after *filling) {
	ln, done := r.ln, make(chan struct{})
	r.accepted = done
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		defer close(done)
		for {
			c, err := ln.AcceptTCP()
			switch {
			case err == nil && after.has(c):
				c.Close()
			case err == nil:
				r.running.Add(1)
				go func() { // ends with the connection
					defer r.running.Done()
					r.serve(c)
				}()
			case errors.Is(err, syscall.ECONNABORTED): // the client was faster
			default:
				return
			}
		}
	}()
}

// seekPause is how often a dead server is looked for.
const seekPause = 3 * time.Millisecond

// seek waits, on a goroutine of its own that ends with the relay, for the server to listen, and then does so too. The
// caller holds mu.
func (r *Relay) seek() {
	if r.seeking {
		return
	}
	r.seeking = true
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		t := time.NewTicker(seekPause)
		defer t.Stop()
		for !r.found() {
			select {
			case <-r.gone:
				return
			case <-t.C:
			}
		}
	}()
}

// found listens if the server does. It reports whether there is nothing to be waited for any more.
func (r *Relay) found() bool {
	c, err := net.DialTimeout("tcp", *r.server.Load(), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return true
	}
	if r.fill == nil {
		if err := r.listen(); err != nil {
			return false // the port's last user is about to give it up
		}
		r.accept(nil)
	}
	r.down, r.seeking = false, false
	return true
}

// serve carries a connection to its end. A client whose session is reset because the server refused it is refused from then
// on.
func (r *Relay) serve(c *net.TCPConn) {
	defer c.Close()
	s := &session{client: c, over: make(chan struct{})}
	if !r.keep(s) {
		return
	}
	defer r.drop(s)
	if !r.passes(s) || *r.server.Load() == "" { // a connection that was made while the network went down
		return
	}
	var head []byte
	if r.peeks {
		var cancel bool
		if head, cancel = r.head(c); cancel || head == nil {
			r.cancel(s, head)
			return
		}
	}
	server, err := net.Dial("tcp", *r.server.Load())
	if errors.Is(err, syscall.ECONNREFUSED) {
		r.Down()
	}
	if err != nil {
		s.abort()
		return
	}
	way := func(n int) Way {
		return Way{func() Late { return *r.late[n].Load() }, func() bool { return r.passes(s) }}
	}
	s.run(server.(*net.TCPConn), head, way(up), way(down))
}

// keep notes a session, so that Reset and Close find it; false once the relay has ended.
func (r *Relay) keep(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.sessions[s] = struct{}{}
	}
	return !r.ended
}

func (r *Relay) drop(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// passes waits until the network is up. It reports false if the session ended before.
func (r *Relay) passes(s *session) bool {
	for {
		g := r.gate.Load()
		if g == nil {
			return true
		}
		select {
		case <-g.open:
		case <-s.over:
			return false
		}
	}
}
