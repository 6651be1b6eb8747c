package lane

import (
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/pgerr"
	"fencepost/role"
)

func (l *Lane) detach(m *Detach) {
	l.reclaim(m.From)
	for i := len(l.asked) - 1; i >= 0; i-- {
		if co := l.asked[i]; co.From.Equal(m.From) {
			l.abandon(co)
		}
	}
	if len(l.pending) > 0 {
		l.endLogins(func(a *login) bool { return a.Req == m.Req && a.From.Equal(m.From) })
	}
}

func (l *Lane) opened(m *backend.Opened) {
	e := l.entryOf(m.Backend)
	if e == nil {
		return
	}
	hp, now := e.hp, l.loop.Now()
	e.known()
	e.connected = true
	connected := &shard.Connected{Host: hp.host, Backend: m.Backend.ID, At: now}
	if p := m.Backend.Proof(); p != nil {
		o := p.Observation(role.Host(hp.host), role.Fence, p.Asked, p.Answered)
		connected.Observation = &o
	}
	l.reportTo(e.shard, connected)
	hp.refusal, hp.rejected = nil, false
	if l.view.Static && hp != l.write {
		hp.step(pool.Opened{Slot: m.Backend.Slot})
		hp.step(pool.Reconnect{})
		return
	}
	if w := makeStartupParams(m.Backend); e.shard != l.spec.Shard {
		// It is of no use any more.
	} else if hp == l.write {
		l.params.primary.Store(w)
	} else {
		l.params.standby.Store(w)
	}
	l.answerLogins()
	hp.step(pool.Opened{Slot: m.Backend.Slot})
}

// startingUp is what a server says before it takes connections: worth waiting for.
func startingUp(e *pgerr.Error) bool { return e.Code == pgerr.CannotConnectNow }

func (l *Lane) dialFailed(m *backend.DialFailed) {
	e := l.entryOf(m.Backend)
	if e == nil {
		return
	}
	hp, code, now := e.hp, failureCode(m), time.Now()
	if !m.Aborted {
		l.stats.DialFailures++
		l.deps.Log.Warn().Str("pool", l.name()).Str("host", hp.host).Err(m.Err).Msg("server login failed")
		doubts := !l.view.Static && hp == l.write && e.shard == l.spec.Shard && !shard.AboutLogin(code)
		if doubts {
			e.shard.RaiseDoubt(now)
		}
		l.reportTo(e.shard, &shard.ConnectFailed{Host: hp.host, Code: code, Err: m.Err, Doubts: doubts, At: now})
		hp.refusal, hp.rejected = m.Err, m.Rejected && !startingUp(m.Err)
		if hp.rejected {
			l.refuseLogins(func(a *login) bool { return a.at == hp }, m.Err)
		}
	}
	hp.step(pool.DialFailed{Slot: m.Backend.Slot})
	l.drop(m.Backend.Slot)
}

// failureCode is the SQLSTATE of a server that refused a login, "" if none answered.
func failureCode(m *backend.DialFailed) string {
	if m.Rejected {
		return m.Err.Code
	}
	return ""
}

func (l *Lane) lost(m *backend.Lost) {
	if !m.Expected {
		l.stats.Losses++
		l.deps.Log.Info().Str("pool", l.name()).Uint64("backend", m.Backend.ID).Str("host", m.Backend.Host()).Str("code", m.Code).AnErr("cause", m.Err).Msg("server connection lost")
	}
	e := l.entryOf(m.Backend)
	if e == nil || e.ended {
		return
	}
	if !e.used && !m.Expected { // nobody ever got anything of it
		e.hp.unfit = "its connections end before a client can use them"
		e.hp.step(pool.Setback{})
	}
	l.gone(e)
	l.drop(m.Backend.Slot)
}

// gone takes a backend out of the books; who was waiting for its fence goes on waiting.
func (l *Lane) gone(m *entry) {
	var co *Checkout
	if m.fence != nil {
		co = l.endFence(m).co
		l.stats.Fences[FenceFailed]++
	}
	m.hp.step(pool.Lost{Slot: m.b.Slot})
	if co != nil {
		l.requeue(co)
	}
}

// drop stops the actor of a backend whose slot is gone.
func (l *Lane) drop(s *pool.Slot) {
	if m, ok := s.Owner.(*entry); ok && m.pid != nil {
		s.Owner = nil
		l.ctx.Stop(m.pid)
	}
}

