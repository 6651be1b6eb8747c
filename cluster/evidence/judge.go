package evidence

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fencepost/role"
)

// Judge decides what a shard makes of the fleet's words. The zero value knows no host. It is not safe for concurrent use.
type Judge struct {
	now     time.Time
	hosts   []*host
	silent  []netip.AddrPort // the shard's hosts that do not take part in the election
	elected netip.AddrPort   // not valid: nobody, or somebody who cannot be named to others
	floor   role.Floor
	claims  []*claim // in the order of arrival
	muted   []mute
	refuted []Record  // claims that a host has contradicted: never believed again, whoever repeats them
	order   Order     // the last FORGET that was obeyed
	ordered time.Time // when it, or a later one, was given
	raised  Floor     // the last effect of that type
	again   bool      // it is to be said again
	seats   []seat
	seat    Seat // the last effect of that type
	effects []Effect
}

// host is one of the shard's hosts.
type host struct {
	name            role.Host
	addr            netip.AddrPort
	observed        bool
	asked           time.Time // the last look at it that was answered with sense
	doubted, probed time.Time
	outrun          time.Time        // when its monitor was to connect anew last
	last            role.Observation // at asked
	told            role.Observation // what a peer saw of it, for which the elected host was put in doubt
}

// claim is a claim that was kept; adopted ones make the floor.
type claim struct {
	record  Record
	member  string
	arrived time.Time
	adopted bool
	kept    bool   // an earlier process has adopted it
	refused string // the reason that was given last
}

// mute says that an observer is not believed about a host.
type mute struct {
	observer Boot
	host     netip.AddrPort
	until    time.Time
}

// Step takes one event in. The effects belong to the caller. Time never runs backwards.
func (j *Judge) Step(now time.Time, ev Event) []Effect {
	if now.After(j.now) {
		j.now = now
	}
	switch e := ev.(type) {
	case Hosts:
		j.replace(e)
	case Decided:
		j.decided(e)
	case OwnObserved:
		j.ownObserved(e.Observation)
	case PeerObserved:
		j.peerObserved(e)
	case FloorClaim:
		j.keepClaim(e)
	case GenerationKnown:
		j.takeOver(e.Generation)
	case OrderKept:
		j.ordered = e.At
	case ForgetOrdered:
		j.forget(e)
	}
	j.settle()
	effects := j.effects
	j.effects = nil
	return effects
}

func (j *Judge) emit(e Effect) { j.effects = append(j.effects, e) }

func (j *Judge) find(a netip.AddrPort) *host {
	for _, h := range j.hosts {
		if h.addr == a {
			return h
		}
	}
	return nil
}

func (j *Judge) replace(e Hosts) {
	j.silent = j.silent[:0]
	for _, name := range e.Voteless {
		if a, ok := Address(name); ok {
			j.silent = append(j.silent, a)
		}
	}
	var hosts []*host
	for _, name := range e.List {
		a, ok := Address(name)
		if !ok || slices.ContainsFunc(hosts, func(h *host) bool { return h.addr == a }) {
			continue
		}
		h := j.find(a)
		if h == nil {
			h = &host{addr: a}
		}
		h.name = name
		hosts = append(hosts, h)
	}
	j.hosts = hosts
}

// decided takes the shard's view in. For another cluster nothing of before holds; claims that were made about it already are
// among those that were kept.
func (j *Judge) decided(e Decided) {
	j.elected, _ = Address(e.Elected)
	if e.Floor.SystemID != j.floor.SystemID {
		for _, c := range j.claims {
			c.adopted = false
		}
		j.raised = Floor{}
		for _, h := range j.hosts {
			h.asked, h.observed = time.Time{}, false
		}
	}
	j.floor = e.Floor
}

// takeOver has the shard count on from a generation that somebody is in. That it was ordered once, to others, is no reason
// to forget anything here.
func (j *Judge) takeOver(generation uint64) {
	if generation > j.floor.Generation {
		j.emit(TakeOver{generation})
	}
}

// forget obeys an order, once: what was seen before it was given is void. What was seen since is not.
func (j *Judge) forget(e ForgetOrdered) {
	if e.Order == j.order {
		return
	}
	j.order = e.Order
	if e.At.After(j.ordered) {
		j.ordered = e.At
	}
	j.claims = slices.DeleteFunc(j.claims, func(c *claim) bool { return !c.record.At.After(j.ordered) })
	j.again = true
	j.emit(Forget{e.Generation, e.At})
}

// ownObserved records an observation of the shard's own. It drops the claims about that host which it contradicts: what others saw
// before they told it cannot be undone by the host but by being restored or replaced, and then it is the host that is right.
func (j *Judge) ownObserved(o role.Observation) {
	a, ok := Address(o.Host)
	h := j.find(a)
	if !ok || h == nil || o.Source == role.Gossip || o.Verdict == role.Unknown || o.Asked.IsZero() {
		return
	}
	h.observed = true
	if o.Asked.After(h.asked) {
		h.asked, h.last = o.Asked, o
	}
	if o.SystemID == 0 || o.SystemID != j.floor.SystemID || o.NoTimelines || o.Timeline == 0 {
		return
	}
	j.claims = slices.DeleteFunc(j.claims, func(c *claim) bool {
		r := c.record
		if !c.adopted || r.Host != a || r.Floor.Timeline <= o.Timeline {
			return false
		}
		// An older connection may end at another server behind the same address: at the old primary, above all.
		contradicted := o.Dialled.After(c.arrived)
		switch {
		case contradicted:
			j.mute(r.Observer, a)
			j.refuted = append(j.refuted[max(0, len(j.refuted)-MaxClaims+1):], r)
			j.refuse(c, fmt.Sprintf("%s is %s on timeline %d, not %d", h.name, o.Verdict, o.Timeline, r.Floor.Timeline))
		case o.Asked.After(c.arrived):
			j.reconnect(h, c)
		}
		return contradicted
	})
}

