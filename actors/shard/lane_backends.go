package shard

import (
	"fmt"
	"sort"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/shard/pool"
	"fencepost/pgerr"
)

// attach answers at once when the pool knows what its servers report; else it has one opened first.
func (l *Lane) attach(m *Attach) {
	l.clients++
	l.attaches++
	l.emptied = time.Time{}
	l.stats.Logins++
	switch {
	case l.poolBud.welcome.Load() != nil:
		l.answer(m)
	case l.rejected && l.machine.Failing() && l.machine.BackingOff(l.loop.Now()):
		l.root.Send(m.From, &AttachRefused{Req: m.Req, Err: l.refusal})
	default:
		l.pending = append(l.pending, m)
		l.step(pool.Warm{N: 1})
	}
}

func (l *Lane) answer(m *Attach) {
	l.root.Send(m.From, &Attached{Req: m.Req, Lane: l.self, Welcome: l.poolBud.welcome.Load(), Stats: l.stats})
}

func (l *Lane) detach(m *Detach) {
	l.clients--
	l.reclaim(m.From)
	for _, w := range l.machine.Waiters() {
		if w.Owner.(*Checkout).From.Equal(m.From) {
			l.step(pool.Abandon{Waiter: w})
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
	view := l.spec.Shard.View()
	l.root.Send(l.deps.ShardOf(l.spec.Shard.Name), &Connected{Host: m.Backend.Host(), At: l.loop.Now()})
	l.refusal, l.rejected = nil, false
	if m.Epoch != view.Epoch {
		l.step(pool.Opened{Slot: m.Backend.Slot})
		l.step(pool.Reconnect{})
		return
	}
	l.poolBud.welcome.Store(makeWelcome(l.deps.Backend.Names, m.Backend))
	for _, a := range l.pending {
		l.answer(a)
	}
	l.pending = nil
	l.step(pool.Warm{N: 0})
	l.step(pool.Opened{Slot: m.Backend.Slot})
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
	l.stats.DialFailures++
	l.deps.Log.Warn().Str("pool", l.name()).Str("host", m.Backend.Host()).Err(m.Err).Msg("server login failed")
	l.root.Send(l.deps.ShardOf(l.spec.Shard.Name), &ConnectFailed{Host: m.Backend.Host(), Code: m.Err.Code, Err: m.Err, At: l.loop.Now()})
	l.refusal, l.rejected = m.Err, m.Rejected && !startingUp(m.Err)
	if l.rejected {
		for _, a := range l.pending {
			l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: m.Err.Fatal()})
		}
		l.pending = nil
		l.step(pool.Warm{N: 0})
	}
	l.step(pool.DialFailed{Slot: m.Backend.Slot})
	l.drop(m.Backend.Slot)
}

func (l *Lane) lost(m *backend.Lost) {
	if !m.Expected {
		l.stats.Losses++
		l.deps.Log.Info().Str("pool", l.name()).Uint64("backend", m.Backend.ID).Str("host", m.Backend.Host()).Str("code", m.Code).AnErr("cause", m.Err).Msg("server connection lost")
	}
	l.root.Send(l.deps.ShardOf(l.spec.Shard.Name), &HostLost{Host: m.Backend.Host(), Code: m.Code, Expected: m.Expected, At: l.loop.Now()})
	l.step(pool.Lost{Slot: m.Backend.Slot})
	l.drop(m.Backend.Slot)
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
	var slot *pool.Slot
	l.machine.Slots(func(s *pool.Slot) {
		if m, ok := s.Owner.(*member); ok && m.pid != nil && m.pid.Equal(who) {
			slot = s
		}
	})
	if slot != nil {
		l.stats.Losses++
		l.step(pool.Lost{Slot: slot})
	}
}

// reload replaces the limits; backends opened for another host, name or password are replaced.
func (l *Lane) reload(spec *PoolSpec) {
	old := l.spec
	l.spec = spec
	l.deps.Budgets.For(l.key, spec)
	l.tell(l.poolBud.spare())
	l.tell(l.dbBud.spare())
	l.step(pool.Configure{Config: spec.Limits})
	if old.DBName != spec.DBName || old.Shard != spec.Shard {
		l.poolBud.welcome.Store(nil)
		l.step(pool.Reconnect{})
	}
}

// retireIfUnused asks the parent to end the lane of a made-up database name that nobody has used for long.
func (l *Lane) retireIfUnused() {
	now := l.loop.Now()
	switch {
	case !l.spec.Auto || l.clients > 0 || l.machine.Size() > 0:
		l.emptied = time.Time{}
	case l.emptied.IsZero():
		l.emptied = now
	case now.Sub(l.emptied) >= autoIdle:
		l.root.Send(l.ctx.Parent(), unused{l.key})
	}
}

func (l *Lane) control(v Verb) {
	switch v {
	case Pause:
		l.step(pool.Pause{})
	case Resume:
		l.step(pool.Resume{})
	case Reconnect:
		l.step(pool.Reconnect{})
	case Drain:
		l.step(pool.Drain{})
	}
}

// unfinished is how many backends keep a Pause or Reconnect from being complete.
func (l *Lane) unfinished(wait Verb) int {
	n := 0
	l.machine.Slots(func(s *pool.Slot) {
		if wait == Pause || s.Retiring() || s.State() == pool.Closing {
			n++
		}
	})
	return n
}

func (l *Lane) describe(now time.Time) LaneRow {
	r := LaneRow{Loop: l.loop.Index(), Pool: l.key, Spec: l.spec, Clients: l.clients, Waiting: l.machine.Waiting(), Paused: l.machine.Paused(), Failing: l.machine.Failing(), Stats: *l.stats}
	if t := l.machine.OldestWait(); !t.IsZero() {
		r.OldestWait = now.Sub(t)
	}
	for s := range r.Counts {
		r.Counts[s] = l.machine.Count(pool.State(s))
	}
	l.machine.Slots(func(s *pool.Slot) {
		m, ok := s.Owner.(*member)
		if !ok || m.b == nil {
			return
		}
		row := BackendRow{ID: m.b.ID, State: s.State(), Host: m.b.Host(), Opened: m.b.OpenedAt(), Since: s.Since(), Retiring: s.Retiring(), Cancelling: m.b.Cancelling() > 0}
		remote, local := m.b.Addrs()
		row.Remote, row.RemotePort = addrText(remote)
		row.Local, row.LocalPort = addrText(local)
		if lg := m.b.Login(); lg != nil {
			row.PID = lg.PID
			row.ApplicationName = l.deps.Backend.Names.Value(m.b.Params, "application_name")
		}
		r.Cancelling += m.b.Cancelling()
		r.Backends = append(r.Backends, row)
	})
	return r
}

func (l *Lane) String() string { return fmt.Sprintf("lane %s on loop %d", l.name(), l.loop.Index()) }
