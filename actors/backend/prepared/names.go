package prepared

import (
	"maps"
	"slices"

	"fencepost/actors/backend/session"
	"fencepost/pgerr"
)

// Bounds of one client.
const (
	MaxStatements   = 16384    // names at a time
	MaxClientBytes  = 16 << 20 // their names and texts
	maxSpareText    = 2 << 10  // memory for unnamed texts that a client keeps while it has no unnamed statement
	maxUnnamedBytes = 16 << 10 // text of the unnamed statement that goes along to other server connections
)

// Names are what one client has: its named statements, and its unnamed one.
type Names struct {
	store  *Store
	byName map[string]owned
	bytes  int

	// The unnamed statement, as it is if what was sent is not undone. here: the server connection held now has it. pending
	// ops about it are unanswered, the last of them of batch. Each change has a number, change is the last one's.
	unnamed
	here    bool
	pending int
	batch   uint32
	change  uint32
	before  []byte // memory for the text before an only pending Parse

	clearing bool // a Query was sent that may drop all statements
	gone     bool // the client is gone: nothing is undone any more
}

// unnamed is an unnamed statement: there, if exists, and text is it, if kept.
type unnamed struct {
	text         []byte
	exists, kept bool
}

// NewNames are those of a client that has none. Statements are shared with all that use store.
func NewNames(store *Store) *Names { return &Names{store: store} }

// Len is the number of named statements.
func (n *Names) Len() int { return len(n.byName) }

// Granted notes that another server connection is held: its unnamed statement is somebody else's.
func (n *Names) Granted() { n.here = false }

// Queried notes a Query, which drops the unnamed statement.
func (n *Names) Queried() {
	n.exists, n.kept, n.here = false, false, false
	if n.pending == 0 && cap(n.text)+cap(n.before) > maxSpareText {
		n.text, n.before = nil, nil
	}
	n.change++
}

// Drop forgets everything: the client is gone.
func (n *Names) Drop() {
	n.Cleared(nil)
	n.Queried()
	n.unnamed, n.before, n.gone = unnamed{}, nil, true
}

// Cleared notes that all named statements are gone: DEALLOCATE ALL, DISCARD ALL. What was sent later to c stays.
func (n *Names) Cleared(c *Cache) {
	if len(n.byName) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.byName)) {
		if c == nil || !c.named(name) {
			n.set(name, owned{})
		}
	}
}

func (c *Cache) named(name string) bool {
	open := c.open()
	for i := range open {
		if open[i].now.st != nil && open[i].name == name {
			return true
		}
	}
	return false
}

// set makes name mean o, nothing if its st is nil.
func (n *Names) set(name string, o owned) {
	st := o.st
	if was := n.byName[name].st; was != nil {
		delete(n.byName, name)
		n.bytes -= len(name) + was.size()
		n.store.release(was)
	}
	if st != nil && !n.gone {
		if n.byName == nil {
			n.byName = map[string]owned{}
		}
		st.refs++
		n.byName[name] = o
		n.bytes += len(name) + st.size()
	}
}

// KeepsUnnamed reports whether the text of an unnamed statement is kept if its Parse has a body of this length.
func KeepsUnnamed(body int) bool { return body <= maxUnnamedBytes }

// ParseUnnamed notes that a Parse of the unnamed statement is sent to c as it is. text nil: it is too long to be kept.
func (n *Names) ParseUnnamed(c *Cache, text []byte) {
	prior := n.prior()
	n.text = append(n.text[:0], text...)
	n.exists, n.kept, n.here = true, text != nil, true
	n.sentUnnamed(c, session.ClientParse, op{prior: prior})
}

// prior is the unnamed statement, to go back to. Its memory is the op's until that is answered.
func (n *Names) prior() unnamed {
	p := n.unnamed
	if n.pending == 0 {
		n.text, n.before = n.before, n.text
	} else {
		n.text = nil
	}
	return p
}

func (n *Names) sentUnnamed(c *Cache, mark byte, o op) {
	n.pending++
	n.change++
	n.batch = c.Tracker.Batch()
	o.names, o.unnamed, o.change = n, true, n.change
	c.sent(mark, o)
}

// unnamedUndone notes that an op about the unnamed statement has not happened: what was there before is there again, if
// nothing later has changed it, or is what the next op has replaced. A Parse that failed has dropped what was there before,
// one that was skipped has not.
func (n *Names) unnamedUndone(o *op, failed bool, later []op) {
	n.pending--
	if failed {
		o.prior = unnamed{}
	}
	if o.change == n.change {
		n.unnamed, n.here, n.before = o.prior, false, nil // o.prior's text may be what before was
		n.change = o.change - 1
		return
	}
	for i := range later {
		if l := &later[i]; l.names == n && l.unnamed && !l.carried {
			l.prior = o.prior
			return
		}
	}
}

// MayClear notes a Query that may drop all statements.
func (n *Names) MayClear() { n.clearing = true }

// Unsure reports whether it is not known what the client's names mean: something sent to c before has not been answered that
// may change it.
func (n *Names) Unsure(c *Cache) bool {
	n.clearing = n.clearing && c.Tracker.QueryOpen()
	return n.clearing || c.Unsure()
}

