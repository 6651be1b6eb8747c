package evidence

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// Limits bound a Table. Zero fields: DefaultLimits.
type Limits struct {
	Total       int           // records with an observer
	PerObserver int           // records of one observer
	Strangers   int           // observers that are not members (yet, or any more)
	Shards      int           // shards whose generation is kept, beside those of Keep
	Stranger    time.Duration // how long records of an observer that is not a member, and silent, are kept
	MaxAge      time.Duration // of an Observed
	Departed    int           // claims of such observers that are kept: those about shards of Keep
	Retired     int           // observers remembered after their records went, so that old packets do not bring them back
}

// DefaultLimits are enough for a fleet of 50 with 100 hosts each.
var DefaultLimits = Limits{Total: 16384, PerObserver: 1024, Strangers: 64, Shards: 4096, Stranger: time.Minute,
	MaxAge: 10 * time.Minute, Departed: 4096, Retired: 4096}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	return Limits{
		Total: cmp.Or(l.Total, d.Total), PerObserver: cmp.Or(l.PerObserver, d.PerObserver), Strangers: cmp.Or(l.Strangers, d.Strangers),
		Shards: cmp.Or(l.Shards, d.Shards), Stranger: cmp.Or(l.Stranger, d.Stranger), MaxAge: cmp.Or(l.MaxAge, d.MaxAge),
		Departed: cmp.Or(l.Departed, d.Departed), Retired: cmp.Or(l.Retired, d.Retired),
	}
}

// Outcome is what became of a record in Merge.
type Outcome uint8

// The outcomes.
const (
	News     Outcome = iota // the register has a new value: tell it on
	Known                   // the register has this value or a later one
	Rejected                // seen before FORGET, of an observer that is gone, too old, or beyond a limit
)

// Table is the join of all records. What an observer claimed about shards of Keep outlives it: of each host and cluster the
// claim with the highest timeline, until FORGET. The zero value is not usable; see NewTable. It is not safe for concurrent use.
type Table struct {
	limits      Limits
	records     map[Key]*list.Element // of *Record, in the observer's list
	observers   map[Boot]*observer
	strangers   *list.List // of *observer, the one that has been silent for longest in front
	generations map[Shard]uint64
	orders      map[Shard]*ordered
	kept        map[Shard]bool // there is always room for their generations, and claims about them outlive their observers
	departed    map[departedKey]*Record
	retired     map[Boot]bool
	retiredList *list.List // of Boot, oldest in front
}

// observer is who wrote records.
type observer struct {
	boot     Boot
	member   bool
	since    time.Time     // when it became a stranger, or had something new as one
	stranger *list.Element // nil for a member
	records  *list.List    // of *Record, the one that changed longest ago in front
}

// NewTable makes an empty table.
func NewTable(limits Limits) *Table {
	return &Table{
		limits: limits.withDefaults(), records: make(map[Key]*list.Element), observers: make(map[Boot]*observer), strangers: list.New(),
		generations: make(map[Shard]uint64), orders: make(map[Shard]*ordered), kept: make(map[Shard]bool),
		departed: make(map[departedKey]*Record), retired: make(map[Boot]bool), retiredList: list.New(),
	}
}

// Merge takes a record in. Merging is idempotent, and as long as no limit is reached commutative and associative.
func (t *Table) Merge(now time.Time, r Record) Outcome {
	switch r.Kind {
	case Generation:
		return t.raise(r.Shard, r.Floor.Generation)
	case Claimed:
		if t.raise(r.Shard, r.Floor.Generation) == Rejected || t.forgotten(r) {
			return Rejected
		}
	case Ordered:
		return t.order(r)
	case Observed:
		if now.Sub(r.At) > t.limits.MaxAge {
			return Rejected
		}
	}
	if e, ok := t.records[r.Key]; ok {
		held := e.Value.(*Record)
		switch {
		case later(r, *held) <= 0:
			return Known
		case r.Seq == held.Seq && r.Floor == held.Floor && r.Observation == held.Observation && r.Seat == held.Seat:
			held.At = r.At // the same value, from somebody who knew it sooner
			return Known
		}
		*held = r
		o := t.observers[r.Observer]
		o.records.MoveToBack(e)
		t.talks(now, o)
		return News
	}
	return t.add(now, r)
}

func (t *Table) add(now time.Time, r Record) Outcome {
	o := t.observers[r.Observer]
	if o == nil {
		if t.retired[r.Observer] {
			return t.depart(r)
		}
		o = t.observe(now, r.Observer)
	}
	if o.records.Len() >= t.limits.PerObserver {
		t.drop(o.records.Front())
	}
	for len(t.records) >= t.limits.Total {
		if s := t.strangers.Front(); s != nil && s.Value.(*observer) != o {
			t.forget(s.Value.(*observer))
		} else if o.records.Len() > 0 {
			t.drop(o.records.Front())
		} else {
			return Rejected
		}
	}
	t.records[r.Key] = o.records.PushBack(&r)
	t.talks(now, o)
	return News
}

// talks notes that an observer had something new. One that is no member, because it is not heard by those who say who is, is
// forgotten only when it has been silent for a while.
func (t *Table) talks(now time.Time, o *observer) {
	if o.stranger != nil {
		o.since = now
		t.strangers.MoveToBack(o.stranger)
	}
}

// observe begins the records of an observer, which is a stranger until Joined.
func (t *Table) observe(now time.Time, b Boot) *observer {
	if t.strangers.Len() >= t.limits.Strangers {
		t.forget(t.strangers.Front().Value.(*observer))
	}
	o := &observer{boot: b, since: now, records: list.New()}
	o.stranger = t.strangers.PushBack(o)
	t.observers[b] = o
	return o
}

