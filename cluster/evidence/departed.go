package evidence

import (
	"bytes"
	"cmp"
	"net/netip"
	"time"
)

// departedKey is what claims compete about whose observers are gone: the highest timeline stays.
type departedKey struct {
	shard  Shard
	host   netip.AddrPort
	system uint64
}

func (k departedKey) compare(l departedKey) int {
	return cmp.Or(bytes.Compare(k.shard[:], l.shard[:]), k.host.Compare(l.host), cmp.Compare(k.system, l.system))
}

// depart keeps a claim whose observer is no member any more. A standby that was promoted does not become one again because
// the process that saw it has ended.
func (t *Table) depart(r Record) Outcome {
	if r.Kind != Claimed || !t.kept[r.Shard] {
		return Rejected
	}
	k := departedKey{r.Shard, r.Host, r.Floor.SystemID}
	held := t.departed[k]
	switch {
	case held == nil && len(t.departed) >= t.limits.Departed:
		return Rejected
	case held != nil && cmp.Or(cmp.Compare(r.Floor.Timeline, held.Floor.Timeline), r.Key.compare(held.Key), cmp.Compare(r.Seq, held.Seq)) <= 0:
		return Known
	}
	t.departed[k] = &r
	return News
}

// ordered is what is known of the orders for a shard.
type ordered struct {
	last Record
	at   time.Time // when the latest one was given
}

// order takes a FORGET in: the one with the highest generation, by its name among several, is kept. What was seen before
// any of them is dropped.
func (t *Table) order(r Record) Outcome {
	if t.raise(r.Shard, r.Floor.Generation) == Rejected {
		return Rejected
	}
	o := t.orders[r.Shard]
	if o == nil {
		o = &ordered{}
		t.orders[r.Shard] = o
	}
	outcome := Known
	switch c := cmp.Or(cmp.Compare(r.Floor.Generation, o.last.Floor.Generation), bytes.Compare(r.Order[:], o.last.Order[:])); {
	case c > 0:
		o.last, outcome = r, News
	case c == 0 && r.At.Before(o.last.At):
		o.last.At = r.At // from somebody who knew it sooner
		return Known
	case c == 0:
		return Known
	}
	if r.At.After(o.at) {
		o.at = r.At
	}
	for _, obs := range t.sortedObservers() {
		for e := obs.records.Front(); e != nil; {
			next := e.Next()
			if t.forgotten(*e.Value.(*Record)) {
				t.drop(e)
			}
			e = next
		}
	}
	for _, k := range sortedKeys(t.departed, departedKey.compare) {
		if t.forgotten(*t.departed[k]) {
			delete(t.departed, k)
		}
	}
	return outcome
}

// forgotten reports whether a claim was seen before a FORGET was given.
func (t *Table) forgotten(r Record) bool {
	o := t.orders[r.Shard]
	return r.Kind == Claimed && o != nil && !r.At.After(o.at)
}
