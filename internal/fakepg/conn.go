package fakepg

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// conn is one connection: a goroutine that reads and one that works and writes. Both end with the connection.
type conn struct {
	server *Server
	pid    uint32
	secret []byte
	nc     net.Conn
	rand   *rand.Rand
	faults Faults
	engine *Engine
	in     chan pgproto3.FrontendMessage // closed at the end of input
	quit   chan struct{}                 // closed when the worker ends

	out     []byte
	trouble string
	said    bool  // its last word, a FATAL error
	garbage error // set before in is closed

	mu      sync.Mutex // guards what follows
	busy    bool       // works on a message: a cancel is not in vain
	resting time.Time  // since when nothing was open and no message came; zero while something is open
	signals chan struct{}
	cancel  bool
	killed  bool
	crashed bool
}

func newConn(s *Server, pid uint32, nc net.Conn, r *rand.Rand, f Faults) *conn {
	c := &conn{server: s, pid: pid, secret: secretOf(pid), nc: nc, rand: r, faults: f, resting: time.Now(),
		in: make(chan pgproto3.FrontendMessage), quit: make(chan struct{}), signals: make(chan struct{}, 1)}
	c.engine = NewEngine(c.send)
	c.engine.Flush, c.engine.Sleep = c.flush, c.sleep
	c.engine.Identity = func() (Identity, uint32) { return s.Identity(), pid }
	if s.Committed != nil {
		c.engine.Committed = func(texts []string) { s.Committed(pid, texts) }
	}
	return c
}

func (c *conn) send(m pgproto3.BackendMessage) {
	c.out, _ = m.Encode(c.out)
	if len(c.out) > 8192 {
		c.flush()
	}
}

func (c *conn) flush() {
	if len(c.out) > 0 && c.trouble == "" {
		if _, err := c.nc.Write(c.out); err != nil {
			c.trouble = "write: " + err.Error()
		}
	}
	c.out = c.out[:0]
}

func (c *conn) interrupt() { c.signal(func() { c.cancel = c.busy }) }
func (c *conn) kill()      { c.signal(func() { c.killed = true }) }

func (c *conn) crash() {
	c.signal(func() { c.crashed = true })
	c.nc.Close()
}

// isCrashed reports whether nothing may happen any more.
func (c *conn) isCrashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crashed
}

func (c *conn) signal(set func()) {
	c.mu.Lock()
	set()
	c.mu.Unlock()
	select {
	case c.signals <- struct{}{}:
	default:
	}
}

func (c *conn) flags() (canceled, killed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	canceled, c.cancel = c.cancel, false
	return canceled, c.killed
}

func (c *conn) setBusy(busy bool) {
	c.mu.Lock()
	c.busy, c.resting = busy, time.Time{}
	c.cancel = c.cancel && busy
	if !busy && c.engine.AtRest() {
		c.resting = time.Now()
	}
	c.mu.Unlock()
}

// restedFor reports whether the connection has been at rest for d.
func (c *conn) restedFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.resting.IsZero() && time.Since(c.resting) >= d
}

// sleep waits, unless a cancel or a kill ends it.
func (c *conn) sleep(d time.Duration) *Error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		switch canceled, killed := c.flags(); {
		case killed:
			return errTerminated()
		case canceled:
			return fail("57014", "canceling statement due to user request")
		}
		select {
		case <-t.C:
			return nil
		case <-c.signals:
		}
	}
}

func (c *conn) run() {
	defer c.server.done.Done()
	c.serve(pgproto3.NewBackend(c.nc, nil))
	c.leave()
}

// serve works on what b receives until the session has ended.
func (c *conn) serve(b *pgproto3.Backend) {
	go c.read(b)
	c.work()
	close(c.quit)
}

// lastMoments is how long a server takes at most from its last word to the end of its process.
const lastMoments = 5 * time.Millisecond

func (c *conn) leave() {
	if c.said || c.engine.ended {
		time.Sleep(upTo(c.rand, lastMoments))
	}
	c.nc.Close()
	c.server.remove(c)
	c.watch(Event{PID: c.pid, Trouble: c.trouble})
}

func (c *conn) read(b *pgproto3.Backend) {
	defer close(c.in)
	for {
		m, err := b.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
				c.garbage = err
			}
			return
		}
		select {
		case c.in <- keep(m):
		case <-c.quit:
			return
		}
	}
}

