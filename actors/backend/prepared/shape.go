package prepared

import (
	"bytes"
	"encoding/binary"

	"fencepost/actors/backend/session"
	"fencepost/wire"
)

// shape is what a statement was when it was parsed: the types of its parameters, and the names and types of its columns. A
// client keeps what it was told of them, and reads and writes values accordingly, as long as it has the statement; on another
// server connection, where the statement is parsed later, they may be others.
//
//	asked -> known: the server has described the statement
//	asked -> lost:  it has not, since something failed before
type shape struct {
	state shapeState
	hash  uint64
}

type shapeState uint8

const (
	asked shapeState = iota
	known
	lost
)

// fits reports whether a client that was given s may use a statement whose shape is on.
func (s *shape) fits(on *shape) bool {
	return s == on || on.state == known && (s.state == lost || s.state == known && s.hash == on.hash)
}

// FNV-1a.
const (
	hashSeed  = 14695981039346656037
	hashPrime = 1099511628211
)

func (s *shape) add(b []byte) {
	for _, x := range b {
		s.hash = (s.hash ^ uint64(x)) * hashPrime
	}
}

// addColumns adds what PostgreSQL compares of a RowDescription (equalRowTypes in tupdesc.c): names, types and type modifiers, not
// where the columns come from.
func (s *shape) addColumns(body []byte) {
	if len(body) < 2 {
		return
	}
	s.add(body[:2])
	for p := body[2:]; ; {
		end := bytes.IndexByte(p, 0)
		if end < 0 || len(p) < end+1+18 {
			return
		}
		s.add(p[:end+1])
		f := p[end+1:]
		s.add(f[6:10])  // type
		s.add(f[12:16]) // type modifier
		p = f[18:]
	}
}

// describe appends a Describe of st, which a Parse before has made to be on the server, and whose shape is s.
func (c *Cache) describe(out []byte, st *Statement, s *shape) []byte {
	c.asked++
	c.sent(session.InjectedDescribe, op{described: s})
	out = appendMessage(out, wire.MsgDescribe, 1+len(st.name)+1)
	return append(append(append(out, wire.ObjectStatement), st.name...), 0)
}

// Described notes what the server says about a statement in answer to our Describe, before Answered is told of it.
func (c *Cache) Described(typ byte, body []byte) {
	open := c.open()
	if len(open) == 0 || open[0].described == nil {
		return
	}
	s := open[0].described
	switch typ {
	case wire.MsgParameterDescription:
		s.hash = hashSeed
		s.add(body)
	case wire.MsgRowDescription:
		s.addColumns(body)
	}
}

// Asked reports whether descriptions are awaited.
func (c *Cache) Asked() bool { return c.asked > 0 }

func appendFlush(out []byte) []byte {
	return binary.BigEndian.AppendUint32(append(out, wire.MsgFlush), 4)
}