// UnnamedHere reports whether the server connection has the client's unnamed statement.
func (n *Names) UnnamedHere() bool { return n.here }

// UnnamedUnsure reports whether it is not known if the unnamed statement is the one that was sent.
func (n *Names) UnnamedUnsure(c *Cache) bool { return n.pending > 0 && n.batch != c.Tracker.Batch() }

// NeedUnnamed appends what must be sent to c before a Bind or Describe of the unnamed statement. own is false if the client
// has none that could be given to this server connection: then the server will say so.
func (n *Names) NeedUnnamed(out []byte, c *Cache) (_ []byte, own bool) {
	switch {
	case n.here:
		return out, true
	case n.exists && n.kept:
		n.here = true
		n.pending++
		n.batch = c.Tracker.Batch()
		c.sent(session.InjectedParse, op{names: n, unnamed: true, carried: true})
		return appendParse(out, "", n.text), true
	}
	c.sent(session.InjectedClose, op{})
	return appendClose(out, ""), false
}

// Parse appends what a client's Parse of a named statement becomes: a Parse under our name, or a Close of nothing if the
// server has the statement and its answer to a Parse is known.
func (n *Names) Parse(out []byte, c *Cache, p Parsed, env string, limit int) []byte {
	if n.Has(p.Name) {
		// The server finds out what is wrong with the new text; if nothing is, the name is taken.
		c.sent(session.InjectedClose, op{})
		c.sent(session.InjectedParse, op{})
		c.sent(session.Refused, op{refusal: pgerr.DuplicateStatement(string(p.Name)), code: pgerr.DuplicatePreparedStatement})
		return appendParse(appendParse(appendClose(out, taken), taken, emptyText), taken, p.Text)
	}
	if len(n.byName) >= MaxStatements || n.bytes+len(p.Name)+len(p.Text) > MaxClientBytes {
		return refuse(out, c, pgerr.TooManyStatements())
	}
	st := n.store.intern(env, p.Text)
	if st == nil {
		return refuse(out, c, pgerr.TooManyStatements())
	}
	defer n.store.release(st)
	out, fresh := c.makeRoom(out, n.store, st, limit)
	o := op{names: n, name: string(p.Name), now: owned{st: st}}
	st.refs++ // the op's
	if !fresh && c.mayHaveFailed() {
		out, fresh = c.close(out, c.entries[st]), true
	}
	if fresh {
		po := c.parse(st)
		o.parsed, o.version = po.parsed, po.version
		o.now.shape = c.entries[st].shape
		c.sent(session.ClientParse, o)
		out = appendParse(out, st.name, p.Text)
		out = c.describe(out, st, o.now.shape)
	} else {
		o.now.shape = c.entries[st].shape
		c.sent(session.ParseKnown, o)
		out = appendClose(out, nothing)
	}
	n.set(o.name, o.now)
	return out
}

// mayHaveFailed reports whether the server may be in a failed transaction block, in which it refuses a Parse.
func (c *Cache) mayHaveFailed() bool { return !c.Tracker.Succeeding() }

func refuse(out []byte, c *Cache, e *pgerr.Error) []byte {
	c.sent(session.Refused, op{refusal: e})
	return appendFailing(out)
}

// Need appends what must be sent to c before a message that names a statement, and the name for the server in it.
func (n *Names) Need(out []byte, c *Cache, name []byte, limit int) (_ []byte, server string, v Verdict) {
	o, own := n.byName[string(name)]
	if !own {
		c.sent(session.InjectedClose, op{})
		return appendClose(out, name), "", Unowned
	}
	out, v = c.need(out, n.store, o, limit)
	switch v {
	case Ready:
		c.touch(o.st)
	case Changed:
		return out, nothing, v
	}
	return out, o.st.name, v
}

// Refuse appends what fails in place of a client's message, which must be left out, with e for the client.
func (n *Names) Refuse(out []byte, c *Cache, e *pgerr.Error) []byte { return refuse(out, c, e) }

// Has reports whether the client has a statement of that name.
func (n *Names) Has(name []byte) bool { return n.byName[string(name)].st != nil }

// MayHoldUnnamed reports whether a server connection of which nothing is certain but that it was not given away has the
// client's own unnamed statement, or none.
func (n *Names) MayHoldUnnamed() bool { return n.here && n.pending == 0 }

// Close appends what a client's Close of a statement becomes: other clients may have the same, so the server's stays.
func (n *Names) Close(out []byte, c *Cache, name []byte) []byte {
	o := op{}
	if was := n.byName[string(name)]; was.st != nil {
		o = op{names: n, name: string(name), was: was}
		was.st.refs++ // the op's
		n.set(o.name, owned{})
	}
	if c.store == nil {
		c.store = n.store
	}
	c.sent(session.ClientClose, o)
	return appendClose(out, nothing)
}

// CloseUnnamed notes that a Close of the unnamed statement is sent as it is.
func (n *Names) CloseUnnamed(c *Cache) {
	prior := n.prior()
	n.exists, n.kept, n.here = false, false, false
	n.sentUnnamed(c, session.ClientClose, op{prior: prior})
}
