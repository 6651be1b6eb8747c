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
	w.late = false
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
	case w.silent(now, row, s.settings.Election.UnhealthyAfter):
		return fmt.Sprintf("nothing was heard from it for %v", s.settings.Election.UnhealthyAfter)
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

// objections say for each host why it serves no reads; "" if it does. One whose monitor waits for an answer, which may be frozen, does
// not while others do. late: all that serve are such ones.
func (s reads) objections(now time.Time, rows []election.HostRow) (why []string, late bool) {
	why = make([]string, len(rows))
	well := false
	for i, row := range rows {
		why[i] = s.objection(now, row)
		well = well || why[i] == "" && !s.hosts[row.Host].waits()
	}
	for i, row := range rows {
		switch {
		case why[i] != "" || !s.hosts[row.Host].waits():
		case well:
			why[i] = "its monitor waits for an answer"
		default:
			late = true
		}
	}
	return why, late
}

// waits reports whether the monitor has waited for an answer for long, or has none to ask.
func (w *watched) waits() bool { return w.late || w.kind == monitor.Connecting }

// reconnecting is how long a monitor whose probe was not answered tries to connect anew before its host counts as silent: what is wrong may be
// wrong with its old connection alone.
const reconnecting = time.Second

// silent reports whether a standby has said nothing for so long, on the monitor's old connection or a new one.
func (w *watched) silent(now time.Time, row election.HostRow, after time.Duration) bool {
	if after <= 0 || row.Elected || row.Last.Verdict != role.InRecovery || row.Heard.IsZero() || now.Before(row.Heard.Add(after)) {
		return false
	}
	switch w.kind {
	case monitor.Silent, monitor.Unreachable:
		return true
	case monitor.Connecting:
		return !now.Before(w.since.Add(reconnecting))
	}
	return false
}

// silent are the standbys that have said nothing for so long.
func (s reads) silent(now time.Time, rows []election.HostRow) (hosts []string) {
	for _, row := range rows {
		if w := s.hosts[row.Host]; w != nil && w.silent(now, row, s.settings.Election.UnhealthyAfter) {
			hosts = append(hosts, string(row.Host))
		}
	}
	return hosts
}

// promoted are the hosts that are out of recovery.
func promoted(rows []election.HostRow) (hosts []string) {
	for _, row := range rows {
		if row.Last.Verdict.OutOfRecovery() {
			hosts = append(hosts, string(row.Host))
		}
	}
	return hosts
}

// standbys are the hosts that serve reads, those with the most of the log first, else in the order of the list; late: see objections.
func (s reads) standbys(now time.Time, rows []election.HostRow) (list []string, late bool) {
	var serve []election.HostRow
	why, late := s.objections(now, rows)
	for i, row := range rows {
		if why[i] == "" {
			serve = append(serve, row)
		}
	}
	s.keepOrder(serve)
	for i := range serve {
		for j := i; j > 0 && ahead(serve[j], serve[j-1]); j-- {
			serve[j], serve[j-1] = serve[j-1], serve[j]
		}
	}
	for _, row := range serve {
		list = append(list, string(row.Host))
	}
	return list, late
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
