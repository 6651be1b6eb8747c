package hasim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/fakepg"
	"fencepost/internal/memconn"
	"fencepost/wire"
)

// client is one scripted client: it writes or reads again and again, and keeps what it was told of each write.
type client struct {
	w      *world
	id     int
	name   string
	target string // "" for the database's
	r      *rand.Rand
	nc     *memconn.Conn
	in     *fakepg.Incoming
	f      *pgproto3.Frontend
	seq    int

	mu     sync.Mutex // guards what follows
	served time.Time  // when what was last done as asked began
	hint   string     // of the last error
	hinted time.Time  // … whose request began then
	told   map[string]outcome
	ended  bool
}

// outcome is what a client may believe of a write.
type outcome uint8

const (
	unknown outcome = iota
	done
	never
)

func (w *world) newClient(id int) *client {
	c := &client{w: w, id: id, name: fmt.Sprintf("client %d", id), r: rand.New(rand.NewPCG(w.seed, 1000+uint64(id))), told: map[string]outcome{}}
	if id > 0 && !w.plan.crowded && c.r.IntN(3) == 0 {
		c.target = pick(c.r, "standby", "prefer-standby", "any")
	}
	return c
}

func (c *client) writes() bool { return c.target == "" }

// run lives until the history is over.
func (c *client) run() {
	pass(time.Duration(1+c.id) * time.Microsecond)
	for !c.w.over.Load() {
		if c.login() {
			for n := 1 + c.r.IntN(60); n > 0 && c.nc != nil && !c.w.over.Load(); n-- {
				c.act()
				c.think(150 * time.Millisecond)
			}
		}
		c.leave()
		c.think(300 * time.Millisecond)
	}
}

func (c *client) think(most time.Duration) { pass(1 + time.Duration(c.r.Int64N(int64(most)))) }

func (c *client) login() bool {
	began := time.Now()
	s := wire.Startup{Kind: wire.StartupMessage, Version: 3 << 16, User: "u", Database: "db"}
	if c.target != "" {
		s.Params = []wire.Param{{Name: "fencepost.target", Value: c.target}}
	}
	nc, err := c.w.admit(c.r.IntN(len(c.w.sessions)), s)
	if err != nil {
		c.w.problem("%s: connect: %v", c.name, err)
		return false
	}
	c.mu.Lock()
	c.nc = nc
	if c.ended {
		nc.Close()
	}
	c.mu.Unlock()
	c.in = &fakepg.Incoming{From: nc}
	c.f = pgproto3.NewFrontend(c.in, nc)
	a := c.read()
	if e := a.failed(); e != nil {
		c.note(began, e)
		return false
	}
	return !a.over
}

func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil {
		if c.r.IntN(2) == 0 {
			b, _ := (&pgproto3.Terminate{}).Encode(nil)
			c.nc.Write(b) //nolint:errcheck // whether anybody hears it does not matter
		}
		c.nc.Close()
		c.nc = nil
	}
}

// end closes the connection from outside: the history is over.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.nc != nil {
		c.nc.Close()
	}
}

func (c *client) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// answers is what came up to ReadyForQuery or the end.
type answers struct {
	rows, complete []string
	err            *pgproto3.ErrorResponse // the last
	over           bool                    // the session has ended
	status         byte
}

func (a *answers) failed() *pgproto3.ErrorResponse { return a.err }

func (c *client) ask(messages ...pgproto3.FrontendMessage) answers {
	var b []byte
	for _, m := range messages {
		b, _ = m.Encode(b)
		c.w.trace(c.name, "> %T %+v", m, m)
	}
	if _, err := c.nc.Write(b); err != nil {
		c.w.trace(c.name, "write: %v", err)
	}
	return c.read()
}

func (c *client) read() (a answers) {
	for {
		m, err := c.f.Receive()
		if err != nil {
			c.w.trace(c.name, "end: %v", err)
			if c.in.AtBoundary() && !c.isOver() {
				c.w.problem("%s: the session ended without a word: %v", c.name, err)
			}
			a.over = true
			return a
		}
		switch m := m.(type) {
		case *pgproto3.DataRow:
			a.rows = append(a.rows, string(m.Values[0]))
		case *pgproto3.CommandComplete:
			a.complete = append(a.complete, string(m.CommandTag))
		case *pgproto3.ErrorResponse:
			e := *m
			a.err = &e
			c.w.trace(c.name, "< %s %s %s; %s; %s", e.Severity, e.Code, e.Message, e.Detail, e.Hint)
			if e.Severity == "FATAL" {
				a.over = true
				return a
			}
		case *pgproto3.ReadyForQuery:
			a.status = m.TxStatus
			c.w.trace(c.name, "< %v %v %c", a.rows, a.complete, a.status)
			return a
		}
	}
}

