package election

import (
	"fmt"
	"slices"

	"fencepost/role"
)

// votes reports whether the host can be elected by its role or at least raises the floor.
func (m *Machine) votes(h *host) bool { return h.Role == Auto || h.Role == Primary }

// raise lifts the floor to the highest timeline seen out of recovery.
func (m *Machine) raise() {
	var highest *host
	for _, h := range m.hosts {
		if t := h.out(m.floor.SystemID).Timeline; m.votes(h) && m.floor.SystemID != 0 && t > m.floor.Timeline {
			m.floor.Timeline, highest = t, h
		}
	}
	if highest != nil {
		m.reason("%s was seen out of recovery on timeline %d", highest.Host, m.floor.Timeline)
	}
	if o, ok := m.OnFloor(); ok && o.Asked.After(m.seen) {
		m.seen = o.Asked
	}
}

// OnFloor is the last observation that the floor, as far as it was seen here, rests on; false if there is none, or if it came
// from a state file or an earlier view.
func (m *Machine) OnFloor() (last role.Observation, ok bool) {
	for _, h := range m.hosts {
		if o := h.out(m.floor.SystemID); m.votes(h) && m.floor.Timeline != 0 && o.Timeline == m.floor.Timeline && o.Asked.After(last.Asked) {
			last = o
		}
	}
	return last, last.Timeline != 0
}

// electable reports whether the role of a host lets it be elected.
func (m *Machine) electable(h *host) bool {
	if h.Role == Auto {
		return !slices.ContainsFunc(m.hosts, func(h *host) bool { return h.Role == Primary })
	}
	return h.Role == Primary
}

// objection says why the host cannot be the primary, leaving aside how good its evidence is; "" if it can. A server without
// timelines has no identifier either: it is the primary of a shard in which nobody has one.
func (m *Machine) objection(h *host) string {
	o := h.rec.Evidence()
	switch s := h.rec.Strength(m.now, m.cfg.TTL); {
	case !m.electable(h):
		return "its role does not allow it"
	case s == role.Demoted, s == role.None:
		return h.rec.Why(m.now, m.cfg.TTL)
	case o.SystemID != 0 && m.floor.SystemID == 0:
		return fmt.Sprintf("its system identifier is %d, and the shard's is not known yet", o.SystemID)
	case o.SystemID != m.floor.SystemID:
		return fmt.Sprintf("its system identifier is %d, not %d", o.SystemID, m.floor.SystemID)
	case o.Timeline < m.bar():
		return fmt.Sprintf("its timeline %d is below the shard's floor, %d", o.Timeline, m.bar())
	}
	return ""
}

// decide elects. That the highest timeline wins is the floor's doing: it rises to every timeline seen, so that all hosts
// to which there is no objection are on the same one.
func (m *Machine) decide() {
	if m.elected != nil {
		if why := m.objection(m.elected); why != "" {
			m.unseat(why)
		}
	}
	if m.elected != nil && m.seats.outrank(m.now, m.cfg.UnhealthyAfter, m.elected) {
		why := fmt.Sprintf("%s, before %s was elected here; what %s has acknowledged since %s is not on %s", m.seats.why(), m.elected.Host,
			m.elected.Host, m.view.Since.UTC().Format("15:04:05.000 UTC"), m.seats.fleet.Host)
		m.emit(Outranked{m.elected.Host, why})
		m.unseat(why)
	}
	if m.waiting() {
		m.settleConflict(nil)
		return
	}
	if m.elected != nil {
		m.challenge()
	} else {
		m.choose()
	}
}

// static elects the first host of role any if nobody takes part in the election.
func (m *Machine) static() bool {
	var first *host
	for _, h := range m.hosts {
		if m.votes(h) {
			return false
		}
		if h.Role == Any && first == nil {
			first = h
		}
	}
	if first == nil {
		return false
	}
	if m.elected != first {
		m.elect(first, fmt.Sprintf("%s is the shard's host, whatever its role", first.Host))
	}
	m.settleConflict(nil)
	return true
}

// elect is the one writer of elected: a host, or nil for none, and why.
func (m *Machine) elect(h *host, why string) {
	m.elected = h
	m.seats.take(m.now, m.cfg.UnhealthyAfter, h)
	m.reasons = append(m.reasons, why)
}

func (m *Machine) unseat(why string) {
	m.elect(nil, fmt.Sprintf("%s is no longer the primary: %s", m.elected.Host, why))
}

func (m *Machine) seat(h *host) {
	o := h.rec.Evidence()
	why := fmt.Sprintf("%s is writable", h.Host)
	if !o.NoTimelines {
		why += fmt.Sprintf(" on timeline %d", o.Timeline)
	}
	m.elect(h, why)
}

// challenge asks whether the elected host stays.
func (m *Machine) challenge() {
	proven := m.proven(m.elected)
	if m.doubted(m.elected) {
		switch {
		case len(proven) > 0 && m.silent(m.elected):
			m.yield(proven)
		case m.disputed(m.elected):
			m.contend(proven)
		default:
			m.settleConflict(nil)
		}
		return
	}
	m.contend(proven)
}

