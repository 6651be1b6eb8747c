package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/internal/poll"
)

// Way says how bytes go in one direction.
type Way struct {
	Late func() Late // asked for each piece
	Pass func() bool // waits until bytes may go on, which is most often at once; false: they never may
}

// Join carries a connection between a client and a server until both directions have ended, and closes both.
func Join(client, server *net.TCPConn, toServer, toClient Way) {
	defer client.Close()
	(&session{client: client, over: make(chan struct{})}).run(server, nil, toServer, toClient)
}

// session is one connection of a client, and the relay's own to the server.
type session struct {
	client *net.TCPConn
	over   chan struct{} // closed by abort

	mu      sync.Mutex // guards what follows
	server  *net.TCPConn
	aborted bool
}

// run carries the session to its end; head was read of the client already.
func (s *session) run(server *net.TCPConn, head []byte, toServer, toClient Way) {
	defer server.Close()
	if !s.reaches(server) {
		return
	}
	back := make(chan struct{})
	go func() { // ends with the connections
		defer close(back)
		(&flow{session: s, from: server, to: s.client, Way: toClient}).run(nil)
	}()
	(&flow{session: s, from: s.client, to: server, Way: toServer}).run(head)
	<-back
}

// reaches notes the server's connection, so that abort finds it; false if that came first.
func (s *session) reaches(server *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
	return !s.aborted
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

// piece is what one read brought, and when it is due at the other end.
type piece struct {
	b   []byte
	err error // how the stream ended after b: io.EOF in order, anything else by a failure
	due time.Time
}

// Bounds on what is under way in one direction: enough that a long way is not a narrow one as well.
const (
	readSize  = 32 << 10
	maxPieces = 256
)

// flow is one direction of a session.
type flow struct {
	*session
	Way
	from, to *net.TCPConn

	line    chan piece   // nil until something was late
	waiting atomic.Int64 // pieces in line, the one that is being written included
	writer  sync.WaitGroup
}

// run carries bytes until the end of the stream, first those of head. What is not late and meets nothing that is goes on at
// once.
func (f *flow) run(head []byte) {
	buf := make([]byte, readSize)
	p := piece{b: head}
	for {
		if len(p.b) > 0 || p.err != nil {
			if late := f.Late(); late != (Late{}) || f.waiting.Load() > 0 {
				f.queue(p, late)
			} else if f.Pass() {
				p.err = f.put(p)
			}
		}
		if p.err != nil {
			break
		}
		n, err := f.from.Read(buf)
		p = piece{b: buf[:n], err: err}
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
	p.b = slices.Clone(p.b)
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
		if poll.At(p.due, f.over) && f.Pass() {
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
