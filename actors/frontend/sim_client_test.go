package frontend

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/fakepg"
	"fencepost/internal/memconn"
	"fencepost/wire"
)

// client is one scripted client. It checks everything it is told: rows, notices and errors must carry the tag of the very
// request they answer, the transaction status must be the one its own statements led to, and every request is answered.
type client struct {
	w    *world
	id   int
	name string
	r    *rand.Rand

	nc        *memconn.Conn
	in        *fakepg.Incoming
	f         *pgproto3.Frontend
	key       wire.CancelKey
	seq       int
	status    byte // of the last ReadyForQuery
	appName   string
	cancelled bool // has asked for a cancel in this session
	over      bool // the session has ended
	leaving   bool // there is nothing left but to leave
	marked    string
}

// patience is how long a client waits for an answer before it says that there is none. Where things go wrong nothing may
// take much longer than the limits that are set: query_wait_timeout (10 s), client_login_timeout (20 s), cleanLimit.
func (c *client) patience() time.Duration {
	if c.w.calm {
		return time.Hour
	}
	return 30 * time.Second
}

func (w *world) newClient(id int) *client {
	return &client{w: w, id: id, name: fmt.Sprintf("client %d", id), r: rand.New(rand.NewPCG(w.seed, 1000+uint64(id)))}
}

func (c *client) tag() string {
	c.seq++
	return fmt.Sprintf("c%d.%d", c.id, c.seq)
}

func (c *client) problem(format string, args ...any) {
	c.w.note(c.name, "PROBLEM "+format, args...)
	c.w.problem(c.name+": "+format, args...)
}

// run plays some sessions one after the other.
func (c *client) run() {
	pass(time.Duration(1+c.id) * time.Microsecond) // two at the same instant would come in any order
	for range 1 + c.r.IntN(3) {
		c.think(time.Second)
		if !c.login() {
			c.close()
			continue
		}
		acts := c.r.IntN(8)
		if c.w.busy {
			acts *= 2
		}
		for range acts {
			if c.over || c.leaving {
				break
			}
			c.act()
			c.think(200 * time.Millisecond)
		}
		c.leave()
	}
}

func (c *client) think(most time.Duration) {
	if c.w.busy {
		most /= 20
	}
	if c.r.IntN(2) == 0 {
		pass(time.Duration(c.r.Int64N(int64(most))))
	}
}

func (c *client) close() {
	if c.nc != nil {
		c.nc.Close()
	}
}

// login connects; it reports false when the session is refused, which is a problem when nothing goes wrong.
func (c *client) login() bool {
	c.status, c.cancelled, c.over, c.leaving = wire.TxIdle, false, false, false
	c.appName, c.marked = "", ""
	if c.r.IntN(2) == 0 {
		c.appName = fmt.Sprintf("app%d", c.id)
	}
	s := wire.Startup{Kind: wire.StartupMessage, Version: 3 << 16, User: c.w.pools[c.r.IntN(len(c.w.pools))].ServerUser, Database: "db", ApplicationName: c.appName}
	var early []byte
	var tag string
	if c.r.IntN(8) == 0 {
		tag = c.tag()
		early = encode(&pgproto3.Query{String: "SELECT '" + tag + "'"})
	}
	nc, err := c.w.connect(c.r.IntN(len(c.w.sessions)), 256<<c.r.IntN(6), s, early)
	if err != nil {
		c.problem("connect: %v", err)
		return false
	}
	c.nc = nc
	c.in = &fakepg.Incoming{From: nc}
	c.f = pgproto3.NewFrontend(c.in, nc)
	c.w.note(c.name, "login")
	a := c.read(1)
	if a.fatal != nil || c.over {
		if c.w.calm {
			c.problem("login refused: %v", a.fatal)
		}
		return false
	}
	if c.key.PID == 0 || a.params["server_version"] == "" || a.params["application_name"] != c.appName {
		c.problem("welcomed with key %v and parameters %v", c.key.PID, a.params)
	}
	if tag != "" {
		c.verify(request{rows: []string{tag}}, tag, c.read(1))
	}
	return true
}

