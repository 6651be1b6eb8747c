package prepared

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"fencepost/wire"
)

// Prefix begins the names of statements on servers.
const Prefix = "fencepost_"

// nothing is a name that no server has a statement of: a Close of it succeeds and a Bind of it fails.
const nothing = Prefix + "0"

// taken is a name that a Parse fails for. emptyText is what follows it in a Parse that makes it so.
const (
	taken     = Prefix + "taken"
	emptyText = "\x00\x00\x00"
)

// MaxStoreBytes bounds the texts of all statements of an event loop.
const MaxStoreBytes = 256 << 20

// Statement is a text with its parameter types, shared by all clients and server connections of an event loop that have it.
type Statement struct {
	name    string // on servers
	text    string // what follows the name in a Parse: SQL, a zero byte, the parameter types
	key     string
	refs    int
	version uint32 // servers that have an older one parse it anew
	news    uint64 // hash of the shape that a client was refused for last
}

// size is what the statement counts for in bounds on bytes.
func (s *Statement) size() int { return len(s.text) }

// Store holds the statements of an event loop. The zero value is ready.
type Store struct {
	byKey map[string]*Statement
	bytes int
	last  uint64
	key   []byte
}

// intern finds or makes the statement of a text and holds it once more. env is what its analysis depends on beside the
// text. nil: the store is full.
func (s *Store) intern(env string, text []byte) *Statement {
	s.key = append(append(append(s.key[:0], env...), 0), text...)
	if st := s.byKey[string(s.key)]; st != nil {
		st.refs++
		return st
	}
	if s.bytes+len(text) > MaxStoreBytes {
		return nil
	}
	if s.byKey == nil {
		s.byKey = map[string]*Statement{}
	}
	s.last++
	key := string(s.key)
	st := &Statement{name: Prefix + strconv.FormatUint(s.last, 36), key: key, text: key[len(env)+1:], refs: 1}
	s.byKey[key] = st
	s.bytes += st.size()
	if cap(s.key) > 64<<10 {
		s.key = nil
	}
	return st
}

func (s *Store) release(st *Statement) {
	if st.refs--; st.refs == 0 {
		delete(s.byKey, st.key)
		s.bytes -= st.size()
	}
}

// Parsed are the parts of a Parse's body.
type Parsed struct {
	Name []byte
	Text []byte // SQL, a zero byte, the parameter types
}

// ReadParse reads the body of a Parse; ok is false if it is malformed.
func ReadParse(body []byte) (p Parsed, ok bool) {
	end := bytes.IndexByte(body, 0)
	if end < 0 {
		return p, false
	}
	p.Name, p.Text = body[:end], body[end+1:]
	sql := bytes.IndexByte(p.Text, 0)
	if sql < 0 || len(p.Text) < sql+3 {
		return p, false
	}
	types := int(binary.BigEndian.Uint16(p.Text[sql+1:]))
	return p, len(p.Text) == sql+3+4*types
}

func appendMessage(out []byte, typ byte, body int) []byte {
	return binary.BigEndian.AppendUint32(append(out, typ), uint32(body+4))
}

func appendParse[T string | []byte](out []byte, name string, text T) []byte {
	out = appendMessage(out, wire.MsgParse, len(name)+1+len(text))
	return append(append(append(out, name...), 0), text...)
}

func appendClose[T string | []byte](out []byte, name T) []byte {
	out = appendMessage(out, wire.MsgClose, 1+len(name)+1)
	return append(append(append(out, wire.ObjectStatement), name...), 0)
}

// appendFailing appends a Bind that no server can carry out.
func appendFailing(out []byte) []byte {
	out = appendMessage(out, wire.MsgBind, 1+len(nothing)+1+6)
	return append(append(append(out, 0), nothing...), 0, 0, 0, 0, 0, 0, 0)
}
