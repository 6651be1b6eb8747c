package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
	messages window        // of it that arrived
	streams  chan struct{} // one token for each message to it that is being written
	cancels  int           // for it that it has not dealt with yet
	asked    uint64        // the digest of its settings that it was asked about last
	differs  []string      // settings in which it differs
}

// How long, and how many, members that are gone are remembered: to join them again, and for people.
const (
	rememberGone = time.Hour
	maxGone      = 256
	maxUnheard   = 16 // of them that evidence is still sent to
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
	if old != nil && old.Boot != m.Boot {
		r.remove(old)
		old = nil
	}
	if old == nil {
		old = &member{state: Dead, streams: make(chan struct{}, messagesAtOnce)}
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

// reached is where the other members that are alive are reached.
func (r *roster) reached() (addrs []netip.AddrPort) {
	for _, m := range r.others() {
		addrs = append(addrs, m.node.addr)
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}

// unheard are the members that are thought dead, the last ones that were heard of.
func (r *roster) unheard() []*member {
	all := slices.DeleteFunc(r.sorted(), func(m *member) bool { return m.state != Dead })
	slices.SortStableFunc(all, func(a, b *member) int { return b.since.Compare(a.since) })
	return all[:min(len(all), maxUnheard)]
}

// addresses are those of members that are alive, and of those that did not say goodbye.
func (r *roster) addresses() (alive, dead []netip.AddrPort) {
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

// twins are the problems of members that should not be several: with one peer_id, or with one name for longer than a
// restart takes. There is one problem for each number or name, however many have it.
func (r *roster) twins(now time.Time) []string {
	named, numbered := make(map[string][]string), make(map[uint32][]string)
	for _, m := range r.sorted() {
		if m.state != Alive {
			continue
		}
		if now.Sub(m.since) >= r.twin {
			named[m.Member] = append(named[m.Member], m.node.addr.String())
		}
		if m.PeerID != 0 && !slices.Contains(numbered[m.PeerID], m.Member) {
			numbered[m.PeerID] = append(numbered[m.PeerID], m.Member)
		}
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if at := named[name]; len(at) > 1 {
			problems = append(problems, fmt.Sprintf("%s members are named %s: at %s", number(len(at)), name, firstOf(at)))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(numbered)) {
		if of := numbered[id]; len(of) > 1 {
			problems = append(problems, fmt.Sprintf("%s members have peer_id %d: %s; cancels for it are dropped", number(len(of)), id, firstOf(of)))
		}
	}
	return problems
}

func number(n int) string {
	if n == 2 {
		return "two"
	}
	return strconv.Itoa(n)
}

// firstOf names the first few.
func firstOf(names []string) string {
	const few = 8
	if more := len(names) - few; more > 0 {
		names = append(names[:few:few], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, " and ")
}

func (r *roster) alive() (n int) {
	for _, m := range r.byName {
		if m.state == Alive {
			n++
		}
	}
	return n
}
