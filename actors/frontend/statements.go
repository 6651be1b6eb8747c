package frontend

import (
	"bytes"
	"encoding/binary"

	"fencepost/actors/backend"
	"fencepost/actors/backend/prepared"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
	"fencepost/wire"
)

// In transaction and statement mode every message about a prepared statement is made to mean the client's own: relay asks
// statement before it passes one on. What statements are where is kept by package prepared; this file reads the messages
// and puts others in their place.

// maxNamedStatement bounds the Parse of a named statement, which is looked at whole.
const maxNamedStatement = prepared.MaxClientBytes

// maxStatementNames bounds the names in front of a Bind.
const maxStatementNames = 32 << 10

// edit is what relay makes of a chunk in which messages are replaced. As long as none is, it stays empty and the chunk goes
// on as it is.
type edit struct {
	f     *Frontend
	out   []byte // in place of chunk[:from]
	from  int
	noted bool // statement has told the tracker of the message that comes next
	wait  bool // the message that comes next must not be sent yet
}

// begin prepares for appending to out what goes between before and the next message.
func (ed *edit) begin(before, scratch []byte) {
	if ed.out == nil {
		ed.out = scratch[:0]
	}
	ed.out = append(ed.out, before[ed.from:]...)
	ed.from = len(before)
}

// drop leaves out the next n bytes.
func (ed *edit) drop(n int) { ed.from += n }

// take reports whether the tracker knows of the next message, once.
func (ed *edit) take() bool {
	noted := ed.noted
	ed.noted = false
	return noted
}

// rest is what goes to the server in place of chunk.
func (ed *edit) rest(chunk []byte) []byte {
	if ed.from == 0 && len(ed.out) == 0 {
		return chunk
	}
	if ed.from < len(chunk) {
		ed.out = append(ed.out, chunk[ed.from:]...)
	}
	return ed.out
}

// aboutStatements reports whether messages of type typ can name statements.
func aboutStatements(typ byte) bool {
	return typ == wire.MsgParse || typ == wire.MsgBind || typ == wire.MsgDescribe || typ == wire.MsgClose
}

// incomplete reports whether more of the message about a statement that p begins with must come before it can be sent:
// its names, and the text of a Parse that is kept. An error ends the session.
func incomplete(p []byte) (bool, *pgerr.Error) {
	if len(p) < wire.HeaderSize {
		return true, nil
	}
	size := messageSize(p)
	body := messageBody(p, size)
	switch {
	case size < 0 || size > wire.ClientMessageLimit(p[0]) || len(body) == size:
		return false, nil // complete, or for the scanner and sent to refuse
	case len(body) == 0:
		return true, nil
	case p[0] == wire.MsgParse && body[0] == 0 && !prepared.KeepsUnnamed(size):
		return false, nil
	case p[0] == wire.MsgParse && size > maxNamedStatement:
		return false, pgerr.StatementTooLong(maxNamedStatement)
	case p[0] == wire.MsgBind && bytes.Count(body[:min(len(body), maxStatementNames)], []byte{0}) >= 2:
		return false, nil
	case p[0] == wire.MsgBind && len(body) >= maxStatementNames:
		return false, pgerr.StatementTooLong(maxStatementNames)
	}
	return true, nil
}

func messageSize(p []byte) int { return int(binary.BigEndian.Uint32(p[1:])) - 4 }

func messageBody(p []byte, size int) []byte {
	return p[wire.HeaderSize:min(len(p), wire.HeaderSize+max(size, 0))]
}

