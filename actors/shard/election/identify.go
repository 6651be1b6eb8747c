package election

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/role"
)

// identify learns the shard's system identifier, if it is in neither the settings nor a state file: from the agreement of all
// hosts that have answered. While they disagree there is none, and so no primary: nobody here can know which of them are
// strangers, and what a stranger acknowledges is lost.
//
// What two servers agree on, or the only host of the shard says, is the identifier for good, and one that says otherwise
// later is refused. What a writable server alone has said, because nobody else answered, is one until another host says
// otherwise: that server may be a stranger, and the others the shard's own.
func (m *Machine) identify() {
	id, servers, dissent := m.hosts.told()
	switch {
	case m.teacher == "":
	case m.hosts.contradict(m.teacher, m.floor.SystemID):
		m.unlearn()
	case servers > 1:
		m.teacher = ""
	}
	if m.waiting() {
		return
	}
	if m.floor.SystemID == 0 && dissent != m.dissent {
		m.dissent = dissent
		if dissent != "" {
			m.emit(Disagreement{dissent})
			m.reason("the hosts belong to different clusters: %s", dissent)
		}
	}
	if m.floor.SystemID != 0 || id == 0 || dissent != "" {
		return
	}
	if servers > 1 || len(m.hosts.members()) == 1 {
		m.learn(id, "learnt from the agreement of the hosts")
	} else if h := m.witness(); h != nil {
		m.teacher = h.Host
		m.learn(id, fmt.Sprintf("learnt from %s, which is writable", h.Host))
	}
}

// Named appends each host's last answer with a system identifier to list. A restarted actor hands them to Recall.
func (m *Machine) Named(list []role.Observation) []role.Observation {
	for _, h := range m.hosts {
		if h.named.SystemID != 0 {
			list = append(list, h.named)
		}
	}
	return list
}

// Recall makes a new machine know what hosts had said of their cluster before the restart of the shard's actor: a host that cannot
// answer at that moment still contradicts the others. It is evidence for nothing else. Call it before the first Step.
func (m *Machine) Recall(answers []role.Observation) {
	for _, o := range answers {
		if h := m.find(o.Host); h != nil && o.Asked.After(h.named.Asked) {
			h.named = o
		}
	}
}

func (m *Machine) learn(id uint64, how string) {
	m.floor.SystemID, m.dissent = id, ""
	m.reason("system identifier %d %s", id, how)
	for _, h := range m.hosts {
		h.foreign = false
	}
}

// contradict reports whether another host than the one that alone told the identifier says otherwise.
func (l hosts) contradict(teacher role.Host, id uint64) bool {
	return slices.ContainsFunc(l.members(), func(h *host) bool {
		return h.Host != teacher && h.named.SystemID != 0 && h.named.SystemID != id
	})
}

// unlearn takes back an identifier that one server alone has told.
func (m *Machine) unlearn() {
	m.floor = role.Floor{Generation: m.floor.Generation}
	m.claim, m.teacher, m.seen = FloorClaim{}, "", time.Time{}
	for _, h := range m.hosts {
		if h.Role != Any {
			h.foreign = false
			m.probe(h)
		}
	}
}

// hosts are those of the list, in its order.
type hosts []*host

// members are the hosts that have a say.
func (l hosts) members() (hosts []*host) {
	for _, h := range l {
		if h.Role != Any {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// told is the identifier that the hosts have told, and how many servers have: two addresses of one server are one. dissent
// names two hosts that disagree. An answer counts until the host gives another one: that a host is silent for a moment does
// not make a stranger of all others the primary.
func (l hosts) told() (id uint64, servers int, dissent string) {
	var first role.Observation
	var parts []string
	for _, h := range l.members() {
		last := h.named
		switch {
		case last.SystemID == 0:
			continue
		case first.SystemID == 0:
			first, servers = last, 1
		case last.SystemID != first.SystemID:
		case !last.SameServer(first):
			servers++
		}
		if len(parts) == 0 || last.SystemID != first.SystemID && len(parts) == 1 {
			parts = append(parts, fmt.Sprintf("%s has system identifier %d", h.Host, last.SystemID))
		}
	}
	if len(parts) > 1 {
		return 0, servers, strings.Join(parts, ", ")
	}
	return first.SystemID, servers, ""
}

// witness is a host that is writable as far as anybody knows.
func (m *Machine) witness() *host {
	for _, h := range m.hosts {
		if h.rec.Evidence().SystemID != 0 && m.votes(h) && h.rec.Electable(m.now, m.cfg.TTL) {
			return h
		}
	}
	return nil
}
