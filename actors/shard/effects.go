package shard

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
)

// elect gives the election an event, and executes what it decides. at is when the event happened: from then on a
// doubt that it raises counts, as it does in the election.
func (a *decider) elect(now, at time.Time, e election.Event) {
	effects := a.election.Step(now, e)
	a.mem.view, a.mem.named = a.election.View(), a.election.Named(a.mem.named[:0]) // before anything below can fail
	if len(effects) == 0 {
		return
	}
	a.stale = true
	if at.IsZero() || at.After(now) {
		at = now
	}
	for _, e := range effects {
		a.electionEffect(now, at, e)
	}
}

func (a *decider) electionEffect(now, at time.Time, e election.Effect) {
	switch e := e.(type) {
	case election.ViewChanged:
		a.viewChanged(now, e)
	case election.Doubt:
		a.cfg.Shard.Doubted(true, at)
		if e.Again {
			a.log.Debug().Str("host", string(e.Host)).Str("reason", e.Why).Msg("shard: doubt again")
			return
		}
		a.doubtSince = now
		a.mem.history.counts.Doubts++
		a.logTransition(now, zerolog.InfoLevel, "doubt", e.Host, e.Why)
	case election.DoubtOver:
		a.logTransition(now, zerolog.InfoLevel, "doubt over", e.Host, "it was proven by an answer requested after the last doubt")
	case election.Demoted:
		a.mem.history.counts.Demotions++
		a.logTransition(now, zerolog.WarnLevel, "demoted", e.Host, e.Why)
	case election.Conflict:
		a.conflict = true
		a.logTransition(now, zerolog.WarnLevel, "conflict", "", conflictText(e))
	case election.Outranked:
		a.logTransition(now, zerolog.WarnLevel, "outranked", e.Host, e.Why)
	case election.ConflictOver:
		a.conflict = false
		a.logTransition(now, zerolog.InfoLevel, "conflict over", "", "each timeline has at most one writable server again")
	case election.Foreign:
		a.logTransition(now, zerolog.WarnLevel, "foreign", e.Host, foreignText(e))
	case election.Disagreement:
		a.logTransition(now, zerolog.WarnLevel, "disagreement", "", "the hosts belong to different clusters: "+e.Which)
	case election.Outrun:
		a.logTransition(now, zerolog.WarnLevel, "outrun", e.Host, fmt.Sprintf("a newer connection to this address leads to another server (%s, timeline %d) than its monitor's: the monitor connects anew", e.Newer.Verdict, e.Newer.Timeline))
		a.monitors.reconnect(a.ctx, e.Host, e.Newer.Dialled)
	case election.ProbeNow:
		a.monitors.probe(a.ctx, e.Host)
	case election.ClaimRefused, election.Stale:
		a.log.Debug().Stringer("effect", e).Msg("shard: dropped")
	case election.Bug:
		a.bugs.bug(now, a.log, e.What)
	}
}

func (a *decider) viewChanged(now time.Time, e election.ViewChanged) {
	level := zerolog.InfoLevel
	if e.View.Elected == "" && e.Previous.Elected != "" {
		level = zerolog.WarnLevel
	}
	if e.View.Elected != e.Previous.Elected {
		a.mem.history.counts.Elections++
	}
	a.logTransition(now, level, "view", e.View.Elected, e.Reason)
	if e.View.Elected != e.Previous.Elected {
		a.assess(now, health.Elected{Host: e.View.Elected})
	}
}

// assess gives the state of the shard an event, and executes what it decides.
func (a *decider) assess(now time.Time, e health.Event) {
	for _, e := range a.health.Step(now, e) {
		a.stale = true
		switch e := e.(type) {
		case health.Entered:
			a.mem.history.counts.States[e.State]++
			level := zerolog.InfoLevel
			if e.State == health.Failover {
				level = zerolog.WarnLevel
				a.monitors.probeAll(a.ctx)
			}
			a.logTransition(now, level, "state", e.Host, e.Reason)
		case health.Bug:
			a.bugs.bug(now, a.log, e.What)
		}
	}
}

// finish ends the handling of a message.
func (a *decider) finish(now time.Time) {
	// Each step may change what the next one looks at: an address and a pause end because of who is elected now; the judge
	// may raise the floor, which unseats; only of whoever is elected after that may health hear a proof; pace and view come
	// from what all of them have made of the message.
	if elected := a.election.View().Elected; a.mem.addresses.dropGone(elected) {
		a.replaceHosts(now, "an address is gone from its name")
	}
	a.endPause(now, a.mem.pause.over(now, a.election.View().Elected))
	a.feedJudge(now)
	a.feedProof(now)
	a.setPace(now)
	if a.stale || a.explainer().needed() { // explanations have ages
		a.publish(now)
		a.stale = false
	}
	// Behind the view: a lane that sees the doubt over also sees who is elected, and never grants on the old view without it.
	if _, doubted := a.election.InDoubt(); !doubted && a.cfg.Shard.doubted.Load() {
		a.cfg.Shard.Doubted(false, now)
	}
	// Behind the view as well: a slow disk must not keep lanes from a new primary. What the file does not hold yet when the
	// process dies is learnt anew from the hosts.
	a.mem.file.save(now, a.ctx, a.mem.settings.StateFile, a.election, &a.mem.peers)
	a.arm(now)
}

// feedProof tells health of a new proof of the elected host.
func (a *decider) feedProof(now time.Time) {
	asked, ok := a.election.Proved()
	p := health.Proven{Host: a.election.View().Elected, Asked: asked}
	if !ok || p == a.proved {
		return
	}
	a.proved = p
	a.assess(now, p)
}

// ticked lets time pass.
func (a *decider) ticked(now time.Time) {
	a.elect(now, now, election.Tick{})
	a.assess(now, health.Tick{})
	if a.monitors.names == nil {
		a.watchNames()
	}
	a.reconcileMonitors(now)
	a.stale = true // bans end, and answers age
}

// tickEvery is how long rows and lag go without being looked at.
const tickEvery = time.Second

// beatsPerTTL is how often the actor handles a message in evidence_ttl, at least.
const beatsPerTTL = 4

// arm sets the alarm to when time alone may change something.
func (a *decider) arm(now time.Time) {
	next := now.Add(tickEvery)
	if ttl := a.mem.settings.Election.TTL; ttl > 0 {
		next = now.Add(min(tickEvery, ttl/beatsPerTTL)) // see Shard.Current
	}
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(a.election.Next())
	sooner(a.health.Next())
	if a.mem.pause.active() {
		sooner(a.mem.pause.until)
	}
	if a.pacer.writeWaits(now) {
		sooner(a.pacer.waited.Add(waitKept))
	}
	for _, w := range a.monitors.hosts {
		if w.banned(now) {
			sooner(w.ban.until)
		}
	}
	if least := now.Add(time.Millisecond); next.Before(least) {
		next = least
	}
	root, self := a.ctx.ActorSystem().Root, a.ctx.Self()
	a.alarm.set(now, next, func(tick shardTick) { root.Send(self, tick) })
}

// end stops the alarm; children end with the actor, and what is known stays in memory.
func (a *decider) end() {
	a.ended = true
	a.alarm.stop()
	if a.ctx != nil && a.election != nil {
		a.cfg.Shard.Doubted(true, time.Now())
	}
}