// contend sets the elected host against those proven beside it and those it was in conflict with before.
func (m *Machine) contend(proven []*host) {
	rivals := slices.DeleteFunc(m.stillThere(proven), func(h *host) bool { return h == m.elected || sameServer(h, m.elected) })
	if len(rivals) == 0 {
		m.settleConflict(nil)
		return
	}
	both := !m.doubted(m.elected) && slices.ContainsFunc(rivals, func(h *host) bool { return !m.doubted(h) })
	rivals = append([]*host{m.elected}, rivals...)
	if both && m.cfg.TwoWriters == Refuse {
		m.unseat("another server is writable on its timeline, and on_two_writers = refuse")
	}
	m.settleConflict(rivals)
}

// disputed reports whether the host is in a conflict.
func (m *Machine) disputed(h *host) bool { return slices.Contains(m.conflict.Hosts, h.Host) }

// yield lets the elected host, doubted and gone, go in favour of the one other server proven.
func (m *Machine) yield(rivals []*host) {
	if !oneServer(rivals) {
		if m.cfg.TwoWriters == Refuse {
			m.unseat("several other servers are writable on its timeline, and on_two_writers = refuse")
		}
		m.settleConflict(rivals)
		return
	}
	if m.seats.bars(m.now, m.cfg.UnhealthyAfter, rivals[0]) {
		return // it would have to go again at once
	}
	if m.elected.gone {
		m.unseat("its address is gone, and another host is writable")
	} else {
		m.unseat(fmt.Sprintf("nothing was heard from it for %v, and another host is writable", m.cfg.UnhealthyAfter))
	}
	m.seat(rivals[0])
	m.settleConflict(nil)
}

// silent reports whether the host's address left DNS, or nothing was heard from it for too long.
func (m *Machine) silent(h *host) bool {
	return h.gone || !m.now.Before(h.rec.Heard().Add(m.cfg.UnhealthyAfter))
}

// choose elects when nobody is elected.
func (m *Machine) choose() {
	proven := m.proven(nil)
	if rivals := m.stillThere(proven); !oneServer(rivals) {
		last := m.last
		if m.seats.rules(m.now, m.cfg.UnhealthyAfter) {
			last = m.seats.fleet.Host
		}
		if h := find(proven, last); h != nil && m.cfg.TwoWriters == Sitting {
			m.seat(h)
		}
		m.settleConflict(rivals)
		return
	}
	m.settleConflict(nil)
	if len(proven) == 0 {
		proven = m.fresh()
	}
	if len(proven) > 0 && oneServer(proven) && !m.seats.bars(m.now, m.cfg.UnhealthyAfter, proven[0]) {
		m.seat(proven[0])
	}
}

// proven are the hosts but one that could be elected and are proven, in the order of the list.
func (m *Machine) proven(but *host) (hosts []*host) {
	for _, h := range m.hosts {
		if h != but && m.objection(h) == "" && !m.doubted(h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// fresh are the hosts that could be elected although they are in doubt.
func (m *Machine) fresh() (hosts []*host) {
	for _, h := range m.hosts {
		if m.objection(h) == "" && h.rec.Electable(m.now, m.cfg.TTL) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// stillThere adds to the hosts proven those of a conflict that have not gone since: that one of two writers is slow to
// answer for a moment does not make the other one the primary.
func (m *Machine) stillThere(proven []*host) []*host {
	rivals := slices.Clone(proven)
	for _, name := range m.conflict.Hosts {
		h := m.find(name)
		if h == nil || slices.Contains(rivals, h) || m.objection(h) != "" || m.silent(h) {
			continue
		}
		rivals = append(rivals, h)
	}
	return rivals
}

// settleConflict says that there is one between the hosts, or none, if that is new.
func (m *Machine) settleConflict(hosts []*host) {
	if len(hosts) == 0 {
		if len(m.conflict.Hosts) > 0 {
			m.emit(ConflictOver{})
		}
		m.conflict = Conflict{}
		return
	}
	c := Conflict{Timeline: hosts[0].rec.Evidence().Timeline}
	for _, h := range hosts {
		c.Hosts = append(c.Hosts, h.Host)
	}
	slices.Sort(c.Hosts)
	if m.elected != nil {
		c.Elected = m.elected.Host
	}
	if !m.conflict.same(c.Hosts, c.Timeline, c.Elected) {
		m.emit(c)
	}
	m.conflict = c
}

// oneServer reports whether all the hosts are addresses of one server.
func oneServer(hosts []*host) bool {
	return !slices.ContainsFunc(hosts, func(h *host) bool { return h != hosts[0] && !sameServer(h, hosts[0]) })
}

func sameServer(a, b *host) bool { return a.rec.Evidence().SameServer(b.rec.Evidence()) }
