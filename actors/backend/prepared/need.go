package prepared

import (
	"fencepost/actors/backend/session"
	"fencepost/pgerr"
)

// owned is a client's named statement, with the shape that the client was told.
type owned struct {
	st    *Statement
	shape *shape
}

// Verdict says whether a message that names a statement may be sent.
type Verdict uint8

// The verdicts.
const (
	Unowned Verdict = iota // the client has no such statement: the server will say so
	Ready                  // behind what was appended
	Wait                   // not before the server has described the statement (Cache.Asked)
	Changed                // under a name that nobody has: the client's statement is out of date, and hears so. It is on record as sent
)

// need appends what makes the server have a client's statement as the client knows it. At most limit statements stay beside it.
// What was parsed at another time may have another shape: then it is parsed anew, and if that does not help the client's is
// out of date.
func (c *Cache) need(out []byte, store *Store, o owned, limit int) ([]byte, Verdict) {
	e := c.entries[o.st]
	if e != nil && e.version == o.st.version {
		switch {
		case o.shape.fits(e.shape):
			c.unlink(e)
			c.link(e)
			return out, Ready
		case c.asked > 0 && (e.shape.state == asked || o.shape.state == asked):
			return appendFlush(out), Wait
		case e.shape.state == known && e.parsed == c.rests:
			e.changed()
			c.sent(session.Refused, op{refusal: pgerr.ResultTypeChanged(), code: pgerr.InvalidStatementName})
			return out, Changed
		}
		out = c.close(out, e)
	}
	out, _ = c.makeRoom(out, store, o.st, limit)
	c.sent(session.InjectedParse, c.parse(o.st))
	out = appendParse(out, o.st.name, o.st.text)
	out = c.describe(out, o.st, c.entries[o.st].shape)
	return appendFlush(out), Wait
}

// makeRoom appends the Closes before a Parse of st; fresh is false if the server has st already.
func (c *Cache) makeRoom(out []byte, store *Store, st *Statement, limit int) (_ []byte, fresh bool) {
	c.store = store
	if e := c.entries[st]; e != nil {
		c.unlink(e)
		c.link(e)
		if e.version == st.version {
			return out, false
		}
		out = c.close(out, e)
	}
	for c.oldest != nil && (len(c.entries) >= limit || c.bytes+st.size() > MaxCacheBytes) {
		c.Evictions++
		out = c.close(out, c.oldest)
	}
	return out, true
}

func (c *Cache) close(out []byte, e *entry) []byte {
	st := e.st
	c.sent(session.InjectedClose, op{closed: st, version: e.version, shape: e.shape})
	st.refs++ // the op's
	c.remove(st)
	return appendClose(out, st.name)
}

// parse is the op of a Parse of st, from now on one of the server's.
func (c *Cache) parse(st *Statement) op {
	c.Parses++
	st.refs++ // the op's
	c.add(st, st.version, new(shape))
	return op{parsed: st, version: st.version}
}

// changed notes that the server describes e's statement in another way than a client knows it: other server connections, which may
// still know it as that client does, parse it anew.
func (e *entry) changed() {
	if e.st.news != e.shape.hash {
		e.st.news = e.shape.hash
		e.st.version++
		e.version = e.st.version
	}
}
