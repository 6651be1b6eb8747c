package shard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/cluster"
	"fencepost/role"
)

// publish replaces the view if there is anything new in it, and tells the lanes if it is something they act on.
func (a *decider) publish(now time.Time) {
	v, old := a.compose(now), a.cfg.Shard.View()
	told := v.ActsLike(old)
	if told && v.Why == old.Why && v.Explanation == old.Explanation && v.Hint == old.Hint && v.NoReads == old.NoReads {
		return
	}
	a.cfg.Shard.Publish(v)
	if !told {
		a.notifyLanes(nil)
	}
}

// ActsLike reports whether lanes do the same under both views.
func (v *View) ActsLike(w *View) bool {
	return v.Epoch == w.Epoch && v.Static == w.Static && v.Elected == w.Elected && v.Floor == w.Floor && v.SystemID == w.SystemID &&
		v.NoTimelines == w.NoTimelines && v.State == w.State && v.Balance == w.Balance && v.Warm == w.Warm && v.Refuse == w.Refuse &&
		slices.Equal(v.Standbys, w.Standbys) && slices.Equal(v.Candidates, w.Candidates) &&
		v.ReadOnly == w.ReadOnly
}

// notifyLanes sends the lanes the view, or, if recount is set, asks them for their connections.
func (a *decider) notifyLanes(recount *actor.PID) {
	for _, l := range a.cfg.Lanes() {
		a.ctx.Send(l, &ViewPublished{Shard: a.cfg.Shard, Recount: recount})
	}
}

func (a *decider) compose(now time.Time) *View {
	e, s, rows := a.election.View(), &a.mem.settings, a.election.Hosts(now)
	v := &View{
		Epoch: e.Epoch, Elected: string(e.Elected), Floor: e.Floor.Timeline, SystemID: e.Floor.SystemID,
		Static:      e.Elected != "" && a.roleOf(e.Elected) == election.Any,
		NoTimelines: e.Evidence.NoTimelines, State: a.health.State(), Since: e.Since, Why: e.Why,
		Standbys: a.standbys(now, rows), Balance: s.Balance, Warm: s.Warm, Refuse: s.Refuse,
	}
	if e.Elected == "" {
		v.Candidates, v.ReadOnly = a.candidates(), a.readOnly(rows)
	}
	switch {
	case !a.mem.peers.ready:
		v.Elected, v.Static, v.Candidates, v.Explanation = "", false, nil, "this member has not heard from its fleet yet"
	case a.paused():
		v.Elected, v.Candidates, v.Since, v.Why = "", nil, a.mem.pause.began, "a switchover is under way"
		v.Refuse = false // it is to cost nobody an error
		v.Explanation = fmt.Sprintf("writes wait for a switchover from %s", a.mem.pause.from)
	case !a.explains():
	case e.Elected == "":
		v.Explanation = fmt.Sprintf("no primary has been known since %s; %s%s; the shard is %s", clock(e.Since), a.claimedBy(), a.election.Explain(now), v.State)
		v.Hint = a.hint(rows)
	default:
		v.Explanation = fmt.Sprintf("failover since %s (%s); %s", clock(a.health.Since()), a.health.Reason(), a.election.Explain(now))
	}
	if len(v.Standbys) == 0 {
		v.NoReads = a.noReads(now, rows)
	}
	return v
}

// readOnly is the host elected last, if it is no longer the primary because of its own settings.
func (a *decider) readOnly(rows []election.HostRow) string {
	for _, r := range rows {
		if r.Host == a.health.Host() && r.Strength == role.Demoted && r.Cause == role.CauseReadOnly {
			return string(r.Host)
		}
	}
	return ""
}

// candidates are the hosts that a client's login may look at where their monitors cannot: what answers, but does not let
// the monitor in, may be the primary all the same.
func (a *decider) candidates() (hosts []string) {
	for _, c := range a.list {
		if w := a.hosts[c.Host]; c.Role != election.Replica && w != nil && (w.kind == monitor.Rejected || w.kind == monitor.Senseless) {
			hosts = append(hosts, string(c.Host))
		}
	}
	return hosts
}

// noReads says why each host serves no reads.
func (a *decider) noReads(now time.Time, rows []election.HostRow) string {
	var all []string
	for _, r := range rows {
		all = append(all, fmt.Sprintf("%s: %s", r.Host, a.unreadable(now, r)))
	}
	return strings.Join(all, "; ")
}

// explains reports whether the view says what each host last said.
func (a *decider) explains() bool {
	return a.election.View().Elected == "" || a.health.State() == health.Failover
}

