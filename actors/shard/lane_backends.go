package shard

import (
	"sort"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/shard/pool"
	"fencepost/pgerr"
	"fencepost/role"
)

// attach answers at once when the pool knows what its servers report; else it has one opened first.
func (l *Lane) attach(m *Attach) {
	l.clients++
	l.attaches++
	l.emptied = time.Time{}
	l.stats.Logins++
	br := l.aim(m.Target)
	switch {
	case l.welcome(m.Target) != nil:
		l.answer(m)
	case br.rejected && br.machine.Failing() && br.machine.BackingOff(l.loop.Now()):
		l.root.Send(m.From, &AttachRefused{Req: m.Req, Err: br.refusal.Fatal()})
	case br == l.home && l.view.Refuse && m.Target == ReadWrite:
		l.root.Send(m.From, &AttachRefused{Req: m.Req, Err: l.whyLate(br, m.Target, 0).Fatal()})
	default:
		l.pending = append(l.pending, m)
		br.setWarm()
		l.tellWaiting()
	}
}

// welcome is what a client with a target is told at login; nil if that is not known yet. With the primary lost new
// clients are told what it reported.
func (l *Lane) welcome(t Target) *Welcome {
	primary, standby := l.welcomes.primary.Load(), l.welcomes.standby.Load()
	switch {
	case l.view.Static || t == ReadWrite:
		return primary
	case t == Standby:
		return standby
	case len(l.view.Standbys) > 0 && standby != nil || primary == nil:
		return standby
	}
	return primary
}

func (l *Lane) answer(m *Attach) {
	l.root.Send(m.From, &Attached{Req: m.Req, Lane: l.self, Welcome: l.welcome(m.Target), Stats: l.stats})
}

// answerPending answers the logins that wait for what has become known.
func (l *Lane) answerPending() {
	still := l.pending[:0]
	for _, a := range l.pending {
		if l.welcome(a.Target) != nil {
			l.answer(a)
		} else {
			still = append(still, a)
		}
	}
	clear(l.pending[len(still):])
	l.pending = still
}

func (l *Lane) detach(m *Detach) {
	l.clients--
	l.reclaim(m.From)
	l.leaveFence(func(co *Checkout) bool { return co.From.Equal(m.From) })
	for _, br := range append(l.branches, l.home) {
		if br.machine.Waiting() == 0 {
			continue
		}
		for _, w := range br.machine.Waiters() {
			if w.Owner.(*Checkout).From.Equal(m.From) {
				br.step(pool.Abandon{Waiter: w})
			}
		}
	}
	for i, a := range l.pending {
		if a.Req == m.Req && a.From.Equal(m.From) {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			break
		}
	}
}

func (l *Lane) opened(m *backend.Opened) {
	mem := memberOf(m.Backend)
	if mem == nil {
		return
	}
	br, now := mem.br, l.loop.Now()
	told := &Connected{Host: br.host, At: now}
	if p := m.Backend.Proof(); p != nil {
		o := p.Observation(role.Host(br.host), role.Fence, p.Asked, p.Answered)
		told.Observation = &o
	}
	l.tellShard(told)
	br.refusal, br.rejected = nil, false
	if l.view.Static && br != l.write {
		br.step(pool.Opened{Slot: m.Backend.Slot})
		br.step(pool.Reconnect{})
		return
	}
	if w := makeWelcome(l.deps.Backend.Names, m.Backend); br == l.write {
		l.welcomes.primary.Store(w)
	} else {
		l.welcomes.standby.Store(w)
	}
	l.answerPending()
	br.setWarm()
	br.step(pool.Opened{Slot: m.Backend.Slot})
}

// makeWelcome collects what a server reported, sorted: a client gets the same bytes whichever backend came first.
func makeWelcome(names backend.Names, b *backend.Backend) *Welcome {
	w := &Welcome{Params: b.Params}
	for name, value := range b.Login().Params {
		w.Parameters = append(w.Parameters, [2]string{name, value})
	}
	sort.Slice(w.Parameters, func(i, j int) bool { return w.Parameters[i][0] < w.Parameters[j][0] })
	return w
}

// startingUp is what a server says before it takes connections: worth waiting for.
func startingUp(e *pgerr.Error) bool { return e.Code == pgerr.CannotConnectNow }

func (l *Lane) dialFailed(m *backend.DialFailed) {
	mem := memberOf(m.Backend)
	if mem == nil {
		return
	}
	br := mem.br
	if !m.Aborted {
		l.stats.DialFailures++
		l.deps.Log.Warn().Str("pool", l.name()).Str("host", br.host).Err(m.Err).Msg("server login failed")
		doubts := !l.view.Static && br == l.write
		if doubts {
			l.spec.Shard.RaiseDoubt(l.loop.Now())
		}
		l.tellShard(&ConnectFailed{Host: br.host, Code: failureCode(m), Err: m.Err, Doubts: doubts, At: l.loop.Now()})
		br.refusal, br.rejected = m.Err, m.Rejected && !startingUp(m.Err)
		if br.rejected {
			l.refusePending(br, m.Err)
		}
	}
	br.step(pool.DialFailed{Slot: m.Backend.Slot})
	l.drop(m.Backend.Slot)
}