// statement looks at the message that p begins with, behind before: names are replaced, and what the server lacks is put in
// front of it. The message waits (ed.wait) while it is incomplete, or while it is not known what its name means. An error
// ends the session.
func (ed *edit) statement(f *Frontend, p, before []byte) *pgerr.Error {
	ed.f = f
	t := &f.backend.Tracker
	if t.Skipping() || t.CopyingIn() {
		return nil // the server does not carry it out either
	}
	if more, e := incomplete(p); more || e != nil {
		ed.wait = more
		return e
	}
	size := messageSize(p)
	if size < 0 || size > wire.ClientMessageLimit(p[0]) {
		return nil
	}
	body := messageBody(p, size)
	if f.names == nil {
		f.names = prepared.NewNames(&f.sessions.statements)
	}
	switch p[0] {
	case wire.MsgParse:
		return ed.parse(body, size, before)
	case wire.MsgBind:
		return ed.bind(body, size, before)
	}
	if len(body) < 2 || body[0] != wire.ObjectStatement || bytes.IndexByte(body, 0) != len(body)-1 {
		return nil // a portal, or malformed
	}
	if p[0] == wire.MsgClose {
		return ed.close(body[1:len(body)-1], before)
	}
	return ed.describe(body[1:len(body)-1], before)
}

func (ed *edit) parse(body []byte, size int, before []byte) *pgerr.Error {
	f := ed.f
	c := &f.backend.Statements
	parsed, ok := prepared.ReadParse(body)
	unnamed := len(body) > 0 && body[0] == 0
	switch {
	case len(body) == size && !ok:
		return nil // the server refuses it before it looks at the name
	case unnamed && f.backend.Tracker.Pinned():
		return nil
	case unnamed:
		text := parsed.Text
		if !prepared.KeepsUnnamed(size) {
			text = nil
		}
		f.names.ParseUnnamed(c, text)
		ed.noted = true
		return nil
	case ed.unsure():
		return ed.uncertain()
	}
	ed.begin(before, f.sessions.scratch)
	ed.out = f.names.Parse(ed.out, c, parsed, f.deps.Names.Value(f.params, "search_path"), f.sessions.statementLimit())
	ed.noted = true
	ed.drop(wire.HeaderSize + size)
	return nil
}

func (ed *edit) bind(body []byte, size int, before []byte) *pgerr.Error {
	f := ed.f
	portal, length := bytes.IndexByte(body, 0), -1
	if portal >= 0 {
		length = bytes.IndexByte(body[portal+1:], 0)
	}
	switch {
	case length < 0:
		return nil // malformed
	case length == 0:
		return ed.useUnnamed(before)
	case ed.unsure():
		return ed.uncertain()
	}
	name := body[portal+1 : portal+1+length]
	ed.begin(before, f.sessions.scratch)
	server, ready := ed.need(name, len(body) == size, wire.HeaderSize+size)
	if !ready {
		return nil
	}
	ed.out = append(ed.out, wire.MsgBind)
	ed.out = binary.BigEndian.AppendUint32(ed.out, uint32(4+size-length+len(server)))
	ed.out = append(append(append(ed.out, body[:portal+1]...), server...), 0)
	ed.drop(wire.HeaderSize + portal + 1 + length + 1)
	return nil
}

func (ed *edit) describe(name, before []byte) *pgerr.Error {
	f := ed.f
	switch {
	case len(name) == 0:
		return ed.useUnnamed(before)
	case ed.unsure():
		return ed.uncertain()
	}
	ed.begin(before, f.sessions.scratch)
	whole := wire.HeaderSize + 1 + len(name) + 1
	server, ready := ed.need(name, true, whole)
	if !ready {
		return nil
	}
	ed.out = append(ed.out, wire.MsgDescribe)
	ed.out = binary.BigEndian.AppendUint32(ed.out, uint32(4+1+len(server)+1))
	ed.out = append(append(append(ed.out, wire.ObjectStatement), server...), 0)
	ed.drop(whole)
	return nil
}

func (ed *edit) close(name, before []byte) *pgerr.Error {
	f := ed.f
	c := &f.backend.Statements
	switch {
	case len(name) == 0 && f.backend.Tracker.Pinned():
		return nil
	case len(name) == 0:
		f.names.CloseUnnamed(c)
		ed.noted = true
		return nil
	case ed.unsure():
		return ed.uncertain()
	}
	ed.begin(before, f.sessions.scratch)
	ed.out = f.names.Close(ed.out, c, name)
	ed.noted = true
	ed.drop(wire.HeaderSize + 1 + len(name) + 1)
	return nil
}

