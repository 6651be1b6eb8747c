// Package relay is a wire between a pooler and a PostgreSQL server that can be made long, and that knows cancel requests
// from sessions: it delays all bytes, delays cancel requests alone, loses them, leaves them unanswered, and counts those
// that reached the server.
//
// The server's close of a cancel connection says that it has sent its signal; it is passed on like any other byte, as
// late as the link is long.
package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fate is what becomes of a cancel request.
type Fate uint8

// The fates. Whatever is passed on is passed on after the treatment's Wait.
const (
	Pass  Fate = iota // it is passed on, and so is the server's close
	Hang              // it is read and kept, and its connection stays open: the server's cancel port hangs
	Mute              // it is passed on, the server's close is not
	Reset             // its connection is reset as soon as it has come; it is passed on all the same
)

// Treatment is what is done to one cancel request.
type Treatment struct {
	Fate Fate
	Wait time.Duration // how long it is held before it goes on, on top of the link's delay
}

// Link is how connections are treated that are opened from now on. The zero value passes everything on at once.
type Link struct {
	Delay  time.Duration    // of every byte and every close, each way
	Cancel func() Treatment // asked for each cancel request, from any goroutine; nil: all pass
}

// Relay listens on a port of its own and connects to the server for each connection. All methods may be called from any
// goroutine.
type Relay struct {
	Sessions atomic.Int64 // connections other than cancel requests that were passed on
	Seen     atomic.Int64 // cancel requests that came in
	Sent     atomic.Int64 // cancel requests that were written to the server whole
	Hanging  atomic.Int64 // connections of cancel requests that hang now
	Length   atomic.Int64 // of the last cancel request, in bytes

	addr, server string
	link         atomic.Pointer[Link]
	gone         chan struct{}
	running      sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ln    net.Listener
	conns map[net.Conn]struct{}
	ended bool
}

// Listen starts a relay to the server at addr (host:port). Close ends it.
func Listen(server string) (*Relay, error) {
	r := &Relay{server: server, gone: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	r.link.Store(&Link{})
	if err := r.open("127.0.0.1:0"); err != nil {
		return nil, err
	}
	r.addr = r.ln.Addr().String()
	return r, nil
}

// Addr is host:port of the relay.
func (r *Relay) Addr() string { return r.addr }

// Set changes the treatment of connections that are opened from now on.
func (r *Relay) Set(l Link) { r.link.Store(&l) }

// Refuse makes the relay refuse new connections; those it has go on. Accept takes it back.
func (r *Relay) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ln.Close()
}

// Accept listens again on the same address.
func (r *Relay) Accept() error { return r.open(r.addr) }

func (r *Relay) open(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ln = ln
	r.running.Add(1)
	go r.accept(ln) // ends when ln is closed
	return nil
}

// Close ends the relay and all its connections, and waits for its goroutines.
func (r *Relay) Close() {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
	close(r.gone)
	r.ln.Close()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *Relay) accept(ln net.Listener) {
	defer r.running.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if !r.own(c) {
			return
		}
		r.running.Add(1)
		go func() { // ends with the connection
			defer r.running.Done()
			defer r.drop(c)
			r.serve(c)
		}()
	}
}

// own notes a connection, so that Close finds it.
func (r *Relay) own(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) drop(c net.Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	c.Close()
}

// cancelCode is in a CancelRequest where a startup packet has the protocol version.
const cancelCode = 80877102

// maxCancel is more than the longest CancelRequest (a key has at most 256 bytes).
const maxCancel = 12 + 256

func (r *Relay) serve(c net.Conn) {
	link := *r.link.Load()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if binary.BigEndian.Uint32(head[4:]) != cancelCode {
		r.Sessions.Add(1)
		r.pass(c, head[:], link.Delay)
		return
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size < uint32(len(head)) || size > maxCancel {
		return
	}
	packet := append(make([]byte, 0, size), head[:]...)[:size]
	if _, err := io.ReadFull(c, packet[len(head):]); err != nil {
		return
	}
	r.Seen.Add(1)
	r.Length.Store(int64(size))
	t := Treatment{}
	if link.Cancel != nil {
		t = link.Cancel()
	}
	r.cancel(c, packet, link.Delay, t)
}

// cancel treats one cancel request. A connection that the other side gives up is passed on nevertheless: what has been
// sent arrives.
func (r *Relay) cancel(c net.Conn, packet []byte, delay time.Duration, t Treatment) {
	switch t.Fate {
	case Hang:
		r.Hanging.Add(1)
		defer r.Hanging.Add(-1)
		io.Copy(io.Discard, c) //nolint:errcheck // until the other side gives up
		return
	case Reset:
		c.(*net.TCPConn).SetLinger(0) //nolint:errcheck // a socket that is gone needs no reset
		c.Close()
	}
	if !r.wait(time.Now().Add(t.Wait + delay)) {
		return
	}
	s, err := net.Dial("tcp", r.server)
	if err != nil || !r.own(s) {
		return
	}
	defer r.drop(s)
	if _, err := s.Write(packet); err != nil {
		return
	}
	r.Sent.Add(1)
	if _, err := io.Copy(io.Discard, s); err != nil && !errors.Is(err, io.EOF) {
		return
	}
	switch t.Fate {
	case Mute:
		io.Copy(io.Discard, c) //nolint:errcheck // until the other side gives up
	default:
		r.wait(time.Now().Add(delay))
	}
}

// wait reports false if the relay ends before the time has come.
func (r *Relay) wait(until time.Time) bool {
	d := time.Until(until)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.gone:
		return false
	}
}
