package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/role"
)

// publish replaces the view if there is anything new in it, and tells the lanes if it is something they act on.
func (a *decider) publish(now time.Time) {
	v, old := a.compose(now), a.cfg.Shard.View()
	told := v.ActsLike(old)
	if told && v.Why == old.Why && v.Explanation == old.Explanation && v.Hint == old.Hint && v.NoReads == old.NoReads {
		return
	}
	for _, h := range v.Silent {
		if !slices.Contains(old.Silent, h) {
			a.logTransition(now, zerolog.WarnLevel, "silent", role.Host(h), fmt.Sprintf("nothing was heard from it for %v: what is unanswered there is ended", a.mem.settings.Election.UnhealthyAfter))
		}
	}
	a.cfg.Shard.Publish(v)
	if !told {
		a.notifyLanes(nil)
	}
}

// notifyLanes sends the lanes the view, or, if recount is set, asks them for their connections.
func (a *decider) notifyLanes(recount *actor.PID) {
	for _, l := range a.cfg.Lanes() {
		a.ctx.Send(l, &ViewPublished{Shard: a.cfg.Shard, Recount: recount})
	}
}

// compose makes the view of what the machines, the fleet and the operator say.
func (a *decider) compose(now time.Time) *View {
	e, s, rows := a.election.View(), &a.mem.settings, a.election.Hosts(now)
	v := &View{
		Epoch: e.Epoch, Elected: string(e.Elected), Floor: e.Floor.Timeline, SystemID: e.Floor.SystemID,
		Static:      e.Elected != "" && a.list.roleOf(e.Elected) == election.Any,
		NoTimelines: e.Evidence.NoTimelines, State: a.health.State(), StateWhy: a.health.Reason(), Since: e.Since, Why: e.Why,
		Promoted: promoted(rows), Silent: a.reads().silent(now, rows), Balance: s.Balance, Warm: s.Warm, Refuse: s.Refuse,
	}
	v.Standbys, v.Late = a.reads().standbys(now, rows)
	if _, doubted := a.election.InDoubt(); doubted || e.Elected == "" {
		v.Late = false // the primary is no better
	}
	if e.Elected == "" {
		v.Candidates, v.ReadOnly = a.monitors.candidates(a.list), readOnlyHost(rows, a.health.Host())
	}
	// The election goes on meanwhile, so that its result is there at once when the fleet has been heard or the pause is over.
	// Only the view that lanes grant by hides it.
	switch pause := &a.mem.pause; {
	case !a.mem.peers.ready:
		// Another member may have seen a later primary than this one can reach. Reads go on: they cannot be lost.
		v.Elected, v.Static, v.Candidates, v.Explanation = "", false, nil, "this member has not heard from its fleet yet"
	case pause.active():
		// No candidates either: a client's login must not find the old primary while it is about to be demoted. Clients wait
		// even with failover_policy = refuse, because a switchover that the operator ordered is to cost nobody an error.
		v.Elected, v.Candidates, v.Since, v.Why, v.Refuse = "", nil, pause.began, "a switchover is under way", false
		v.Explanation = fmt.Sprintf("writes wait for a switchover from %s", pause.from)
	default:
		v.Explanation = a.explainer().explain(now)
		if e.Elected == "" || a.conflict {
			v.Hint = a.explainer().hint(rows) // in Failover the primary is known, and there is nothing to do but wait
		}
	}
	if len(v.Standbys) == 0 {
		v.NoReads = a.reads().none(now, rows)
	}
	return v
}

// readOnlyHost is the host elected last, if it is no longer the primary because of its own settings; "" if not.
func readOnlyHost(rows []election.HostRow, last role.Host) string {
	for _, r := range rows {
		if r.Host == last && r.Strength == role.Demoted && r.Cause == role.CauseReadOnly {
			return string(r.Host)
		}
	}
	return ""
}
