package fakepg

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"fencepost/internal/memconn"
	"fencepost/internal/poll"
)

// Faults says what goes wrong, and how often. The zero value is a server that answers at once and never fails.
// Probabilities are per 1000 client messages except where noted.
type Faults struct {
	Slow       int           // an answer takes up to SlowBy
	SlowBy     time.Duration // default 50 ms
	Close      int           // the connection ends without a word, with part of what was to be sent
	Terminate  int           // FATAL 57P01 instead of an answer, then the end
	Behind     int           // the answer, FATAL 57P01 right behind it, then the end
	Notice     int           // a notice nobody asked for
	IdleDeath  int           // per 1000 connections: it ends while idle, after a random time
	LoginDelay time.Duration // a login takes up to this
	Refuse     int           // per 1000 logins: refused with 53300
	Unreached  int           // per 1000 logins: no connection is made
	Window     int           // bytes a connection buffers in either direction, default 8192
}

// Event is something a server has seen, for tests that look over its shoulder.
type Event struct {
	PID     uint32
	Type    byte   // of the client's message; 0: the connection has ended
	Text    string // SQL, of Query and Parse
	AtRest  bool   // nothing was open before the message
	Trouble string // how it ended; "garbage" and more if the client sent what is no message
}

// Login is a connection that is logged in and at rest.
type Login struct {
	Conn   net.Conn
	Params map[string]string
	PID    uint32
	Secret []byte
}

// Server is a fake PostgreSQL. Safe for any goroutine.
type Server struct {
	// Watch, if not nil, is told of every message, on the goroutine of its connection. Set before the first Login.
	Watch func(Event)
	// Committed, if not nil, is told what a transaction has inserted (INSERT INTO w) when it is committed, before the client
	// is; on the goroutine of its connection. Set before the first Login.
	Committed func(pid uint32, texts []string)

	seed uint64

	mu       sync.Mutex // guards what follows
	faults   Faults
	down     *Error
	barred   map[string]*Error // users that are not let in
	identity Identity
	logins   int
	conns    map[uint32]*conn
	closed   bool
	done     sync.WaitGroup
}

// NewServer makes a server whose faults follow from seed and the number of the connection alone.
func NewServer(seed uint64, f Faults) *Server {
	return &Server{seed: seed, faults: f, identity: Ordinary(), conns: map[uint32]*conn{}}
}

// SetFaults changes the faults; connections that are open keep theirs.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	s.faults = f
	s.mu.Unlock()
}

// Refuse makes every login fail with err until Refuse(nil).
func (s *Server) Refuse(err *Error) {
	s.mu.Lock()
	s.down = err
	s.mu.Unlock()
}

// Bar makes every login of one user over Serve fail with err until Bar(user, nil).
func (s *Server) Bar(user string, err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barred == nil {
		s.barred = map[string]*Error{}
	}
	s.barred[user] = err
}

// Logins is how many logins were tried.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// Open is how many connections are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Unreached is the error of a login that found nobody.
var Unreached = &net.OpError{Op: "dial", Net: "mem", Err: context.DeadlineExceeded}

// Login connects and logs in. It blocks for the login's delay or until ctx ends. Refusals are *Error.
func (s *Server) Login(ctx context.Context) (*Login, error) {
	s.mu.Lock()
	s.logins++
	n := s.logins
	f := s.faults
	s.mu.Unlock()
	r := rand.New(rand.NewPCG(s.seed, uint64(n)))
	if err := poll.For(ctx, upTo(r, f.LoginDelay)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || one(r, f.Unreached):
		return nil, Unreached
	case s.down != nil:
		return nil, s.down
	case one(r, f.Refuse):
		return nil, &Error{"FATAL", "53300", "sorry, too many clients already"}
	}
	window := f.Window
	if window == 0 {
		window = 8192
	}
	theirs, ours := memconn.Pipe(window)
	c := newConn(s, uint32(1000+n), ours, r, f)
	s.conns[c.pid] = c
	s.done.Add(1)
	go c.run()
	return &Login{Conn: theirs, Params: Reported(), PID: c.pid, Secret: bytes.Clone(c.secret)}, nil
}

// Cancel is what a CancelRequest does: the signal is sent after delay, and hits whatever runs on the connection then.
func (s *Server) Cancel(pid uint32, secret []byte, delay time.Duration) {
	time.Sleep(delay)
	s.mu.Lock()
	c := s.conns[pid]
	s.mu.Unlock()
	if c != nil && bytes.Equal(secret, c.secret) {
		c.interrupt()
	}
}

// Kill ends a connection as pg_terminate_backend does, as soon as it waits for its client; one that sleeps is woken. It
// reports whether there was one.
func (s *Server) Kill(pid uint32) bool {
	s.mu.Lock()
	c := s.conns[pid]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.kill()
	return true
}

// Crash ends all connections without a word, whatever they are doing: nothing that a client has sent is worked on any
// more.
func (s *Server) Crash() {
	for _, pid := range s.PIDs() {
		s.mu.Lock()
		c := s.conns[pid]
		s.mu.Unlock()
		if c != nil {
			c.crash()
		}
	}
}

// KillIdle ends all connections that have been at rest for at least d.
func (s *Server) KillIdle(d time.Duration) {
	for _, pid := range s.PIDs() {
		s.mu.Lock()
		c := s.conns[pid]
		s.mu.Unlock()
		if c != nil && c.restedFor(d) {
			c.kill()
		}
	}
}

// PIDs are those of all open connections, in the order of login.
func (s *Server) PIDs() (all []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; n <= s.logins; n++ {
		if pid := uint32(1000 + n); s.conns[pid] != nil {
			all = append(all, pid)
		}
	}
	return all
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.pid)
	s.mu.Unlock()
}

func secretOf(pid uint32) []byte {
	return binary.BigEndian.AppendUint32(nil, pid*2654435761)
}

// one is true n times in 1000.
func one(r *rand.Rand, n int) bool { return n > 0 && r.IntN(1000) < n }

func upTo(r *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(r.Int64N(int64(d)))
}
