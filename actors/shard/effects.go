package shard

import (
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// elect has the election take an event in, and executes what it decides. at is when the event happened: from then on a
// doubt that it raises counts, as it does in the election.
func (a *decider) elect(now, at time.Time, e election.Event) {
	effects := a.election.Step(now, e)
	a.mem.view = a.election.View() // before anything below can fail
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
		a.mem.counts.Doubts++
		a.logTransition(now, zerolog.InfoLevel, "doubt", e.Host, e.Why)
	case election.DoubtOver:
		a.logTransition(now, zerolog.InfoLevel, "doubt over", e.Host, "it was proven by an answer requested after the last doubt")
	case election.Demoted:
		a.mem.counts.Demotions++
		a.logTransition(now, zerolog.WarnLevel, "demoted", e.Host, e.Why)
	case election.Conflict:
		a.conflict = true
		a.logTransition(now, zerolog.WarnLevel, "conflict", "", conflictText(e))
	case election.ConflictOver:
		a.conflict = false
		a.logTransition(now, zerolog.InfoLevel, "conflict over", "", "each timeline has at most one writable server again")
	case election.Foreign:
		a.logTransition(now, zerolog.WarnLevel, "foreign", e.Host, foreignText(e))
	case election.ProbeNow:
		a.probe(e.Host)
	case election.ClaimRefused, election.Stale:
		a.log.Debug().Stringer("effect", e).Msg("shard: dropped")
	case election.Bug:
		a.bug(now, e.What)
	}
}

func (a *decider) viewChanged(now time.Time, e election.ViewChanged) {
	level := zerolog.InfoLevel
	if e.View.Elected == "" && e.Previous.Elected != "" {
		level = zerolog.WarnLevel
	}
	if e.View.Elected != e.Previous.Elected {
		a.mem.counts.Elections++
	}
	a.logTransition(now, level, "view", e.View.Elected, e.Reason)
	if e.View.Elected != e.Previous.Elected {
		a.assess(now, health.Elected{Host: e.View.Elected})
	}
}

// assess has the state of the shard take an event in.
func (a *decider) assess(now time.Time, e health.Event) {
	for _, e := range a.health.Step(now, e) {
		a.stale = true
		switch e := e.(type) {
		case health.Entered:
			a.mem.counts.States[e.State]++
			level := zerolog.InfoLevel
			if e.State == health.Failover {
				level = zerolog.WarnLevel
				a.probeAll()
			}
			a.logTransition(now, level, "state", e.Host, e.Reason)
		case health.Bug:
			a.bug(now, e.What)
		}
	}
}

// bug logs what cannot happen, at most once a minute.
func (a *decider) bug(now time.Time, what string) {
	if count, due := a.bugs.due(now); due {
		a.log.Error().Str("what", what).Int("count", count).Msg("shard: unexpected event; assumed unsafe")
	}
}

// finish ends the handling of a message: it feeds what one machine says to the other, publishes, and sets the timer.
func (a *decider) finish(now time.Time) {
	a.dropGone(now)
	a.endPauseIfDue(now)
	a.feedJudge(now)
	a.feedProof(now)
	a.setPace(now)
	if a.stale || a.explains() {
		a.publish(now)
		a.stale = false
	}
	// Behind the view: whoever sees the doubt over sees who is elected.
	if _, doubted := a.election.InDoubt(); !doubted && a.cfg.Shard.doubted.Load() {
		a.cfg.Shard.Doubted(false, now)
	}
	a.save(now)
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
	if a.names == nil {
		a.watchNames()
	}
	a.reconcileMonitors(now)
	a.stale = true // bans end, and answers age
}

// tickEvery is how long rows and lag go without being looked at.
const tickEvery = time.Second

// arm sets the timer to when time alone may change something.
func (a *decider) arm(now time.Time) {
	next := now.Add(tickEvery)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(a.election.Next())
	sooner(a.health.Next())
	if a.paused() {
		sooner(a.mem.pause.until)
	}
	if a.writeWaits(now) {
		sooner(a.waited.Add(waitKept))
	}
	for _, w := range a.hosts {
		if w.banned(now) {
			sooner(w.ban.until)
		}
	}
	if least := now.Add(time.Millisecond); next.Before(least) {
		next = least
	}
	if !a.armed.IsZero() && !next.Before(a.armed) {
		return // also if that time has passed: the tick is on its way
	}
	a.disarm()
	a.armed = next
	root, self, id := a.ctx.ActorSystem().Root, a.ctx.Self(), a.timerID
	a.timer = time.AfterFunc(next.Sub(now), func() { root.Send(self, shardTick{id}) })
}

func (a *decider) disarm() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timerID++
}

// end gives up the timer; children end with the actor, and what is known stays in memory.
func (a *decider) end() {
	a.ended = true
	a.disarm()
	if a.ctx != nil && a.election != nil {
		a.cfg.Shard.Doubted(true, time.Now())
	}
}

// probe asks the host's monitor for a probe now.
func (a *decider) probe(h role.Host) {
	if w := a.hosts[h]; w != nil && w.pid != nil {
		a.ctx.Send(w.pid, probeNow)
	}
}

func (a *decider) probeAll() {
	for _, h := range a.list {
		a.probe(h.Host)
	}
}
