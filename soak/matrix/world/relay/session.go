package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fencepost/internal/poll"
)

// session is one connection of a client, and the relay's own to the server.
type session struct {
	relay  *Relay
	client *net.TCPConn
	over   chan struct{} // closed by abort

	mu      sync.Mutex // guards what follows
	server  *net.TCPConn
	aborted bool
}

// run carries the session to its end. A client whose session is reset because the server refused it is refused from then on.
func (s *session) run() {
	defer s.client.Close()
	if !s.pass() { // a connection that was made while the network went down
		return
	}
	c, err := net.Dial("tcp", s.relay.server)
	if errors.Is(err, syscall.ECONNREFUSED) {
		s.relay.Down()
	}
	if err != nil {
		s.abort()
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	s.mu.Lock()
	s.server = server
	aborted := s.aborted
	s.mu.Unlock()
	if aborted {
		return
	}
	back := make(chan struct{})
	go func() { // ends with the connections
		defer close(back)
		(&flow{session: s, from: server, to: s.client, way: down}).run()
	}()
	(&flow{session: s, from: s.client, to: server, way: up}).run()
	<-back
}

// abort resets both connections.
func (s *session) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return
	}
	s.aborted = true
	close(s.over)
	for _, c := range []*net.TCPConn{s.client, s.server} {
		if c != nil {
			c.SetLinger(0) //nolint:errcheck // a socket that is gone needs no reset
			c.Close()
		}
	}
}

// pass waits until the network is up. It reports false if the session ended before.
func (s *session) pass() bool {
	for {
		g := s.relay.gate.Load()
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

// piece is what one read brought, and when it is due at the other end.
type piece struct {
	b   []byte
	err error // how the stream ended after b: io.EOF in order, anything else by a failure
	due time.Time
}

// Bounds on what is under way in one direction.
const (
	readSize  = 32 << 10
	maxPieces = 256
)

// flow is one direction of a session.
type flow struct {
	*session
	from, to *net.TCPConn
	way      int

	line    chan piece   // nil until something was late
	waiting atomic.Int64 // pieces in line, the one that is being written included
	writer  sync.WaitGroup
}

// run carries bytes until the end of the stream. What is not late and meets nothing that is goes on at once.
func (f *flow) run() {
	buf := make([]byte, readSize)
	for {
		n, err := f.from.Read(buf)
		p := piece{b: buf[:n], err: err}
		late := *f.relay.late[f.way].Load()
		if late == (Late{}) && f.waiting.Load() == 0 && f.relay.gate.Load() == nil {
			err = f.put(p)
		} else {
			f.queue(p, late)
		}
		if err != nil {
			break
		}
	}
	if f.line != nil {
		close(f.line)
	}
	f.writer.Wait()
}

// queue gives a piece to the writer, which it starts if there is none yet.
func (f *flow) queue(p piece, late Late) {
	if f.line == nil {
		f.line = make(chan piece, maxPieces)
		f.writer.Go(f.write) // ends with line
	}
	p.b = append([]byte(nil), p.b...)
	p.due = time.Now().Add(late.Min)
	if d := late.Max - late.Min; d > 0 {
		p.due = p.due.Add(rand.N(d))
	}
	f.waiting.Add(1)
	f.line <- p // write empties it, whatever happens
}

// write brings each piece when it is due, the ones before it have been brought, and the network is up.
func (f *flow) write() {
	for p := range f.line {
		if poll.At(p.due, f.over) && f.pass() {
			f.put(p) //nolint:errcheck // the session was aborted, which the reader sees
		}
		f.waiting.Add(-1)
	}
}

// put writes a piece. A stream that ended in order is ended on the other side too; one that failed takes the session with
// it, which then ends on the other side as it did on this one.
func (f *flow) put(p piece) error {
	if len(p.b) > 0 {
		if _, err := f.to.Write(p.b); err != nil {
			f.abort()
			return err
		}
	}
	switch {
	case errors.Is(p.err, io.EOF):
		f.to.CloseWrite() //nolint:errcheck // a socket that is gone needs no end
	case p.err != nil:
		f.abort()
	}
	return p.err
}
