package shard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/role"
)

// Bans. A standby that drops its connections or takes none serves no reads for a while.
const (
	firstBan   = time.Second
	longestBan = 30 * time.Second
)

// ban keeps reads away from a host until a time, or until a probe asked for after it began is answered. The next one is
// twice as long, unless a probe has ended this one.
type ban struct {
	since, until time.Time
	length       time.Duration
}

func (w *watched) banned(now time.Time) bool { return now.Before(w.ban.until) }

// answered records a monitor's answer: it ends a ban, and shows how much the host lacks. primary is where the primary's
// log ended when it was asked before; 0: not known.
func (w *watched) answered(o role.Observation, primary uint64) {
	if o.Asked.After(w.ban.since) {
		w.ban = ban{}
	}
	w.standby = o.Verdict == role.InRecovery
	switch {
	case !w.standby:
		w.behind = 0
	case primary > o.LSN:
		w.behind = primary - o.LSN + o.LagBytes
	case primary != 0 || w.behind < o.LagBytes:
		w.behind = o.LagBytes
	}
}

// primaryLSN is where the log of the elected host ended when it was asked, not after the host of the observation was: what
// that one has not got of it, it lacks. 0: not known.
func primaryLSN(m *election.Machine, of role.Observation) uint64 {
	elected := m.View().Elected
	if elected == of.Host {
		return 0
	}
	if last := m.Last(elected); !last.Asked.After(of.Asked) && last.SystemID == of.SystemID {
		return last.LSN
	}
	return 0
}

// reads decides which hosts serve reads, and in what order.
type reads struct {
	settings *Settings
	hosts    map[role.Host]*watched
	before   []string // those that served before
}

func (a *decider) reads() reads {
	return reads{&a.mem.settings, a.monitors.hosts, a.cfg.Shard.View().Standbys}
}

// objection says why a host serves no reads; "" if it does.
func (s reads) objection(now time.Time, row election.HostRow) string {
	w, last := s.hosts[row.Host], row.Last
	switch {
	case row.Elected:
		return "it is the primary"
	case row.Foreign:
		return "it belongs to another cluster"
	case w == nil || w.pid == nil:
		return "it has no monitor"
	case w.kind.Down(), w.kind == monitor.Starting, w.kind == monitor.Silent:
		return "its monitor: " + w.kind.String()
	case w.banned(now):
		return "it is banned"
	case row.Pending && slices.Contains(s.before, string(row.Host)):
		return "" // what was known of it was dropped, and it has not been asked again yet
	case last.Asked.IsZero():
		return "it has not answered yet"
	case last.Verdict != role.InRecovery:
		return "it is not in recovery"
	case s.settings.MaxLagTime > 0 && last.LagKnown && last.Lag > s.settings.MaxLagTime:
		return fmt.Sprintf("it lags %v (max_lag_time)", last.Lag.Round(time.Millisecond))
	case s.settings.MaxLagBytes > 0 && w.behind > s.settings.MaxLagBytes:
		return fmt.Sprintf("it lags %d bytes (max_lag_bytes)", w.behind)
	}
	return ""
}

// standbys are the hosts that serve reads, those with the most of the log first, else in the order of the list.
func (s reads) standbys(now time.Time, rows []election.HostRow) []string {
	var serve []election.HostRow
	for _, row := range rows {
		if s.objection(now, row) == "" {
			serve = append(serve, row)
		}
	}
	s.keepOrder(serve)
	for i := range serve {
		for j := i; j > 0 && ahead(serve[j], serve[j-1]); j-- {
			serve[j], serve[j-1] = serve[j-1], serve[j]
		}
	}
	var list []string
	for _, row := range serve {
		list = append(list, string(row.Host))
	}
	return list
}

// keepOrder puts the hosts in the order they were published in, new ones last.
func (s reads) keepOrder(rows []election.HostRow) {
	place := func(r election.HostRow) int {
		if i := slices.Index(s.before, string(r.Host)); i >= 0 {
			return i
		}
		return len(s.before)
	}
	slices.SortStableFunc(rows, func(a, b election.HostRow) int { return place(a) - place(b) })
}

// none says why each host serves no reads.
func (s reads) none(now time.Time, rows []election.HostRow) string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = fmt.Sprintf("%s: %s", r.Host, s.objection(now, r))
	}
	return strings.Join(all, "; ")
}

// ahead reports whether r has more of the log than s for sure: it had when it was asked, not later than s. Two that are
// asked by turns while both follow would change places with every answer otherwise.
func ahead(r, s election.HostRow) bool {
	return r.Last.LSN > s.Last.LSN && !r.Last.Asked.After(s.Last.Asked)
}
