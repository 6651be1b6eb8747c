package election

import (
	"slices"
	"strings"

	"fencepost/role"
)

// settle draws the conclusions of a step.
func (m *Machine) settle() {
	before := m.view.Elected
	if !m.static() {
		m.identify()
		m.raise()
		m.decide()
	}
	m.publish()
	m.emitDoubt(m.view.Elected != before)
	if m.elected == nil && before != "" {
		for _, h := range m.hosts {
			if m.votes(h) {
				m.probe(h)
			}
		}
	}
	m.reasons, m.rose, m.lately = nil, false, false
}

// probe asks for a probe, once in a step.
func (m *Machine) probe(h *host) {
	if !slices.Contains(m.effects, Effect(ProbeNow{h.Host})) {
		m.emit(ProbeNow{h.Host})
	}
}

func (m *Machine) publish() {
	v := m.view
	v.Elected, v.Evidence, v.Floor = "", role.Observation{}, m.floor
	v.Floor.Timeline, v.Own, v.Seen, v.Teacher, v.Seat = m.bar(), m.floor.Timeline, m.seen, m.teacher, m.seats.own
	if m.elected != nil {
		v.Elected, v.Evidence = m.elected.Host, m.elected.rec.Evidence()
		m.last = m.elected.Host
	}
	if v.Elected == m.view.Elected && v.Floor == m.view.Floor && m.view.Epoch > 0 {
		m.view.Own, m.view.Seen, m.view.Teacher, m.view.Seat = v.Own, v.Seen, v.Teacher, m.seats.own
		return
	}
	v.Epoch++
	v.Why = strings.Join(m.reasons, "; ")
	if v.Elected != m.view.Elected {
		v.Since = m.now
	}
	m.emit(ViewChanged{View: v, Previous: m.view, Reason: v.Why})
	m.view = v
}

// emitDoubt says whether the elected host is in doubt, if that is new.
func (m *Machine) emitDoubt(changed bool) {
	if m.elected == nil || changed {
		m.inDoubt = false
	}
	if m.elected == nil {
		return
	}
	doubted := m.doubted(m.elected)
	switch {
	case doubted && (!m.inDoubt || m.rose):
		m.emit(Doubt{m.elected.Host, m.elected.rec.Why(m.now, m.cfg.TTL), m.inDoubt})
		if !m.lately {
			m.probe(m.elected)
		}
	case !doubted && m.inDoubt:
		m.emit(DoubtOver{m.elected.Host})
	}
	m.inDoubt = doubted
}

func (m *Machine) doubted(h *host) bool {
	return h.Role != Any && h.rec.Strength(m.now, m.cfg.TTL) != role.Proven
}