func (c *client) act() {
	switch began := time.Now(); {
	case !c.writes():
		c.readOne(began)
	case c.r.IntN(40) == 0:
		c.vanish()
	case c.r.IntN(3) == 0:
		c.transaction(began)
	default:
		c.autocommit(began)
	}
}

func (c *client) text() string {
	c.seq++
	return fmt.Sprintf("c%d.%d", c.id, c.seq)
}

func (c *client) readOne(began time.Time) {
	text := c.text()
	a := c.ask(&pgproto3.Query{String: "SELECT '" + text + "'"})
	if e := a.failed(); e != nil || a.over {
		c.failed(began, a)
		return
	}
	if !slices.Equal(a.rows, []string{text}) {
		c.w.problem("%s: read %v, not %s", c.name, a.rows, text)
	}
	c.worked(began)
}

func insert(text string) string { return "INSERT INTO w VALUES ('" + text + "')" }

func (c *client) autocommit(began time.Time) {
	text := c.text()
	request := []pgproto3.FrontendMessage{&pgproto3.Query{String: insert(text)}}
	if c.r.IntN(3) == 0 {
		request = []pgproto3.FrontendMessage{&pgproto3.Parse{Query: insert(text)}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}}
	}
	a := c.ask(request...)
	if a.err == nil && !a.over {
		if len(a.complete) != 1 {
			c.w.problem("%s: %s was answered with %v", c.name, text, a.complete)
		}
		c.believe(text, done)
		c.worked(began)
		return
	}
	c.believe(text, c.failed(began, a))
}

func (c *client) transaction(began time.Time) {
	a := c.ask(&pgproto3.Query{String: "BEGIN"})
	if a.err != nil || a.over {
		c.failed(began, a)
		return
	}
	text := c.text()
	if c.r.IntN(2) == 0 {
		c.think(200 * time.Millisecond)
	}
	if a = c.ask(&pgproto3.Query{String: insert(text)}); a.err != nil || a.over {
		c.failed(began, a)
		c.believe(text, never)
		if !a.over && c.ask(&pgproto3.Query{String: "ROLLBACK"}).over {
			c.leave()
		}
		return
	}
	if c.r.IntN(2) == 0 {
		c.think(300 * time.Millisecond)
	}
	a = c.ask(&pgproto3.Query{String: "COMMIT"})
	if a.err == nil && !a.over {
		if !slices.Equal(a.complete, []string{"COMMIT"}) {
			c.w.problem("%s: COMMIT of %s was answered with %v", c.name, text, a.complete)
		}
		c.believe(text, done)
		c.worked(began)
		return
	}
	c.believe(text, c.failed(began, a))
}

// vanish leaves in the middle of a request.
func (c *client) vanish() {
	text := c.text()
	b, _ := (&pgproto3.Query{String: insert(text)}).Encode(nil)
	c.w.trace(c.name, "> %s, and vanishes", text)
	c.nc.Write(b) //nolint:errcheck // nobody waits for what becomes of it
	c.believe(text, unknown)
	c.think(20 * time.Millisecond)
	c.leave()
}

func (c *client) worked(began time.Time) {
	c.mu.Lock()
	c.served = began
	c.mu.Unlock()
}

func (c *client) believe(text string, o outcome) {
	c.mu.Lock()
	c.told[text] = o
	c.mu.Unlock()
}

// certain are the codes after which nothing was done: nothing was sent, the server refused it, or the transaction was not
// committed. pgerr says so in its hints.
var certain = []string{"57P03", "53300", "08006", "57P01", "25006"}

// failed says what is known of a request that failed, and ends a session that is over.
func (c *client) failed(began time.Time, a answers) outcome {
	if a.over {
		defer c.leave()
	}
	if a.err == nil {
		return unknown
	}
	c.note(began, a.err)
	if slices.Contains(certain, a.err.Code) {
		return never
	}
	return unknown
}

// note looks at an error.
func (c *client) note(began time.Time, e *pgproto3.ErrorResponse) {
	c.mu.Lock()
	c.hint, c.hinted = e.Hint, began
	c.mu.Unlock()
	if !slices.Contains(certain, e.Code) && e.Code != "08007" && e.Code != "58000" && e.Code != "53200" {
		c.w.problem("%s: %s %s %s", c.name, e.Severity, e.Code, e.Message)
	}
	if e.Code == "25006" && !c.writes() {
		c.w.problem("%s: a read was refused: %s", c.name, e.Message)
	}
}

// verify holds what the client was told of its writes against what the servers did.
func (c *client) verify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for text, o := range c.told {
		wrote := c.w.wrote[text]
		switch {
		case len(wrote) > 1:
			c.w.problem("%s: %s was written by %v", c.name, text, wrote)
		case o == done && len(wrote) == 0:
			c.w.problem("%s: %s was acknowledged and never written", c.name, text)
		case o == never && len(wrote) > 0:
			c.w.problem("%s: %s failed with an error that says it was not done, and was written by %v", c.name, text, wrote)
		}
	}
}