func (j *Judge) mute(b Boot, a netip.AddrPort) {
	j.muted = slices.DeleteFunc(j.muted, func(m mute) bool { return !j.now.Before(m.until) || m.observer == b && m.host == a })
	if len(j.muted) >= MaxClaims {
		j.muted = j.muted[1:]
	}
	j.muted = append(j.muted, mute{b, a, j.now.Add(MuteFor)})
}

func (j *Judge) isMuted(b Boot, a netip.AddrPort) bool {
	return slices.ContainsFunc(j.muted, func(m mute) bool { return m.observer == b && m.host == a && j.now.Before(m.until) })
}

func (j *Judge) refuse(c *claim, why string) {
	if c.refused != why {
		c.refused = why
		j.emit(Refused{j.name(c.record.Host), c.record.Observer, c.member, why})
	}
}

// name is how the shard calls a host.
func (j *Judge) name(a netip.AddrPort) role.Host {
	if h := j.find(a); h != nil {
		return h.name
	}
	return role.Host(a.String())
}

// peerObserved records another member's observation of a host. That it could not reach it is nothing to us.
func (j *Judge) peerObserved(e PeerObserved) {
	r, o := e.Record, e.Record.Observation
	h := j.find(r.Host)
	if h == nil || o.Verdict == role.Unknown || r.Kind != Observed || j.isMuted(r.Observer, r.Host) {
		return
	}
	j.keepSeat(e)
	if !h.observed && o.Verdict.OutOfRecovery() {
		j.probe(h, fmt.Sprintf("member %s saw it %s", e.Member, o.Verdict))
	}
	switch foreign := j.foreign(o.SystemID); {
	case r.Host == j.elected:
		if why := j.against(o, foreign); why != "" && r.At.After(h.asked) {
			j.doubt(h, fmt.Sprintf("member %s saw that it %s", e.Member, why))
		}
	case foreign:
	case o.Verdict == role.Writable && (o.NoTimelines || o.Timeline >= j.floor.Timeline && o.Timeline != 0):
		// Of two servers that are known to be writable beside each other nothing is news but that one is no longer: else the elected
		// one would be in doubt with every sighting of the other one.
		known := h.last.Verdict == role.Writable && h.last.SystemID == o.SystemID && h.last.Timeline == o.Timeline
		if known || !r.At.After(h.asked) {
			return
		}
		j.probe(h, fmt.Sprintf("member %s saw it writable", e.Member))
		again := h.told.SystemID == o.SystemID && h.told.Timeline == o.Timeline && h.told.Started.Equal(o.Started) && h.told.Verdict == o.Verdict
		sitting := j.find(j.elected)
		if sitting != nil && !again && r.At.After(sitting.asked) && j.doubt(sitting, fmt.Sprintf("member %s saw %s writable", e.Member, h.name)) {
			h.told = o
		}
		return
	}
	if o.Verdict != role.Writable {
		h.told = role.Observation{} // if it is writable again, that is news
	}
}

func (j *Judge) foreign(id uint64) bool {
	return id != 0 && j.floor.SystemID != 0 && id != j.floor.SystemID
}

// against says what an observation of the elected host has against it.
func (j *Judge) against(o role.Observation, foreign bool) string {
	switch {
	case foreign:
		return "belongs to another cluster"
	case o.Verdict == role.InRecovery || o.Verdict == role.ReadOnly:
		return "is " + o.Verdict.String()
	case !o.NoTimelines && o.Timeline != 0 && o.Timeline < j.floor.Timeline:
		return fmt.Sprintf("is on timeline %d", o.Timeline)
	}
	return ""
}

// doubt reports whether it is time for one.
func (j *Judge) doubt(h *host, why string) bool {
	if !h.doubted.IsZero() && j.now.Sub(h.doubted) < Pace {
		return false
	}
	h.doubted = j.now
	j.emit(Doubt{h.name, why})
	return true
}

// reconnect asks for a connection to a host that is newer than a claim about it.
func (j *Judge) reconnect(h *host, c *claim) {
	if h.outrun.IsZero() || j.now.Sub(h.outrun) >= Pace {
		h.outrun = j.now
		j.emit(Reconnect{h.name, c.arrived, fmt.Sprintf("member %s saw it on timeline %d", c.member, c.record.Floor.Timeline)})
	}
}

func (j *Judge) probe(h *host, why string) {
	if h.probed.IsZero() || j.now.Sub(h.probed) >= Pace {
		h.probed = j.now
		j.emit(Probe{h.name, why})
	}
}
