package frontend

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// act does one random thing and checks what comes of it.
func (c *client) act() {
	if c.status != wire.TxIdle {
		c.finish()
		return
	}
	switch k := c.r.IntN(18); {
	case k < 3:
		c.simple(c.tag())
	case k < 5:
		c.transaction()
	case k < 6:
		c.many()
	case k < 7:
		c.failing()
	case k < 9:
		c.batch()
	case k < 10:
		c.pipeline()
	case k < 12:
		c.copyIn()
	case k < 13:
		c.copyOut()
	case k < 14:
		c.sleepAndCancel()
	case k < 15:
		c.parameter()
	case k < 16:
		c.flushed()
	case k < 17:
		c.cancelAtOnce()
	default:
		c.mark()
	}
}

func sel(tag string) string { return "SELECT '" + tag + "'" }

func (c *client) simple(tag string) bool {
	sql := sel(tag)
	if c.r.IntN(2) == 0 { // long enough for something to hit it
		sql = fmt.Sprintf("SELECT pg_sleep(%.3f), '%s'", c.r.Float64()/20, tag)
	}
	c.send(&pgproto3.Query{String: sql})
	return c.verify(request{rows: []string{tag}}, tag, c.read(1))
}

// many reads an answer that does not fit any buffer, slowly.
func (c *client) many() {
	tag, n := c.tag(), 1+c.r.IntN(600)
	if c.r.IntN(3) == 0 {
		n = 3000
	}
	if c.w.idleDeaths { // the server has done its part when all of it is in the buffers, and may die
		n = 1 + n%100
	}
	text := tag + strings.Repeat(" ", c.r.IntN(60))
	c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT '%s' FROM generate_series(1,%d)", text, n)})
	c.think(2 * time.Second)
	var want []string
	for range n {
		want = append(want, text)
	}
	c.verify(request{rows: want}, tag, c.read(1))
}

func raise(tag string) string { return "DO $$BEGIN RAISE EXCEPTION '" + tag + "'; END$$" }

func (c *client) failing() {
	tag := c.tag()
	switch c.r.IntN(3) {
	case 0:
		c.send(&pgproto3.Query{String: raise(tag)})
		c.verify(request{code: "P0001"}, tag, c.read(1))
	case 1:
		c.send(&pgproto3.Query{String: "nonsense /* " + tag + " */"})
		c.verify(request{code: "42601"}, tag, c.read(1))
	default: // what follows the error in the batch is skipped
		c.send(extended(sel(tag), raise(tag), sel(tag))...)
		c.verify(request{code: "P0001"}, tag, c.read(1))
	}
	if !c.over && c.status != wire.TxIdle {
		c.problem("status %c after an error outside a transaction", c.status)
	}
}

// extended is a batch of statements, with its Sync.
func extended(sql ...string) (all []pgproto3.FrontendMessage) {
	for _, s := range sql {
		all = append(all, &pgproto3.Parse{Query: s}, &pgproto3.Bind{}, &pgproto3.Describe{ObjectType: wire.ObjectPortal}, &pgproto3.Execute{})
	}
	return append(all, &pgproto3.Sync{})
}

func (c *client) batch() {
	tag, n := c.tag(), 1+c.r.IntN(4)
	var sql, want []string
	for range n {
		sql, want = append(sql, sel(tag)), append(want, tag)
	}
	c.send(extended(sql...)...)
	c.verify(request{rows: want}, tag, c.read(1))
}

// pipeline sends several requests before it reads the first answer. Each is answered by its own.
func (c *client) pipeline() {
	type sent struct {
		tag string
		q   request
	}
	var all []sent
	var out []pgproto3.FrontendMessage
	for range 2 + c.r.IntN(4) {
		s := sent{tag: c.tag()}
		switch c.r.IntN(4) {
		case 0:
			out = append(out, &pgproto3.Query{String: sel(s.tag)})
			s.q.rows = []string{s.tag}
		case 1:
			out = append(out, extended(sel(s.tag), raise(s.tag), sel(s.tag))...)
			s.q.code = "P0001"
		default:
			out = append(out, extended(sel(s.tag), sel(s.tag))...)
			s.q.rows = []string{s.tag, s.tag}
		}
		all = append(all, s)
	}
	c.send(out...)
	for _, s := range all {
		if c.over {
			return
		}
		c.verify(s.q, s.tag, c.read(1))
	}
}

