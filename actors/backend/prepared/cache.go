package prepared

import (
	"fencepost/actors/backend/session"
	"fencepost/pgerr"
)

// MaxCacheBytes bounds the texts of the statements of one server connection.
const MaxCacheBytes = 8 << 20

// maxSpareOps is the room for ops that a connection keeps when none is open: a deep pipeline is rare.
const maxSpareOps = 64

// Cache is what one server connection has: its statements under names of ours, least recently used first out. Tracker must
// be set before the first use; it and the cache are told of the same messages.
type Cache struct {
	Tracker *session.Tracker
	// Parses and Evictions count what was sent to the server.
	Parses, Evictions uint64

	store          *Store
	entries        map[*Statement]*entry
	newest, oldest *entry
	bytes          int
	ops            []op // those before head are over
	head           int
	used           []*Statement // bound since the server was at rest, as far as it is kept
	sqlNames       bool
	asked          int    // Describes of ours that are unanswered
	rests          uint32 // how often the server was at rest
}

type entry struct {
	st           *Statement
	version      uint32
	shape        *shape
	parsed       uint32 // rests when it was parsed
	newer, older *entry
}

// op is a change that was sent and not answered.
type op struct {
	batch uint32
	// Of the server connection: parsed is a statement it has when this succeeds, closed one that it has no more.
	parsed, closed *Statement
	version        uint32
	shape          *shape // … of closed
	described      *shape // … that is asked for
	// Of the client: name means now instead of was; unnamed: it is a Parse of the unnamed statement.
	names    *Names
	name     string
	now, was owned
	unnamed  bool
	change   uint32
	prior    unnamed
	carried  bool // … sent by us, of what the client parsed on another server connection
	// refusal takes the place of the server's error, if that has the SQLSTATE code or code is empty.
	refusal *pgerr.Error
	code    string
}

// open are the ops that are not answered, oldest first.
func (c *Cache) open() []op { return c.ops[c.head:] }

func (c *Cache) sent(mark byte, o op) {
	o.batch = c.Tracker.Batch()
	if len(c.ops) == cap(c.ops) && c.head > len(c.ops)/2 { // no growth while at most half of it is in use
		n := copy(c.ops, c.open())
		clear(c.ops[n:])
		c.ops, c.head = c.ops[:n], 0
	}
	c.ops = append(c.ops, o)
	c.Tracker.SentMarked(mark)
}

// Unsure reports whether something was sent in an earlier batch of which it is not known whether it has happened.
func (c *Cache) Unsure() bool { return len(c.open()) > 0 && c.open()[0].batch != c.Tracker.Batch() }

// SQLNames reports whether the server has statements made by SQL's PREPARE.
func (c *Cache) SQLNames() bool { return c.sqlNames }

// Len is the number of statements the server has under names of ours.
func (c *Cache) Len() int { return len(c.entries) }

// Rested notes that the server is at rest: what was used before worked.
func (c *Cache) Rested() {
	c.rests++
	c.forget()
}

func (c *Cache) forget() {
	clear(c.used)
	c.used = c.used[:0]
}

// touch notes that st was used.
func (c *Cache) touch(st *Statement) {
	if len(c.used) < 64 {
		c.used = append(c.used, st)
	}
}

// done notes that the oldest op has happened.
func (c *Cache) done() {
	o := c.pop()
	if o.unnamed {
		o.names.pending--
	}
	if o.described != nil {
		c.asked--
		o.described.state = known
	}
	c.settle(&o)
}

// failed notes that the n oldest ops have not happened: the first because it failed, if first, the others because the
// server skips them.
func (c *Cache) failed(n int, first bool) {
	open := c.open()
	n = min(n, len(open))
	for i := n - 1; i >= 0; i-- {
		c.undo(&open[i], first && i == 0, open[i+1:])
	}
	for range n {
		o := c.pop()
		c.settle(&o)
	}
}

func (c *Cache) undo(o *op, failed bool, later []op) {
	switch {
	case o.parsed != nil:
		c.remove(o.parsed)
	case o.closed != nil && c.entries[o.closed] == nil:
		c.add(o.closed, o.version, o.shape)
	case o.described != nil:
		c.asked--
		o.described.state = lost
	}
	switch {
	case o.names == nil:
	case o.carried:
		o.names.pending--
		o.names.here = false
	case o.unnamed:
		o.names.unnamedUndone(o, failed, later)
	default:
		o.names.set(o.name, o.was)
	}
}

func (c *Cache) pop() op {
	if len(c.open()) == 0 {
		return op{}
	}
	o := c.ops[c.head]
	c.ops[c.head] = op{}
	c.head++
	if c.head == len(c.ops) {
		c.ops, c.head = c.ops[:0], 0
		if cap(c.ops) > maxSpareOps {
			c.ops = nil
		}
	}
	return o
}

// settle lets go of what an op held.
func (c *Cache) settle(o *op) {
	for _, st := range [...]*Statement{o.parsed, o.closed, o.now.st, o.was.st} {
		if st != nil {
			c.store.release(st)
		}
	}
}

// Refusal is what takes the place of an error with the SQLSTATE code that answers the oldest op; nil if nothing does.
func (c *Cache) Refusal(code string) *pgerr.Error {
	open := c.open()
	if len(open) == 0 || open[0].code != "" && open[0].code != code {
		return nil
	}
	return open[0].refusal
}

// changed notes that a statement could not be used as the server has it: whatever was used since the server was at rest is
// parsed anew before it is used again, everywhere.
func (c *Cache) changed() {
	for _, st := range c.used {
		st.version++
	}
	c.forget()
}

// clear notes that all statements of the server are gone: DEALLOCATE ALL, DISCARD ALL. What was sent later stays.
func (c *Cache) clear() {
	c.sqlNames = false
	for e := c.oldest; e != nil; {
		next := e.newer
		if !c.awaited(e.st) {
			c.remove(e.st)
		}
		e = next
	}
}

func (c *Cache) awaited(st *Statement) bool {
	open := c.open()
	for i := range open {
		if open[i].parsed == st {
			return true
		}
	}
	return false
}

// Drop lets go of everything: the connection is gone, or nothing certain is known of it any more.
func (c *Cache) Drop() {
	for len(c.open()) > 0 {
		o := c.pop()
		c.settle(&o)
	}
	for c.oldest != nil {
		c.remove(c.oldest.st)
	}
	c.used, c.asked = nil, 0
}

func (c *Cache) add(st *Statement, version uint32, s *shape) {
	if c.entries == nil {
		c.entries = map[*Statement]*entry{}
	}
	e := &entry{st: st, version: version, shape: s, parsed: c.rests}
	c.entries[st] = e
	st.refs++
	c.bytes += st.size()
	c.link(e)
}

func (c *Cache) remove(st *Statement) {
	e := c.entries[st]
	if e == nil {
		return
	}
	delete(c.entries, st)
	c.bytes -= st.size()
	c.unlink(e)
	c.store.release(st)
}

func (c *Cache) link(e *entry) {
	e.older, e.newer = c.newest, nil
	if c.newest != nil {
		c.newest.newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
}

func (c *Cache) unlink(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
}
