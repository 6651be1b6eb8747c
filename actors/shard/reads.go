package shard

import (
	"fmt"
	"slices"
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

// ban a standby. The primary is not banned: what is wrong with it is the election's business.
func (a *decider) ban(now time.Time, h role.Host) {
	w := a.hosts[h]
	if w == nil || h == a.election.View().Elected || w.banned(now) {
		return
	}
	w.ban.length = min(max(2*w.ban.length, firstBan), longestBan)
	w.ban.since, w.ban.until = now, now.Add(w.ban.length)
	a.stale = true
	a.log.Info().Str("host", string(h)).Dur("for", w.ban.length).Msg("shard: standby banned")
}

// answered takes a monitor's answer in: it ends a ban, and shows how much the host lacks. primary is where the primary's
// log ended when it was asked before; 0: not known.
func (w *watched) answered(o role.Observation, primary uint64) {
	if o.Asked.After(w.ban.since) {
		w.ban = ban{}
	}
	switch {
	case o.Verdict != role.InRecovery:
		w.behind = 0
	case primary > o.LSN:
		w.behind = primary - o.LSN + o.LagBytes
	case primary != 0 || w.behind < o.LagBytes:
		w.behind = o.LagBytes
	}
}

// primaryLSN is where the log of the elected host ended when it was asked, not after the host of the observation was: what
// that one has not got of it, it lacks. 0: not known.
func (a *decider) primaryLSN(of role.Observation) uint64 {
	elected := a.election.View().Elected
	if elected == of.Host {
		return 0
	}
	if last := a.election.Last(elected); !last.Asked.After(of.Asked) && last.SystemID == of.SystemID {
		return last.LSN
	}
	return 0
}

// unreadable says why a host serves no reads; "" if it does.
func (a *decider) unreadable(now time.Time, row election.HostRow) string {
	w, s, last := a.hosts[row.Host], &a.mem.settings, row.Last
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
	case row.Pending && slices.Contains(a.cfg.Shard.View().Standbys, string(row.Host)):
		return "" // what was known of it was dropped, and it has not been asked again yet
	case last.Asked.IsZero():
		return "it has not answered yet"
	case last.Verdict != role.InRecovery:
		return "it is not in recovery"
	case s.MaxLagTime > 0 && last.LagKnown && last.Lag > s.MaxLagTime:
		return fmt.Sprintf("it lags %v (max_lag_time)", last.Lag.Round(time.Millisecond))
	case s.MaxLagBytes > 0 && w.behind > s.MaxLagBytes:
		return fmt.Sprintf("it lags %d bytes (max_lag_bytes)", w.behind)
	}
	return ""
}

// standbys are the hosts that serve reads, those with the most of the log first, else in the order of the list.
func (a *decider) standbys(now time.Time, rows []election.HostRow) []string {
	var serve []election.HostRow
	for _, row := range rows {
		if a.unreadable(now, row) == "" {
			serve = append(serve, row)
		}
	}
	a.keepOrder(serve)
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
func (a *decider) keepOrder(rows []election.HostRow) {
	before := a.cfg.Shard.View().Standbys
	place := func(r election.HostRow) int {
		if i := slices.Index(before, string(r.Host)); i >= 0 {
			return i
		}
		return len(before)
	}
	slices.SortStableFunc(rows, func(r, s election.HostRow) int { return place(r) - place(s) })
}

// ahead reports whether r has more of the log than s for sure: it had when it was asked, not later than s. Two that are
// asked by turns while both follow would change places with every answer otherwise.
func ahead(r, s election.HostRow) bool {
	return r.Last.LSN > s.Last.LSN && !r.Last.Asked.After(s.Last.Asked)
}