// flushed asks for answers by Flush in the middle of a batch: it keeps its server connection until the Sync.
func (c *client) flushed() {
	tag := c.tag()
	c.send(&pgproto3.Parse{Query: sel(tag)}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{})
	a := c.read(0)
	c.foreign(tag, a)
	if c.over {
		return
	}
	failed := a.code() != ""
	if failed && !c.excused(a.code()) {
		c.problem("request %s: error %s", tag, a.code())
	}
	c.think(100 * time.Millisecond)
	c.send(&pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}) // the statement must still be there
	q := request{rows: []string{tag}}
	if failed {
		q = request{}
	}
	c.verify(q, tag, c.read(1))
}

// transaction is BEGIN, some statements with pauses between them, and an end.
func (c *client) transaction() {
	begin := c.tag()
	c.send(&pgproto3.Query{String: "BEGIN; SELECT '" + begin + "'"})
	a := c.read(1)
	if c.w.mode == Statement {
		c.foreign(begin, a)
		if !c.over && a.code() == "" {
			c.read(1)
		}
		if !c.over && !c.excused(a.code()) {
			c.problem("a transaction block in statement mode: %q", a.code())
		}
		return
	}
	if !c.verify(request{rows: []string{begin}, status: wire.TxOpen}, begin, a) {
		return
	}
	for range c.r.IntN(4) {
		c.think(100 * time.Millisecond)
		tag, failed := c.tag(), c.status == wire.TxFailed
		q := request{rows: []string{tag}, status: wire.TxOpen}
		sql := sel(tag)
		if c.r.IntN(5) == 0 {
			sql, q = raise(tag), request{code: "P0001", status: wire.TxFailed}
		}
		if failed {
			q = request{code: "25P02", status: wire.TxFailed}
		}
		if c.r.IntN(2) == 0 {
			c.send(&pgproto3.Query{String: sql})
		} else {
			c.send(extended(sql)...)
		}
		if !c.verify(q, tag, c.read(1)) && c.over {
			return
		}
	}
	if c.r.IntN(6) == 0 {
		return // left open: the next act happens inside, or the client leaves
	}
	c.finish()
}

// finish ends an open transaction.
func (c *client) finish() {
	if c.over || c.status == wire.TxIdle {
		return
	}
	c.send(&pgproto3.Query{String: []string{"COMMIT", "ROLLBACK"}[c.r.IntN(2)]})
	c.verify(request{status: wire.TxIdle}, "", c.read(1))
}

func (c *client) sleepAndCancel() {
	tag := c.tag()
	c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(%.3f), '%s'", c.r.Float64()*3, tag)})
	if c.r.IntN(3) > 0 {
		c.think(time.Second)
		for range 1 + c.r.IntN(2) {
			c.cancelled = true
			c.w.note(c.name, "cancel")
			c.w.system.Root.Send(c.w.deps.Cancel, &CancelRequest{Key: c.key, Done: func() {}})
		}
	}
	c.verify(request{rows: []string{tag}}, tag, c.read(1))
}

// cancelAtOnce cancels what is over as soon as it began: the cancel arrives before it, in it, behind it or when the server
// connection is somebody else's already.
func (c *client) cancelAtOnce() {
	c.cancelled = true
	for range 1 + c.r.IntN(3) {
		if c.over {
			return
		}
		tag := c.tag()
		c.send(&pgproto3.Query{String: sel(tag)})
		if c.r.IntN(2) == 0 {
			c.w.system.Root.Send(c.w.deps.Cancel, &CancelRequest{Key: c.key, Done: func() {}})
		}
		c.verify(request{rows: []string{tag}}, tag, c.read(1))
		if c.r.IntN(2) == 0 && !c.over {
			c.simple(c.tag())
		}
	}
}

// mark leaves something in the server session and looks whether somebody else did. Only session mode promises anything.
func (c *client) mark() {
	if c.w.mode != Session {
		return
	}
	c.send(&pgproto3.Query{String: "SHOW app.mark"})
	q := request{code: "42704"}
	if c.marked != "" {
		q = request{rows: []string{c.marked}}
	}
	if !c.verify(q, "", c.read(1)) {
		return
	}
	mark := fmt.Sprintf("mark%d", c.seq)
	c.send(&pgproto3.Query{String: "SET app.mark = '" + mark + "'"})
	if c.verify(request{}, "", c.read(1)) {
		c.marked = mark
	}
}

