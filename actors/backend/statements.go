package backend

import (
	"bytes"
	"encoding/binary"

	"fencepost/actors/backend/session"
	"fencepost/pgerr"
	"fencepost/wire"
)

// maxEdited bounds an answer that is swallowed: the longest is the description of a statement with as many parameters, or columns, as
// PostgreSQL allows.
const maxEdited = 512 << 10

var parseComplete = []byte{wire.MsgParseComplete, 0, 0, 0, 4}

// edit takes an answer that the client must not get as it is (Cache.Edited), of n bytes, and returns what the client gets for it. n is 0 while it is incomplete.
func (b *Backend) edit(p []byte, seen *Seen) (out []byte, n int, err error) {
	if len(p) < wire.HeaderSize {
		return nil, 0, nil
	}
	n = 1 + int(binary.BigEndian.Uint32(p[1:]))
	if n < wire.HeaderSize || n > maxEdited {
		return nil, n, errDesync
	}
	if len(p) < n {
		return nil, 0, nil
	}
	seen.Boundary = true
	head := b.Tracker.Head()
	if p[0] == wire.MsgErrorResponse {
		body := p[wire.HeaderSize:n]
		out = p[:n]
		if f, _ := wire.ErrorFields(body); string(f.Severity) == pgerr.SeverityError {
			if e := b.Statements.Refusal(string(f.Code)); e != nil {
				out = wire.AppendError(nil, e)
			}
		}
		seen.Failed = true
		return out, n, b.errorResponse(body, seen)
	}
	if head == session.InjectedDescribe {
		b.Statements.Described(p[0], p[wire.HeaderSize:n])
	}
	if !b.Statements.Answered(p[0]) {
		return nil, n, errDesync
	}
	seen.Described = head == session.InjectedDescribe && !b.Statements.Asked()
	if head == session.ParseKnown {
		out = parseComplete
	}
	return out, n, nil
}

// mayConcernStatements looks at the beginning of a command tag.
func mayConcernStatements(f *wire.Fragment) bool {
	return !f.First || !f.Last || bytes.HasPrefix(f.Body, []byte("DEALL")) || bytes.HasPrefix(f.Body, []byte("DISC")) ||
		bytes.HasPrefix(f.Body, []byte("PREP"))
}