// clock is a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// hint is what an operator can do so that there is a primary again; "" if there is nothing but to wait.
func (a *decider) hint(rows []election.HostRow) string {
	foreign := slices.ContainsFunc(rows, func(r election.HostRow) bool { return r.Foreign && r.Last.Verdict == role.Writable })
	switch behind := a.election.BehindFloor(); {
	case a.conflict:
		return "Stop or demote all but one of the writable servers."
	case behind && a.claimedBy() != "":
		return "Another member sees a primary on a later timeline that this member cannot reach: check the network between them. If that server is gone for good, run FORGET " +
			a.cfg.Shard.Name + " on the admin console."
	case behind && foreign && a.mem.settings.Election.SystemID != 0:
		return "A writable server belongs to a different cluster. If it is the right server, change system_identifier in the settings and RELOAD."
	case behind:
		return fmt.Sprintf("A writable server was refused: its timeline is older than one already used, or it belongs to a different cluster. "+
			"If it is the right server, run FORGET %s on the admin console.", a.cfg.Shard.Name)
	}
	return ""
}

// keptTransitions is how many are kept for the console.
const keptTransitions = 100

// logTransition logs a transition and keeps it for the console.
func (a *decider) logTransition(now time.Time, level zerolog.Level, kind string, host role.Host, reason string) {
	v := a.mem.view
	t := Transition{At: now, Epoch: v.Epoch, Kind: kind, Host: string(host), Elected: string(v.Elected), State: a.health.State(), Reason: reason}
	if len(a.mem.seen) >= keptTransitions {
		a.mem.seen = append(a.mem.seen[:0], a.mem.seen[len(a.mem.seen)-keptTransitions+1:]...)
	}
	a.mem.seen = append(a.mem.seen, t)
	a.log.WithLevel(level).Str("host", t.Host).Uint64("epoch", t.Epoch).Str("elected", t.Elected).Stringer("state", t.State).
		Str("reason", t.Reason).Msg("shard: " + kind)
}

func (a *decider) hostsChanged(now time.Time, why string) {
	var names []string
	for _, c := range a.list {
		names = append(names, c.String())
	}
	a.stale = true
	a.logTransition(now, zerolog.InfoLevel, "hosts", "", why+": "+strings.Join(names, ", "))
}

func conflictText(c election.Conflict) string {
	text := fmt.Sprintf("%s are writable on timeline %d", join(c.Hosts), c.Timeline)
	if c.Timeline == 0 {
		text = join(c.Hosts) + " are writable"
	}
	if c.Elected == "" {
		return text + ": no server gets writes"
	}
	return fmt.Sprintf("%s: %s keeps getting the writes", text, c.Elected)
}

func foreignText(e election.Foreign) string {
	return fmt.Sprintf("its system identifier is %d, the shard's is %d: it is refused", e.SystemID, e.Want)
}

func join(hosts []role.Host) string {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = string(h)
	}
	return strings.Join(names, " and ")
}

// forget begins a new generation.
func (a *decider) forget(now time.Time, m *Forget) {
	a.mem.counts.Forgets++
	a.logTransition(now, zerolog.WarnLevel, "forget", "", "FORGET: system identifier and floor were cleared")
	a.elect(now, now, election.Forget{})
	if a.cfg.Fleet != nil {
		a.ctx.Send(a.cfg.Fleet, &cluster.Forgotten{Shard: a.cfg.Shard.Name, Generation: a.election.View().Floor.Generation})
	}
	if m.Reply != nil {
		m.Reply <- a.election.View().Floor.Generation
	}
}

// configure takes new settings. Hosts that stay keep what is known about them.
func (a *decider) configure(now time.Time, s Settings) {
	a.mem.settings = s
	a.elect(now, now, election.Configure{Config: s.Election})
	a.assess(now, health.Configure{Config: s.Health})
	a.watchNames()
	a.replaceHosts(now, "the settings changed")
	a.reconcileMonitors(now)
	a.stale = true
}

// describe makes a copy of all that is known.
func (a *decider) describe(now time.Time) Row {
	doubt, doubted := a.election.InDoubt()
	open, _, _ := a.health.Connections()
	v := *a.cfg.Shard.View()
	v.Standbys = slices.Clone(v.Standbys)
	row := Row{
		Name: a.cfg.Shard.Name, View: v, Floor: a.election.View().Floor,
		State: a.health.State(), StateReason: a.health.Reason(), StateSince: a.health.Since(),
		Connections: open, Transitions: slices.Clone(a.mem.seen), Counts: a.mem.counts,
	}
	if doubted {
		row.Doubt, row.DoubtSince = doubt, a.doubtSince
	}
	for _, h := range a.election.Hosts(now) {
		r := HostRow{HostRow: h, ReadsWhy: a.unreadable(now, h)}
		r.Reads = r.ReadsWhy == ""
		if w := a.hosts[h.Host]; w != nil {
			r.Monitor, r.MonitorCode, r.MonitorErr = w.kind, w.code, w.err
			if w.banned(now) {
				r.BannedUntil = w.ban.until
			}
		}
		if err := a.nameErr[h.Name]; err != nil && r.MonitorErr == "" {
			r.MonitorErr = err.Error()
		}
		row.Hosts = append(row.Hosts, r)
	}
	return row
}
