package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fencepost/cluster/evidence"
)

// State is what is known of a member.
type State uint8

// The states.
const (
	Alive State = iota
	Left        // it said goodbye
	Dead        // it does not answer
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Left:
		return "left"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("invalid(%d)", uint8(s))
}

// member is one run of one process.
type member struct {
	meta
	node     node
	state    State
	self     bool
	since    time.Time // of the state
	heard    time.Time // from it, by whatever way
	trip     time.Duration
	clients  uint32
	servers  uint32
	farewell bool
	letters  window        // of it that arrived
	streams  chan struct{} // one token for each letter to it that is being written
	cancels  int           // for it that it has not dealt with yet
	asked    uint64        // the digest of its settings that it was asked about last
	differs  []string      // settings in which it differs
}

// How long, and how many, members that are gone are remembered: to join them again, and for people.
const (
	rememberGone = time.Hour
	maxGone      = 256
)

// roster is who is and was in the fleet, this member included. The actor alone uses it.
type roster struct {
	byName map[string]*member
	byBoot map[evidence.Boot]*member
	twin   time.Duration // how long two of one name may be alive
}

func newRoster(twin time.Duration) *roster {
	return &roster{make(map[string]*member), make(map[evidence.Boot]*member), twin}
}

// seen notes that a node is alive, and returns its member and whether that is new.
func (r *roster) seen(now time.Time, n node, m meta) (_ *member, fresh bool) {
	old := r.byName[n.name]
	if old != nil && old.Boot != m.Boot { // a node whose metadata changed its mind
		r.remove(old)
		old = nil
	}
	if old == nil {
		old = &member{state: Dead, streams: make(chan struct{}, lettersAtOnce)}
		r.byName[n.name] = old
	}
	fresh = old.state != Alive
	if fresh {
		old.since, old.farewell = now, false
	}
	old.meta, old.node, old.state, old.heard = m, n, Alive, now
	r.byBoot[m.Boot] = old
	for _, other := range r.sorted() { // an earlier run of the same process
		if other != old && other.state != Alive && other.Member == m.Member && other.node.addr == n.addr {
			r.remove(other)
		}
	}
	return old, fresh
}

func (r *roster) gone(now time.Time, name string) *member {
	m := r.byName[name]
	if m == nil || m.state != Alive || m.self {
		return nil
	}
	m.state, m.since = Dead, now
	if m.farewell {
		m.state = Left
	}
	return m
}

func (r *roster) remove(m *member) {
	delete(r.byName, m.node.name)
	if r.byBoot[m.Boot] == m {
		delete(r.byBoot, m.Boot)
	}
}

// expire forgets who is gone for long.
func (r *roster) expire(now time.Time) {
	var gone []*member
	for _, m := range r.byName {
		if m.state != Alive {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int { return a.since.Compare(b.since) })
	for i, m := range gone {
		if len(gone)-i > maxGone || now.Sub(m.since) > rememberGone {
			r.remove(m)
		}
	}
}

// sorted are all, by name, those that are alive first.
func (r *roster) sorted() []*member {
	all := make([]*member, 0, len(r.byName))
	for _, m := range r.byName {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.state, b.state), cmp.Compare(a.node.name, b.node.name))
	})
	return all
}

// others are the members that are alive, without this one.
func (r *roster) others() []*member {
	return slices.DeleteFunc(r.sorted(), func(m *member) bool { return m.self || m.state != Alive })
}

// dead are the addresses of members that are alive, and of those that did not say goodbye.
func (r *roster) dead() (alive, dead []netip.AddrPort) {
	for _, m := range r.sorted() {
		switch {
		case m.state == Alive:
			alive = append(alive, m.node.addr)
		case m.state == Dead:
			dead = append(dead, m.node.addr)
		}
	}
	return alive, dead
}

// name of an observer, for people.
func (r *roster) name(b evidence.Boot) string {
	if m := r.byBoot[b]; m != nil {
		return m.Member
	}
	return b.String()[:8]
}

// byPeerID is the member a cancel goes to: the only one with that number; of two runs of one process the later one. nil if
// there is none, or if it is not clear which.
func (r *roster) byPeerID(id uint32) (found *member, ambiguous bool) {
	for _, m := range r.sorted() {
		switch {
		case m.state != Alive || m.PeerID != id || id == 0:
		case found == nil:
			found = m
		case found.Member != m.Member:
			return nil, true
		case m.since.After(found.since):
			found = m
		}
	}
	return found, false
}

// twins are the problems of members that should not be two: with one peer_id, or with one name for longer than a restart
// takes.
func (r *roster) twins(now time.Time) []string {
	var problems []string
	all := slices.DeleteFunc(r.sorted(), func(m *member) bool { return m.state != Alive })
	for i, a := range all {
		for _, b := range all[i+1:] {
			switch {
			case a.Member == b.Member && now.Sub(a.since) >= r.twin && now.Sub(b.since) >= r.twin:
				problems = append(problems, fmt.Sprintf("two members are named %s: at %s and at %s", a.Member, a.node.addr, b.node.addr))
			case a.Member != b.Member && a.PeerID == b.PeerID && a.PeerID != 0:
				problems = append(problems, fmt.Sprintf("two members have peer_id %d: %s and %s; cancels for it are dropped", a.PeerID, a.Member, b.Member))
			}
		}
	}
	return problems
}

func (r *roster) alive() (n int) {
	for _, m := range r.byName {
		if m.state == Alive {
			n++
		}
	}
	return n
}

func compareRows(a, b EvidenceRow) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Boot, b.Boot))
}

func sortedNames(m map[string]uint64) []string { return slices.Sorted(maps.Keys(m)) }