// Keep says that a shard is one of this process's own: its generation is kept however many others are heard of, and what
// was claimed about it, whoever is gone.
func (t *Table) Keep(s Shard) { t.kept[s] = true }

// raise takes a shard's generation in. One that is further ahead than any number of FORGETs explains is not believed, so
// that nobody can use the numbers up.
func (t *Table) raise(s Shard, generation uint64) Outcome {
	known, ok := t.generations[s]
	switch {
	case generation <= known:
		return Known
	case generation-known > maxJump, !ok && !t.kept[s] && len(t.generations) >= t.limits.Shards:
		return Rejected
	}
	t.generations[s] = generation
	return News
}

const maxJump = 1 << 20

func (t *Table) drop(e *list.Element) {
	r := e.Value.(*Record)
	t.observers[r.Observer].records.Remove(e)
	delete(t.records, r.Key)
}

func (t *Table) forget(o *observer) {
	for o.records.Len() > 0 {
		t.depart(*o.records.Front().Value.(*Record))
		t.drop(o.records.Front())
	}
	if o.stranger != nil {
		t.strangers.Remove(o.stranger)
	}
	delete(t.observers, o.boot)
}

// Joined says that the process is a member.
func (t *Table) Joined(b Boot) {
	if t.retired[b] {
		delete(t.retired, b)
		for e := t.retiredList.Front(); e != nil; e = e.Next() {
			if e.Value.(Boot) == b {
				t.retiredList.Remove(e)
				break
			}
		}
	}
	o := t.observers[b]
	if o == nil {
		o = &observer{boot: b, records: list.New()}
		t.observers[b] = o
	}
	if o.stranger != nil {
		t.strangers.Remove(o.stranger)
		o.stranger = nil
	}
	o.member = true
}

// Left says that the process is no member any more, for whatever reason. Its records stay for a while.
func (t *Table) Left(now time.Time, b Boot) {
	if o := t.observers[b]; o != nil && o.member {
		o.member, o.since = false, now
		o.stranger = t.strangers.PushBack(o)
	}
}

// Expire drops the records of observers that have not been members for a while, and observations that are too old.
func (t *Table) Expire(now time.Time) (dropped int) {
	before := len(t.records)
	for e := t.strangers.Front(); e != nil; {
		next, o := e.Next(), e.Value.(*observer)
		if now.Sub(o.since) >= t.limits.Stranger {
			t.forget(o)
			t.retire(o.boot)
		}
		e = next
	}
	for _, o := range t.sortedObservers() {
		for e := o.records.Front(); e != nil; {
			next := e.Next()
			if r := e.Value.(*Record); r.Kind == Observed && now.Sub(r.At) > t.limits.MaxAge {
				t.drop(e)
			}
			e = next
		}
	}
	return before - len(t.records)
}

func (t *Table) retire(b Boot) {
	if t.retired[b] {
		return
	}
	if t.retiredList.Len() >= t.limits.Retired {
		delete(t.retired, t.retiredList.Remove(t.retiredList.Front()).(Boot))
	}
	t.retired[b] = true
	t.retiredList.PushBack(b)
}

func (t *Table) sortedObservers() []*observer {
	boots := sortedKeys(t.observers, func(a, b Boot) int { return slices.Compare(a[:], b[:]) })
	all := make([]*observer, len(boots))
	for i, b := range boots {
		all[i] = t.observers[b]
	}
	return all
}

// Get returns a register's value. Of a Generation the key needs no more than Kind and Shard.
func (t *Table) Get(k Key) (Record, bool) {
	if k.Kind == Generation {
		g, ok := t.generations[k.Shard]
		r, sound := NewGeneration(k.Shard, g)
		return r, ok && sound
	}
	if k.Kind == Ordered {
		if o := t.orders[k.Shard]; o != nil {
			return o.last, true
		}
		return Record{}, false
	}
	if e, ok := t.records[k]; ok {
		return *e.Value.(*Record), true
	}
	for _, d := range sortedKeys(t.departed, departedKey.compare) {
		if r := t.departed[d]; r.Key == k {
			return *r, true
		}
	}
	return Record{}, false
}

// GenerationOf is the highest generation heard of for a shard.
func (t *Table) GenerationOf(s Shard) uint64 { return t.generations[s] }

// Len is how many records there are, generations and orders not counted, and of how many observers, members or not.
func (t *Table) Len() (records, observers int) {
	return len(t.records) + len(t.departed), len(t.observers)
}

// All returns every record, generations and orders first, in a stable order.
func (t *Table) All() []Record {
	shards := sortedKeys(t.generations, func(a, b Shard) int { return slices.Compare(a[:], b[:]) })
	all := make([]Record, 0, len(shards)+len(t.records))
	for _, s := range shards {
		if r, ok := t.Get(Key{Kind: Generation, Shard: s}); ok {
			all = append(all, r)
		}
		if r, ok := t.Get(Key{Kind: Ordered, Shard: s}); ok {
			all = append(all, r)
		}
	}
	for _, k := range sortedKeys(t.departed, departedKey.compare) {
		all = append(all, *t.departed[k])
	}
	for _, k := range sortedKeys(t.records, Key.compare) {
		all = append(all, *t.records[k].Value.(*Record))
	}
	return all
}

// Of returns the records of one shard.
func (t *Table) Of(s Shard) []Record {
	return slices.DeleteFunc(t.All(), func(r Record) bool { return r.Shard != s })
}