// need puts in front of a message about a named statement what the server lacks. ready is false if it must wait, and if the client has no statement of that name: then the server will say so, or, where statements are not
// kept, the message is replaced, too, if it is whole.
func (ed *edit) need(name []byte, complete bool, whole int) (server string, ready bool) {
	f := ed.f
	c, limit := &f.backend.Statements, f.sessions.statementLimit()
	if limit == 0 && complete && !f.names.Has(name) {
		f.stats.UnownedStatements++
		ed.out = f.names.Refuse(ed.out, c, pgerr.StatementNotKept(string(name)))
		ed.noted = true
		ed.drop(whole)
		return "", false
	}
	var v prepared.Verdict
	ed.out, server, v = f.names.Need(ed.out, c, name, limit)
	switch v {
	case prepared.Unowned:
		f.stats.UnownedStatements++
	case prepared.Wait:
		f.stalled, ed.wait = true, true
	case prepared.Changed:
		ed.noted = true
	}
	return server, v == prepared.Ready || v == prepared.Changed
}

// useUnnamed is for a Bind or Describe of the unnamed statement.
func (ed *edit) useUnnamed(before []byte) *pgerr.Error {
	f := ed.f
	c := &f.backend.Statements
	switch {
	case f.backend.Tracker.Pinned():
		if !f.names.MayHoldUnnamed() {
			return pgerr.StatementsUncertain()
		}
		return nil
	case f.names.UnnamedUnsure(c):
		f.stalled, ed.wait = true, true
		return nil
	case f.names.UnnamedHere():
		return nil
	}
	ed.begin(before, f.sessions.scratch)
	var own bool
	if ed.out, own = f.names.NeedUnnamed(ed.out, c); !own {
		f.stats.UnownedStatements++
	}
	return nil
}

// unsure reports whether a message with a name cannot be sent now: it waits for answers, or (uncertain) there is no telling.
func (ed *edit) unsure() bool {
	f := ed.f
	if f.backend.Tracker.Pinned() {
		return true
	}
	if f.names.Unsure(&f.backend.Statements) {
		f.stalled, ed.wait = true, true
	}
	return ed.wait
}

func (ed *edit) uncertain() *pgerr.Error {
	f := ed.f
	if f.backend.Tracker.Pinned() {
		return pgerr.StatementsUncertain()
	}
	return nil
}

// maxLookedAt is how long SQL may be that is searched for words. A named message behind longer SQL that is not answered yet waits.
const maxLookedAt = 512

// noteQuery notes a Query, which is not skipped, in the names.
func noteQuery(n *prepared.Names, m *wire.Fragment) {
	n.Queried()
	if !m.Last || len(m.Body) > maxLookedAt || mayClear(m.Body) {
		n.MayClear()
	}
}

// mayClear reports whether SQL may drop all prepared statements: it has the word DEALLOCATE or DISCARD.
func mayClear(sql []byte) bool {
	for len(sql) > 0 {
		i := bytes.IndexAny(sql, "dD")
		if i < 0 {
			return false
		}
		word, rest := keyword(sql[i:])
		if is(word, "deallocate") || is(word, "discard") {
			return true
		}
		sql = rest
	}
	return false
}

// clearUp reports whether it is known now what the names mean that a client's next message waits for. It goes on as well
// when nothing can be known, or when the server reads copy data.
func clearUp(b *backend.Backend, n *prepared.Names) bool {
	return b.Tracker.Pinned() || b.Tracker.CopyingIn() || !b.Statements.Asked() && !n.Unsure(&b.Statements) && !n.UnnamedUnsure(&b.Statements)
}

// condition is that of a backend whose transaction is over: SQL's PREPARE is no one else's business.
func condition(b *backend.Backend) pool.Condition {
	if b.Statements.SQLNames() {
		return pool.Dirty
	}
	return pool.Clean
}
