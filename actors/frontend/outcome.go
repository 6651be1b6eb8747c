package frontend

import (
	"bytes"

	"fencepost/wire"
)

// unanswered is what may become of a transaction block if its server vanishes now, judged by the messages sent since the
// server was last at rest. Whoever is told that a block was not committed may repeat it, so all that is not certain counts
// as a commit. It is kept only inside a block; outside of one everything may commit.
type unanswered uint8

const (
	mayCommit   unanswered = 1 << iota // something of it may commit
	blockOver                          // the block is rolled back: what follows is not inside it
	rollsBack                          // the unnamed statement, if executed, rolls the block back
	parsed                             // the unnamed statement was parsed since the last Sync: its text was seen
	bound                              // … and the unnamed portal bound to it
	sinceUnsure = parsed | bound
)

// with adds a message that begins in m.
func (u unanswered) with(m *wire.Fragment) unanswered {
	if u&mayCommit != 0 {
		return u
	}
	switch m.Type {
	case wire.MsgQuery, wire.MsgParse, wire.MsgBind, wire.MsgExecute, wire.MsgFunctionCall:
		if !m.Last {
			return u | mayCommit // it is in pieces
		}
	case wire.MsgSync: // behind it the unnamed ones are those of before, should an error have skipped the new ones
		return u &^ sinceUnsure
	default:
		return u
	}
	switch m.Type {
	case wire.MsgQuery:
		return u.query(m.Body) &^ sinceUnsure
	case wire.MsgParse:
		return u.parse(m.Body)
	case wire.MsgBind:
		// Of a named statement, or one parsed earlier, the text is not known any more.
		u &^= bound
		if u&parsed != 0 && len(m.Body) > 1 && m.Body[0] == 0 && m.Body[1] == 0 {
			u |= bound
		}
		return u
	case wire.MsgExecute:
		return u.execute(m.Body)
	}
	return u.run(stays) // a FunctionCall
}

func (u unanswered) parse(body []byte) unanswered {
	if len(body) == 0 || body[0] != 0 {
		return u // a named statement does nothing before a Bind names it
	}
	u |= parsed
	for text := body[1:]; ; {
		var e effect
		e, text = nextEffect(text)
		switch {
		case e == commits:
			return u | mayCommit
		case e == ends:
			u |= rollsBack
		}
		if len(text) == 0 {
			return u
		}
	}
}

func (u unanswered) execute(body []byte) unanswered {
	switch {
	case u&bound == 0 || len(body) == 0 || body[0] != 0:
		return u | mayCommit
	case u&rollsBack != 0:
		return u.run(ends)
	}
	return u.run(stays)
}

func (u unanswered) query(body []byte) unanswered {
	for text := body; ; {
		var e effect
		e, text = nextEffect(text)
		u = u.run(e)
		if len(text) == 0 || u&mayCommit != 0 {
			return u
		}
	}
}

// run adds a statement that is executed.
func (u unanswered) run(e effect) unanswered {
	switch {
	case e == nothing:
		return u
	case e == commits || u&blockOver != 0:
		return u | mayCommit
	case e == ends:
		return u | blockOver
	}
	return u
}

// effect is what a statement can do to the transaction block that it is in.
type effect uint8

const (
	nothing effect = iota // there is none
	stays
	ends    // it rolls the block back
	commits // or it cannot be told cheaply
)

// white is what PostgreSQL's lexer takes for white space.
const white = " \t\n\r\f\v"

// nextEffect judges the first statement of text, up to a semicolon, and returns what is behind it. Nothing but the
// statements of PostgreSQL's TransactionStmt ends a block; CALL and DO cannot, inside of one. No client encoding has a
// semicolon or a quote as the second byte of a character, so that splitting at semicolons can find too many statements
// and never too few; where there may be too many because of quotes or comments, it is not tried.
func nextEffect(text []byte) (e effect, rest []byte) {
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	part, rest, _ := bytes.Cut(text, []byte{';'})
	rest = bytes.TrimLeft(rest, white)
	if len(rest) > 0 && (bytes.ContainsAny(part, `'"$`) || bytes.Contains(part, []byte("--")) || bytes.Contains(part, []byte("/*"))) {
		return commits, nil
	}
	word, part := keyword(part)
	switch {
	case len(word) == 0:
		part = bytes.TrimLeft(part, white)
		switch {
		case len(part) == 0:
			return nothing, rest
		case part[0] == '(':
			return stays, rest
		}
		return commits, rest // a comment, or no SQL
	case is(word, "commit"), is(word, "end"), is(word, "prepare"):
		return commits, rest
	case is(word, "abort"):
		return ends, rest
	case is(word, "rollback"):
		if to, _ := keyword(part); is(to, "to") {
			return stays, rest // to a savepoint
		}
		return ends, rest
	}
	return stays, rest
}

func is(word []byte, name string) bool { return bytes.EqualFold(word, []byte(name)) }

// keyword takes the word that p begins with, an empty one if it begins with something else.
func keyword(p []byte) (word, rest []byte) {
	p = bytes.TrimLeft(p, white)
	n := 0
	for n < len(p) && inWord(p[n]) {
		n++
	}
	return p[:n], p[n:]
}

func inWord(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