// keep copies a message out of the reader's memory.
func keep(m pgproto3.FrontendMessage) pgproto3.FrontendMessage {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err) // it has just been decoded
	}
	return Decode(b)
}

func (c *conn) work() {
	var death <-chan time.Time
	if one(c.rand, c.faults.IdleDeath) {
		t := time.NewTimer(upTo(c.rand, 10*time.Second))
		defer t.Stop()
		death = t.C
	}
	for c.trouble == "" {
		if _, killed := c.flags(); killed {
			c.end("killed", true)
			return
		}
		select {
		case m, ok := <-c.in:
			if !ok && c.garbage != nil {
				c.end("garbage: "+c.garbage.Error(), true)
				return
			}
			if !ok {
				c.trouble = "closed by the client"
				return
			}
			if !c.message(m) {
				return
			}
		case <-c.signals:
		case <-death:
			death = nil
			if c.engine.AtRest() {
				c.end("died idle", c.rand.IntN(2) == 0)
			}
		}
	}
}

// end ends the connection from our side, with or without a word.
func (c *conn) end(trouble string, word bool) {
	if word {
		c.engine.Terminating()
		c.said = true
	} else if len(c.out) > 0 {
		c.out = c.out[:c.rand.IntN(len(c.out))]
		c.flush()
	}
	c.trouble = trouble
}

func (c *conn) message(m pgproto3.FrontendMessage) bool {
	if c.isCrashed() {
		c.trouble = "crashed"
		return false
	}
	e := Event{PID: c.pid, AtRest: c.engine.AtRest()}
	e.Type, e.Text = describe(m)
	c.watch(e)
	c.setBusy(true)
	defer c.setBusy(false)
	f := &c.faults
	switch {
	case one(c.rand, f.Slow):
		by := f.SlowBy
		if by == 0 {
			by = 50 * time.Millisecond
		}
		_ = c.sleep(upTo(c.rand, by)) // a cancel ends the delay, no statement; a kill is seen by who reads next
	case one(c.rand, f.Terminate):
		c.end("terminated", true)
		return false
	case one(c.rand, f.Notice):
		c.engine.Notice("by the way")
	}
	flush := c.engine.Flush
	dies := one(c.rand, f.Close)
	if dies {
		c.engine.Flush = nil
	}
	more := c.engine.Handle(m)
	switch {
	case c.engine.ended:
		c.trouble = "ended by an error"
		return false
	case dies:
		c.end("died", false)
		return false
	case !more:
		c.trouble = "terminated by the client"
	case c.engine.Listening() && one(c.rand, f.Behind):
		c.end("ended behind an answer", true)
		return false
	case c.rand.IntN(4) == 0:
		c.flush() // PostgreSQL may send at any time
	}
	c.engine.Flush = flush
	return more
}

func (c *conn) watch(e Event) {
	if c.server.Watch != nil {
		c.server.Watch(e)
	}
}

func describe(m pgproto3.FrontendMessage) (typ byte, text string) {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err)
	}
	switch m := m.(type) {
	case *pgproto3.Query:
		text = m.String
	case *pgproto3.Parse:
		text = m.Query
	}
	return b[0], text
}

// Decode decodes one encoded client message; nil if it is none.
func Decode(b []byte) pgproto3.FrontendMessage {
	m := map[byte]pgproto3.FrontendMessage{
		wire.MsgQuery:        &pgproto3.Query{},
		wire.MsgParse:        &pgproto3.Parse{},
		wire.MsgBind:         &pgproto3.Bind{},
		wire.MsgDescribe:     &pgproto3.Describe{},
		wire.MsgExecute:      &pgproto3.Execute{},
		wire.MsgClose:        &pgproto3.Close{},
		wire.MsgSync:         &pgproto3.Sync{},
		wire.MsgFlush:        &pgproto3.Flush{},
		wire.MsgFunctionCall: &pgproto3.FunctionCall{},
		wire.MsgTerminate:    &pgproto3.Terminate{},
		wire.MsgCopyData:     &pgproto3.CopyData{},
		wire.MsgCopyDone:     &pgproto3.CopyDone{},
		wire.MsgCopyFail:     &pgproto3.CopyFail{},
	}[b[0]]
	if m == nil || m.Decode(append([]byte(nil), b[5:]...)) != nil {
		return nil
	}
	return m
}