// answers is what came in answer to something.
type answers struct {
	rows, complete, notices []string
	errors                  []*pgproto3.ErrorResponse
	fatal                   *pgproto3.ErrorResponse
	params                  map[string]string
	copyIn                  bool
	copied                  []string
	ready                   int
}

func (a *answers) code() string {
	if len(a.errors) > 0 {
		return a.errors[0].Code
	}
	return ""
}

// read reads up to the n-th ReadyForQuery, or a CopyInResponse, or with n = 0 whatever ends a Flush (CommandComplete or an
// error), or the end of the session.
func (c *client) read(n int) (a answers) {
	a.params = map[string]string{}
	c.nc.SetReadDeadline(time.Now().Add(c.patience()))
	for {
		m, err := c.f.Receive()
		if err != nil {
			c.ended(err)
			return a
		}
		c.w.note(c.name, "< %s", brief(m))
		switch m := m.(type) {
		case *pgproto3.DataRow:
			a.rows = append(a.rows, string(m.Values[len(m.Values)-1]))
		case *pgproto3.CommandComplete:
			a.complete = append(a.complete, string(m.CommandTag))
			if n == 0 {
				return a
			}
		case *pgproto3.NoticeResponse:
			a.notices = append(a.notices, m.Code+" "+m.Message)
		case *pgproto3.ErrorResponse:
			e := *m
			if e.Severity == "FATAL" {
				a.fatal = &e
				c.finished(&e)
				return a
			}
			a.errors = append(a.errors, &e)
			if n == 0 {
				return a
			}
		case *pgproto3.ParameterStatus:
			a.params[m.Name] = m.Value
		case *pgproto3.BackendKeyData:
			c.key = wire.CancelKey{PID: m.ProcessID, Secret: slices.Clone(m.SecretKey)}
		case *pgproto3.CopyInResponse:
			a.copyIn = true
			return a
		case *pgproto3.CopyData:
			a.copied = append(a.copied, strings.TrimSpace(string(m.Data)))
		case *pgproto3.ReadyForQuery:
			a.ready++
			c.status = m.TxStatus
			if n > 0 && a.ready >= n {
				return a
			}
		}
	}
}

