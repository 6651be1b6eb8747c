package election

import (
	"fmt"
	"slices"
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

// observed takes an answer in.
func (m *Machine) observed(o role.Observation) {
	if o.Source == role.Gossip {
		m.emit(ClaimRefused{o.Host, "what another member saw is not evidence"})
		return
	}
	m.on(o.Host, "observation", func(h *host) {
		switch {
		case o.Asked.IsZero(), o.Asked.After(m.now), !o.Answered.IsZero() && o.Answered.Before(o.Asked):
			m.bug("an observation of %s was asked at an impossible time", h.Host)
			if o.Verdict == role.Writable {
				o.Verdict = role.Unknown
			}
			o.Asked, o.Answered = m.now, m.now
		case !m.began.IsZero() && !o.Asked.After(m.began):
			m.emit(Stale{h.Host, "observation asked for before FORGET or a restart"})
			return
		}
		h.answered = true
		believed, newer := h.flows.believes(o)
		if !newer.Dialled.IsZero() {
			m.emit(Outrun{h.Host, newer})
		}
		if !believed { // but some server of the shard was seen on that timeline
			h.rec.Hear(m.at(o.Answered))
			if o.Verdict.OutOfRecovery() && o.SystemID != 0 {
				h.keepOut(o)
			}
			m.emit(Stale{h.Host, "observation on an older connection than one that shows another server"})
			return
		}
		if o.SystemID != 0 && !o.Asked.Before(h.named.Asked) {
			h.named = o
		}
		if o.Verdict.OutOfRecovery() && o.SystemID != 0 {
			h.keepOut(o)
		}
		// One that contradicts what another host alone has said is no stranger yet: see identify.
		if h.Role != Any && o.SystemID != 0 && m.floor.SystemID != 0 && o.SystemID != m.floor.SystemID && (m.teacher == "" || m.teacher == h.Host) {
			m.refuseForeign(h, o)
			return
		}
		if o.SystemID != 0 {
			h.foreign = false
		}
		h.rec.Observe(m.now, m.cfg.TTL, o)
	})
}

func (m *Machine) refuseForeign(h *host, o role.Observation) {
	h.rec.ObserveForeign(m.now, o)
	if !h.foreign {
		m.emit(Foreign{h.Host, o.SystemID, m.floor.SystemID})
	}
	h.foreign = true
}

// refused demotes a host that refuses its reconnect right after a loss. A server that lets nobody in for another reason,
// such as too many connections or a wrong password, is alive: that is no more than a failure.
func (m *Machine) refused(h *host, e Refused) {
	h.answered = true
	switch {
	case e.Code != "" && e.Code != pgerr.CannotConnectNow:
		h.rec.Hear(m.at(e.At))
		h.rec.Fail(m.at(e.At), "it refused a connection with "+e.Code)
	case !e.AfterLoss:
		h.rec.Fail(m.at(e.At), refusal(e.Code))
	default:
		h.rec.RefusedAfterLoss(m.at(e.At), refusal(e.Code)+" right after one was lost")
	}
}

func refusal(code string) string {
	if code == "" {
		return "it refused a connection"
	}
	return "it refused a connection with " + code
}

// replace takes a new list of hosts in. Hosts that stay keep what is known about them. An address that is there twice,
// under two names, is one host: a replica if it is one under either.
func (m *Machine) replace(list []HostConfig) {
	var hosts, added []*host
	for _, c := range list {
		if twin := find(hosts, c.Host); twin != nil {
			if c.Role == Replica {
				twin.Role = Replica
			}
			continue
		}
		h := m.find(c.Host)
		if h == nil || h.Role == Any && c.Role != Any { // nobody had to ask it before
			h = &host{}
			added = append(added, h)
		}
		h.HostConfig = c
		hosts = append(hosts, h)
	}
	m.hosts = hosts
	for _, h := range added {
		if h.Role != Any {
			m.wait(h)
		}
	}
	if m.elected != nil && !slices.Contains(hosts, m.elected) {
		m.elect(nil, fmt.Sprintf("%s is no longer a host of the shard, or not without a check", m.elected.Host))
	}
}

// wait lets the next election wait for a new host. A wait under way is not prolonged, or names that resolve to something
// else every time could put elections off for ever.
func (m *Machine) wait(h *host) {
	if !m.now.Before(m.waitUntil) {
		m.waitUntil = m.now.Add(m.cfg.FirstWait)
	}
	m.probe(h)
}

// forget begins a new generation: what is known is dropped, or stays where nobody here was told to, or the floor was seen since
// that was ordered.
func (m *Machine) forget(e Forget, stays bool) {
	generation := e.Generation
	if generation == 0 {
		generation = m.floor.Generation + 1
	}
	stays = stays || !e.At.IsZero() && m.seen.After(e.At)
	switch {
	case generation <= m.floor.Generation && (stays || e.At.IsZero()):
		m.emit(Stale{"", fmt.Sprintf("generation %d in generation %d", generation, m.floor.Generation)})
	case stays:
		m.floor.Generation, m.claim.Floor.Generation = generation, generation
		m.reason("generation %d of another member is taken over; the floor stays", generation)
	default:
		generation = max(generation, m.floor.Generation)
		m.restart(role.Floor{SystemID: m.cfg.SystemID, Generation: generation}, fmt.Sprintf("FORGET: generation %d begins", generation))
	}
}

// claimed takes the word of other members in: about this cluster and generation, and a host that can raise the floor.
func (m *Machine) claimed(e FloorClaim) {
	if e.Floor.Timeline == 0 {
		if m.claim.Floor.Timeline > m.floor.Timeline {
			m.reason("%s", e.Why)
		}
		m.claim = FloorClaim{}
		return
	}
	h := m.find(e.Host)
	switch {
	case h != nil && !m.votes(h): // one that has left the list was believed while it was there, and its timeline is used
		m.emit(ClaimRefused{e.Host, "its role does not raise the floor"})
		return
	case m.floor.SystemID == 0 || e.Floor.SystemID != m.floor.SystemID || e.Floor.Generation != m.floor.Generation:
		m.emit(ClaimRefused{e.Host, "it is of another cluster or generation"})
		return
	}
	if e.Floor.Timeline > m.bar() {
		m.reason("%s", e.Why)
	}
	m.claim = e
}

// bar is the timeline below which nobody is the primary.
func (m *Machine) bar() uint32 { return max(m.floor.Timeline, m.claim.Floor.Timeline) }

// restart drops what is known, for a new generation or another cluster.
func (m *Machine) restart(floor role.Floor, why string) {
	m.claim, m.seen, m.teacher, m.dissent = FloorClaim{}, time.Time{}, "", ""
	m.floor, m.began, m.waitUntil = floor, m.now, m.now
	m.elect(nil, why)
	m.last = ""
	for _, h := range m.hosts {
		heard := h.rec.Heard()
		*h = host{HostConfig: h.HostConfig, gone: h.gone, flows: h.flows} // whatever is forgotten, connections are as old as they are
		h.rec.Hear(heard)
		if h.Role != Any {
			m.wait(h)
		}
	}
}

func (m *Machine) configure(cfg Config) {
	m.cfg = cfg
	if cfg.SystemID != 0 {
		m.teacher, m.dissent = "", ""
	}
	if cfg.SystemID != 0 && cfg.SystemID != m.floor.SystemID {
		if m.floor.SystemID == 0 {
			m.floor.SystemID = cfg.SystemID
			m.reason("the system identifier was set to %d", cfg.SystemID)
			for _, h := range m.hosts.members() {
				if id := h.rec.Last().SystemID; id != 0 && id != cfg.SystemID {
					m.on(h.Host, "", func(h *host) { m.refuseForeign(h, h.rec.Last()) })
				}
			}
			return
		}
		m.restart(role.Floor{SystemID: cfg.SystemID, Generation: m.floor.Generation}, fmt.Sprintf("the system identifier was set to %d", cfg.SystemID))
	}
}

// waiting reports whether the first election still waits for somebody.
func (m *Machine) waiting() bool {
	if !m.now.Before(m.waitUntil) {
		return false
	}
	for _, h := range m.hosts {
		if !h.answered && h.Role != Any {
			return true
		}
	}
	return false
}

// Next is when a Tick can change something if nothing else happens before; zero: never. It may be in the past by the time
// it is asked for: then a Tick is due.
func (m *Machine) Next() time.Time {
	var next time.Time
	add := func(t time.Time) {
		if t.After(m.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if m.waiting() {
		add(m.waitUntil)
	}
	if m.seats.fleet.Host != "" {
		add(m.seats.fleet.At.Add(m.cfg.UnhealthyAfter))
	}
	for _, h := range m.hosts {
		add(h.rec.Expires(m.now, m.cfg.TTL))
		if h == m.elected || len(m.conflict.Hosts) > 0 {
			add(h.rec.Heard().Add(m.cfg.UnhealthyAfter))
		}
	}
	return next
}