// failureCode is the SQLSTATE of a server that refused a login, "" if none answered.
func failureCode(m *backend.DialFailed) string {
	if m.Rejected {
		return m.Err.Code
	}
	return ""
}

// refusePending tells the logins that wait for a server what it said: waiting longer would not help.
func (l *Lane) refusePending(br *branch, e *pgerr.Error) {
	still := l.pending[:0]
	for _, a := range l.pending {
		if l.aim(a.Target) == br {
			l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: e.Fatal()})
		} else {
			still = append(still, a)
		}
	}
	clear(l.pending[len(still):])
	l.pending = still
	br.setWarm()
}

func (l *Lane) lost(m *backend.Lost) {
	if !m.Expected {
		l.stats.Losses++
		l.deps.Log.Info().Str("pool", l.name()).Uint64("backend", m.Backend.ID).Str("host", m.Backend.Host()).Str("code", m.Code).AnErr("cause", m.Err).Msg("server connection lost")
	}
	l.tellShard(&HostLost{Host: m.Backend.Host(), Code: m.Code, Expected: m.Expected, Doubts: m.Doubts, Opened: m.Backend.OpenedAt(), At: l.loop.Now()})
	mem := memberOf(m.Backend)
	if mem == nil {
		return
	}
	l.gone(mem)
	l.drop(m.Backend.Slot)
}

// gone takes a backend out of the books; who was waiting for its fence goes on waiting.
func (l *Lane) gone(m *member) {
	var co *Checkout
	if m.fence != nil {
		co = l.endFence(m).co
		l.stats.Fences[FenceFailed]++
	}
	m.br.step(pool.Lost{Slot: m.b.Slot})
	if co != nil {
		l.requeue(co)
	}
}

// drop stops the actor of a backend whose slot is gone.
func (l *Lane) drop(s *pool.Slot) {
	if m, ok := s.Owner.(*member); ok && m.pid != nil {
		s.Owner = nil
		l.ctx.Stop(m.pid)
	}
}

// terminated notices a backend that ended without a word: it failed.
func (l *Lane) terminated(who *actor.PID) {
	var found *member
	l.each(func(br *branch) {
		br.members(func(m *member) {
			if m.pid != nil && m.pid.Equal(who) {
				found = m
			}
		})
	})
	if found == nil {
		return
	}
	l.stats.Losses++
	now := l.loop.Now()
	if !l.view.Static {
		l.spec.Shard.RaiseDoubt(now)
	}
	l.tellShard(&HostLost{Host: found.br.host, Doubts: !l.view.Static, Opened: found.b.OpenedAt(), At: now})
	l.gone(found)
}

// reload replaces the limits; backends opened for another shard or database name are replaced.
func (l *Lane) reload(spec *PoolSpec) {
	old := l.spec
	l.spec = spec
	l.home.step(pool.Configure{Config: l.limits("")})
	l.each(func(br *branch) {
		l.deps.Budgets.For(l.key, br.host, spec)
		l.tell(br.poolBud.spare())
		l.tell(br.dbBud.spare())
		br.step(pool.Configure{Config: l.limits(br.host)})
	})
	if old.DBName != spec.DBName || old.Shard != spec.Shard {
		l.welcomes.forget()
		l.each(func(br *branch) { br.step(pool.Reconnect{}) })
	}
	if old.Shard != spec.Shard {
		l.sync()
	}
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
	l.home.step(ev)
	l.each(func(br *branch) { br.step(ev) })
}

// unfinished is how many backends keep a Pause or Reconnect from being complete.
func (l *Lane) unfinished(wait Verb) int {
	n := 0
	l.each(func(br *branch) {
		br.machine.Slots(func(s *pool.Slot) {
			if wait == Pause || s.Retiring() || s.State() == pool.Closing {
				n++
			}
		})
	})
	return n
}

func (l *Lane) describe(now time.Time) LaneRow {
	r := LaneRow{Loop: l.loop.Index(), Pool: l.key, Spec: l.spec, Clients: l.clients, Waiting: l.waiting(), Paused: l.paused, Failing: l.failing(), Stats: *l.stats}
	for _, br := range append(l.branches, l.home) {
		if t := br.machine.OldestWait(); !t.IsZero() {
			r.OldestWait = max(r.OldestWait, now.Sub(t))
		}
		for s := range r.Counts {
			r.Counts[s] += br.machine.Count(pool.State(s))
		}
		br.members(func(m *member) {
			if m.b != nil {
				r.Backends = append(r.Backends, l.backendRow(m))
				r.Cancelling += m.b.Cancelling()
			}
		})
	}
	return r
}

// failing reports whether no server connection is open and the last attempt failed, or nobody is known to attempt.
func (l *Lane) failing() bool {
	for _, br := range l.branches {
		if br.machine.Failing() {
			return true
		}
	}
	return l.home.machine.Waiting() > 0
}

func (l *Lane) backendRow(m *member) BackendRow {
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