func brief(m pgproto3.BackendMessage) string {
	switch m := m.(type) {
	case *pgproto3.DataRow:
		return fmt.Sprintf("row %.20q", m.Values)
	case *pgproto3.CommandComplete:
		return string(m.CommandTag)
	case *pgproto3.NoticeResponse:
		return "notice " + m.Message
	case *pgproto3.ErrorResponse:
		return m.Severity + " " + m.Code + " " + m.Message
	case *pgproto3.ReadyForQuery:
		return "ready " + string(m.TxStatus)
	case *pgproto3.ParameterStatus:
		return m.Name + "=" + m.Value
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3.")
}

// ended notes the end of the connection where an answer was waited for.
func (c *client) ended(err error) {
	c.over = true
	c.w.note(c.name, "end: %v", err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.problem("no answer within %v (request %d)", c.patience(), c.seq)
	case c.w.calm:
		c.problem("the session ended: %v", err)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		c.problem("read: %v", err)
	case c.in.AtBoundary():
		c.problem("the session ended without a word")
	}
}

// finished follows a FATAL error: nothing but the end may come.
func (c *client) finished(e *pgproto3.ErrorResponse) {
	c.over = true
	if c.w.calm && (c.w.mode != Statement || e.Code != "0A000") {
		c.problem("FATAL %s %s", e.Code, e.Message)
	}
	if !slices.Contains([]string{"57P01", "57P03", "08006", "08007", "58000", "53300", "0A000"}, e.Code) {
		c.problem("FATAL %s %s", e.Code, e.Message)
	}
	if m, err := c.f.Receive(); err == nil {
		c.problem("%T after a FATAL error", m)
	}
}

// send writes messages in one go, or cut somewhere.
func (c *client) send(all ...pgproto3.FrontendMessage) {
	var b []byte
	for _, m := range all {
		c.w.note(c.name, "> %s", strings.TrimPrefix(fmt.Sprintf("%T %.60v", m, fmt.Sprint(m)), "*pgproto3."))
		b = append(b, encode(m)...)
	}
	defer c.killIdle()()
	c.nc.SetWriteDeadline(time.Now().Add(c.patience()))
	cut := c.r.IntN(6) == 0 && len(b) > 1
	if c.w.idleDeaths || c.w.mode == Statement && len(all) > 1 {
		cut = false // a server may die while it waits for the rest; a Sync cut off its COPY makes a session of statements
	}
	if cut {
		n := 1 + c.r.IntN(len(b)-1)
		c.write(b[:n])
		c.think(50 * time.Millisecond)
		b = b[n:]
	}
	c.write(b)
}

// killIdle ends idle server connections at a bad moment: where no client may notice, right before a request is sent; where
// errors are in order, while it asks for a connection. Those just used are left alone: a pooler need not look at them again.
func (c *client) killIdle() (after func()) {
	const rested = 10 * time.Millisecond
	kill := func() { c.w.server.KillIdle(rested) }
	k, steps := c.r.IntN(6), c.r.IntN(12)
	switch {
	case c.w.idleDeaths && k < 2:
		kill()
	case !c.w.calm && k == 0:
		return func() { c.w.later(steps, kill) }
	}
	return func() {}
}

// write leaves it to the next read to notice the end of the session: there is something to read before it.
func (c *client) write(b []byte) {
	if _, err := c.nc.Write(b); errors.Is(err, os.ErrDeadlineExceeded) {
		c.problem("nobody reads what was sent (request %d)", c.seq)
	}
}

func encode(m pgproto3.FrontendMessage) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// request says what is expected of the answer to something, if nothing goes wrong.
type request struct {
	rows   []string // each row's text
	copied []string
	code   string // of the error that is to come
	notice string
	status byte // 'T', 'E' or 'I'; 0: as before
}

// verify checks an answer. It reports whether it was the expected one; another is a problem unless something may have gone
// wrong, and even then it must not be somebody else's.
func (c *client) verify(q request, tag string, a answers) bool {
	c.foreign(tag, a)
	if c.over {
		return false
	}
	if code := a.code(); code != q.code {
		if !c.excused(code) {
			c.problem("request %s: error %q instead of %q: %s", tag, code, q.code, a.message())
		}
		return false
	}
	if q.code == "" && (!slices.Equal(a.rows, q.rows) || !slices.Equal(a.copied, q.copied)) {
		c.problem("request %s: rows %.200q and %.200q instead of %.200q and %.200q", tag, a.rows, a.copied, q.rows, q.copied)
	}
	if q.notice != "" && !slices.ContainsFunc(a.notices, func(n string) bool { return strings.Contains(n, q.notice) }) {
		c.problem("request %s: notices %q without %q", tag, a.notices, q.notice)
	}
	if q.status != 0 && c.status != q.status && a.ready > 0 {
		c.problem("request %s: status %c instead of %c", tag, c.status, q.status)
	}
	return true
}

func (a *answers) message() string {
	if len(a.errors) == 0 {
		return ""
	}
	return a.errors[0].Message
}

// excused reports whether an error that was not asked for may come all the same.
func (c *client) excused(code string) bool {
	switch code {
	case "57014":
		return c.cancelled
	case "53300", "57P03", "08006":
		return !c.w.calm // no server connection in time
	}
	return false
}

// foreign looks for answers to other requests, of this client or another.
func (c *client) foreign(tag string, a answers) {
	texts := append(append(slices.Clone(a.rows), a.copied...), a.notices...)
	for _, e := range append(slices.Clone(a.errors), a.fatal) {
		if e != nil {
			texts = append(texts, e.Message)
		}
	}
	for _, text := range texts {
		for _, found := range tagged.FindAllString(text, -1) {
			if found != tag {
				c.problem("request %s got the answer %q", tag, text)
			}
		}
	}
	for _, n := range a.notices {
		if strings.HasPrefix(n, "25001") || strings.HasPrefix(n, "25P01") {
			c.problem("request %s: the server says %q", tag, n)
		}
	}
}