// parameter sets what is carried from server connection to server connection, and looks whether it is.
func (c *client) parameter() {
	if c.status != wire.TxIdle {
		return // a rollback would take it back
	}
	if c.r.IntN(2) == 0 {
		name := fmt.Sprintf("app%d_%d", c.id, c.seq)
		c.send(&pgproto3.Query{String: "SET application_name = '" + name + "'"})
		if !c.verify(request{}, "", c.read(1)) {
			return
		}
		c.appName = name
	}
	c.think(100 * time.Millisecond)
	c.send(&pgproto3.Query{String: "SHOW application_name"})
	c.verify(request{rows: []string{c.appName}}, "", c.read(1))
}

func (c *client) copyOut() {
	tag, n := c.tag(), c.r.IntN(50)
	c.send(&pgproto3.Query{String: fmt.Sprintf("COPY (SELECT '%s' FROM generate_series(1,%d)) TO STDOUT", tag, n)})
	c.think(100 * time.Millisecond)
	var want []string
	for range n {
		want = append(want, tag)
	}
	c.verify(request{copied: want}, tag, c.read(1))
}

// copyIn copies some rows, good or bad, by the simple or the extended protocol; it may give up.
func (c *client) copyIn() {
	tag := c.tag()
	sql := "COPY t FROM STDIN /* " + tag + " */"
	simple := c.r.IntN(2) == 0
	if simple {
		c.send(&pgproto3.Query{String: sql})
	} else {
		c.send(&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	}
	a := c.read(1)
	if c.over || !a.copyIn {
		c.verify(request{}, tag, a)
		if !c.over && c.status == wire.TxIdle && a.code() == "" {
			c.problem("request %s: no copy, and no error", tag)
		}
		return
	}
	q := request{}
	long := c.r.IntN(6) == 0 // more than all buffers on the way hold
	for range c.r.IntN(5) {
		data := "1\n2\n3\n"
		if c.r.IntN(6) == 0 {
			data, q.code = "bad\n", "22P02"
		}
		if long {
			data = strings.Repeat(data, 10000)
		}
		b := encode(&pgproto3.CopyData{Data: []byte(data)})
		n := len(b)
		if c.r.IntN(2) == 0 && !c.w.idleDeaths { // the COPY may fail, and the answer come, in the middle of this
			n = 1 + c.r.IntN(n)
		}
		c.w.note(c.name, "> CopyData of %d bytes, cut at %d", len(b), n)
		c.nc.SetWriteDeadline(time.Now().Add(c.patience()))
		c.write(b[:n])
		c.think(300 * time.Millisecond)
		c.write(b[n:])
	}
	if c.r.IntN(12) == 0 {
		c.leaving = true // in the middle of it
		return
	}
	out := []pgproto3.FrontendMessage{&pgproto3.CopyDone{}}
	if c.r.IntN(5) == 0 {
		out[0] = &pgproto3.CopyFail{Message: tag}
		if q.code == "" {
			q.code = "57014"
		}
	}
	if !simple {
		out = append(out, &pgproto3.Sync{})
	}
	c.send(out...)
	c.verify(q, tag, c.read(1))
}

// leave ends the session: politely, or in the middle of whatever it is doing.
func (c *client) leave() {
	defer c.close()
	if c.over {
		return
	}
	tag := c.tag()
	switch k := c.r.IntN(12); {
	case k < 4:
		if !c.leaving {
			c.finish()
		}
		if !c.over {
			c.send(&pgproto3.Terminate{})
		}
	case k < 5:
		// without a word, perhaps in a transaction or a COPY
	case k < 6:
		c.send(&pgproto3.Query{String: "BEGIN; " + sel(tag)})
	case k < 7:
		c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(%.3f), '%s'", c.r.Float64()*20, tag)})
	case k < 8:
		c.send(&pgproto3.Query{String: fmt.Sprintf("SELECT '%s' FROM generate_series(1,5000)", tag)})
	case k < 9:
		c.send(extended(sel(tag), sel(tag))[:3+c.r.IntN(5)]...)
	case k < 10:
		b := encode(&pgproto3.Query{String: sel(tag)})
		c.nc.SetWriteDeadline(time.Now().Add(c.patience()))
		c.write(b[:1+c.r.IntN(len(b)-1)])
	case k < 11:
		c.send(&pgproto3.Query{String: "COPY t FROM STDIN /* " + tag + " */"}, &pgproto3.CopyData{Data: []byte("1\n")})
	default:
		c.send(&pgproto3.Query{String: sel(tag)}, &pgproto3.Terminate{})
	}
	c.think(time.Second)
	c.w.note(c.name, "leaves")
}
