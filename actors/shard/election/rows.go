package election

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/role"
)

// HostRow is what is known about a host, for people. It is a copy.
type HostRow struct {
	Host     role.Host
	Name     string // as configured
	Role     Role   // as configured
	Elected  bool
	Strength role.Strength
	// Last answer, whatever it said; Asked is zero if there was none. Evidence is the last writable one.
	Last, Evidence role.Observation
	Age            time.Duration // of Last, since it was asked for; 0 without it
	Cause          role.Cause    // of the demotion, if Strength is Demoted
	Why            string        // why Strength is not Proven, as "it ..."; "" if it is
	Objection      string        // what else speaks against it, as "its ..." or "it ..."; "" for nothing
	Failure        role.Fact     // the last loss, failed connect or senseless answer
	Heard          time.Time     // when it sent something last; zero: never
	Foreign        bool          // of another cluster: not to be used for reads either
	AddressGone    bool
	Pending        bool // it has neither answered nor failed yet
}

// Hosts are all hosts in the order of the list.
func (m *Machine) Hosts(now time.Time) []HostRow {
	rows := make([]HostRow, 0, len(m.hosts))
	for _, h := range m.hosts {
		last := h.rec.Last()
		row := HostRow{
			Host: h.Host, Name: h.Name, Role: h.Role, Elected: h == m.elected, Strength: h.rec.Strength(now, m.cfg.TTL),
			Last: last, Evidence: h.rec.Evidence(), Why: h.rec.Why(now, m.cfg.TTL),
			Objection: m.objection(h), Failure: h.rec.Failure(), Heard: h.rec.Heard(), Foreign: h.foreign, AddressGone: h.gone,
			Pending: !h.answered,
		}
		if !last.Asked.IsZero() {
			row.Age = now.Sub(last.Asked)
		}
		if row.Objection == row.Why {
			row.Objection = ""
		}
		if row.Strength == role.Demoted {
			_, row.Cause, _ = h.rec.Demotion()
		}
		rows = append(rows, row)
	}
	return rows
}

// Last is the latest answer of a host, whatever it said; Asked is zero if there was none.
func (m *Machine) Last(name role.Host) role.Observation {
	if h := m.find(name); h != nil {
		return h.rec.Last()
	}
	return role.Observation{}
}

// Explain says what is known about each host that could be the primary, for the error of who waits for one.
func (m *Machine) Explain(now time.Time) string {
	var parts []string
	for _, h := range m.hosts {
		if !m.votes(h) {
			continue
		}
		why := m.objection(h)
		if why == "" {
			why = h.rec.Why(now, m.cfg.TTL)
		}
		if why == "" {
			why = "it is writable"
		}
		parts = append(parts, fmt.Sprintf("%s: %s", h.Host, why))
	}
	if len(m.conflict.Hosts) > 0 {
		parts = append(parts, "several servers are writable on one timeline (on_two_writers)")
	}
	if m.elected == nil && m.seats.rules(m.now, m.cfg.UnhealthyAfter) {
		parts = append(parts, m.seats.why())
	}
	if m.dissent != "" {
		parts = append(parts, "the hosts belong to different clusters: "+m.dissent)
	}
	if parts == nil {
		return "no host of the shard could be its primary"
	}
	return strings.Join(parts, "; ")
}

// Disagreement names two hosts that belong to different clusters while the shard's is not known; "" for none.
func (m *Machine) Disagreement() string { return m.dissent }

// BehindFloor reports whether nobody is elected although a host says that it is writable, because its timeline is below
// the floor or it belongs to another cluster: what FORGET is for. What a host said before it failed does not count.
func (m *Machine) BehindFloor() bool {
	if m.elected != nil {
		return false
	}
	return slices.ContainsFunc(m.hosts, func(h *host) bool {
		last := h.rec.Last()
		return m.electable(h) && last.Verdict == role.Writable && h.rec.Failure().At.Before(last.Asked) &&
			(h.foreign || last.Timeline < m.bar())
	})
}
