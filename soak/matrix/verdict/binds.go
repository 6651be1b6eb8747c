package verdict

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// binds counts the checkouts that went to a server that could not, or may no longer, take writes.
func (r *Result) binds(h *History, t *Truth, attempts []Attempt) {
	members := membersOf(h, t, attempts)
	observer := newSeen(sightings(t.Sightings), t.Forgets)
	for i := range attempts {
		a := &attempts[i]
		cause := a.offence(members.of(a.Client))
		switch {
		case cause != "" && a.Kind.Writes():
			r.WrongBinds++
			r.WrongCauses[cause]++
		case cause != "":
			r.WrongReads++
		case a.Kind.Writes() && a.Bound != nil && a.Bound.Timeline < observer.highest(a.Start, a.BoundAt):
			r.ObserverOnly++
		}
	}
}

// offence is why an attempt's checkout was wrong, "" if it was not.
func (a *Attempt) offence(member *seen) string {
	switch {
	case a.Bound == nil && a.Code == ReadOnlyError: // an INSERT by itself does not get to say where it is
		return causeRefused
	case a.Bound == nil:
		return ""
	case a.Bound.InRecovery:
		return causeRecovery
	case a.Bound.ReadOnly:
		return causeReadOnly
	case a.Bound.Timeline < member.highest(a.Start, a.BoundAt):
		return causeTimeline
	}
	return ""
}

// members are what each member had seen, by client; -1 is the one member that all clients share.
type members map[int]*seen

func (m members) of(client int) *seen {
	if s := m[client]; s != nil {
		return s
	}
	return m[-1]
}

func membersOf(h *History, t *Truth, attempts []Attempt) members {
	by := map[int][]observation{-1: sightings(h.Seen)}
	for i := range attempts {
		a := &attempts[i]
		if a.Bound == nil || a.Bound.Timeline == 0 {
			continue
		}
		member := -1
		if h.PerClient {
			member = a.Client
		}
		by[member] = append(by[member], observation{asked: a.Start, Sighting: Sighting{a.BoundAt, a.Bound.Timeline}})
	}
	m := members{}
	for member, all := range by {
		m[member] = newSeen(all, t.Forgets)
	}
	return m
}

// observation is a sighting that was asked for at a time of its own.
type observation struct {
	Sighting
	asked time.Duration
}

func sightings(all []Sighting) []observation {
	list := make([]observation, 0, len(all))
	for _, s := range all {
		list = append(list, observation{s, s.At})
	}
	return list
}

// seen is the highest timeline that somebody had seen at any time. A forget sets it back; what was asked for before one
// and answered after it counts for nothing, neither as a sighting nor as an offence.
type seen struct {
	at      []time.Duration
	max     []uint32
	forgets []time.Duration // in order
}

func newSeen(all []observation, forgets []time.Duration) *seen {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b observation) int { return cmp.Compare(a.At, b.At) })
	s := &seen{forgets: slices.Sorted(slices.Values(forgets))}
	highest, forgotten := uint32(0), 0
	for _, o := range all {
		if s.forgotten(o.asked, o.At) {
			continue
		}
		if n := s.until(o.At); n > forgotten {
			highest, forgotten = 0, n
		}
		if o.Timeline > highest {
			highest = o.Timeline
			s.at, s.max = append(s.at, o.At), append(s.max, highest)
		}
	}
	return s
}

// until is how many forgets there were up to a time.
func (s *seen) until(at time.Duration) int {
	return sort.Search(len(s.forgets), func(i int) bool { return s.forgets[i] > at })
}

// forgotten reports whether there was a forget between two times.
func (s *seen) forgotten(from, to time.Duration) bool { return s.until(from) != s.until(to) }

// highest is the highest timeline seen before something was asked for, 0 if there is none that counts for its answer.
func (s *seen) highest(asked, answered time.Duration) uint32 {
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i] >= asked })
	if i == 0 || s.forgotten(s.at[i-1], answered) {
		return 0
	}
	return s.max[i-1]
}