// terminated notices a backend that ended without a word: it failed.
func (l *Lane) terminated(who *actor.PID) {
	var found *entry
	l.each(func(hp *hostPool) {
		hp.entries(func(m *entry) {
			if m.pid != nil && m.pid.Equal(who) {
				found = m
			}
		})
	})
	if found == nil {
		return
	}
	l.stats.Losses++
	if !found.losing && !found.shard.View().Static {
		l.raiser(found)(time.Now())
	}
	l.reportLost(&backend.Lost{Backend: found.b, Doubts: found.losing, Err: errBackendFailed})
	found.ended = true
	l.gone(found)
}

var errBackendFailed = errors.New("internal error: the connection's actor failed")

// reload replaces the limits; backends opened for another shard or database name are replaced.
func (l *Lane) reload(spec *PoolSpec) {
	old := l.spec
	l.spec = spec
	l.unplaced.step(pool.Configure{Config: l.limits("")})
	l.each(func(hp *hostPool) {
		l.deps.Budgets.For(l.key, hp.host, spec)
		l.offerPermit(hp.poolBud.spare())
		l.offerPermit(hp.dbBud.spare())
		hp.step(pool.Configure{Config: l.limits(hp.host)})
	})
	if old.DBName == spec.DBName && old.Shard == spec.Shard {
		return
	}
	var waiters []*Checkout
	l.each(func(hp *hostPool) {
		waiters = append(waiters, hp.unfence(func(*entry) bool { return true })...)
		if old.Shard != spec.Shard && !old.Shard.View().Static {
			hp.supersedeLeases("the database is on another shard now") // nobody tells them of elections any more
			hp.primary = false
		}
		hp.step(pool.Reconnect{})
	})
	l.params.forget()
	if old.Shard != spec.Shard {
		l.sync(true)
	}
	l.rejoin(waiters)
}

// retireIfUnused asks the parent to end the lane of a made-up database name that nobody has used for long.
func (l *Lane) retireIfUnused() {
	now := l.loop.Now()
	switch {
	case !l.spec.Auto || l.clients > 0 || l.size() > 0:
		l.emptied = time.Time{}
	case l.emptied.IsZero():
		l.emptied = now
	case now.Sub(l.emptied) >= autoIdle:
		l.root.Send(l.ctx.Parent(), unused{l.key})
	}
}

func (l *Lane) control(v Verb) {
	var ev pool.Event
	switch v {
	case Pause:
		l.paused, ev = true, pool.Pause{}
	case Resume:
		l.paused, ev = false, pool.Resume{}
	case Reconnect:
		ev = pool.Reconnect{}
	case Drain:
		l.draining, ev = true, pool.Drain{}
	}
	l.all(func(hp *hostPool) { hp.step(ev) })
}

// unfinished is how many backends keep a Pause or Reconnect from being complete.
func (l *Lane) unfinished(wait Verb) int {
	n := 0
	l.each(func(hp *hostPool) {
		hp.machine.Slots(func(s *pool.Slot) {
			if wait == Pause || s.Retiring() || s.State() == pool.Closing {
				n++
			}
		})
	})
	return n
}

func (l *Lane) describe(now time.Time) LaneRow {
	r := LaneRow{Loop: l.loop.Index(), Pool: l.key, Spec: l.spec, Clients: l.clients, Waiting: l.waiting(), Paused: l.paused, Failing: l.failing(), Stats: *l.stats}
	l.all(func(hp *hostPool) {
		if t := hp.machine.OldestWait(); !t.IsZero() {
			r.OldestWait = max(r.OldestWait, now.Sub(t))
		}
		for s := range r.Counts {
			r.Counts[s] += hp.machine.Count(pool.State(s))
		}
		hp.entries(func(m *entry) {
			if m.b != nil {
				r.Backends = append(r.Backends, l.backendRow(m))
				r.Cancelling += m.b.Cancelling()
			}
		})
	})
	return r
}

// failing reports whether no server connection is open and the last attempt failed, or nobody is known to attempt.
func (l *Lane) failing() bool {
	for _, hp := range l.hostPools {
		if hp.machine.Failing() {
			return true
		}
	}
	return l.unplaced.machine.Waiting() > 0
}

func (l *Lane) backendRow(m *entry) BackendRow {
	s := m.b.Slot
	row := BackendRow{ID: m.b.ID, State: s.State(), Host: m.b.Host(), Opened: m.b.OpenedAt(), Since: s.Since(), Retiring: s.Retiring(), Cancelling: m.b.Cancelling() > 0}
	remote, local := m.b.Addrs()
	row.Remote, row.RemotePort = addrText(remote)
	row.Local, row.LocalPort = addrText(local)
	if lg := m.b.Login(); lg != nil {
		row.PID = lg.PID
		row.ApplicationName = l.deps.Backend.Names.Value(m.b.Params, "application_name")
	}
	return row
}
