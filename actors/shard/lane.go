package shard

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/lease"
	"fencepost/actors/shard/pool"
	"fencepost/eventloop"
	"fencepost/pgerr"
)

// How often a lane looks at its clocks: while somebody waits or a server cannot be reached, and otherwise.
const (
	busyTick = 100 * time.Millisecond
	idleTick = time.Second
	autoTick = time.Minute
)

// autoIdle is how long the lane of a database that is not in the settings by name ("*") is kept without clients and
// backends (PgBouncer's autodb_idle_timeout).
const autoIdle = time.Hour

// cleanLimit bounds how long a backend may need to come to rest after its client has left; what runs longer is cancelled.
const cleanLimit = 2 * time.Second

// Deps are what all lanes share.
type Deps struct {
	Backend *backend.Deps
	Budgets *Budgets
	ShardOf func(name string) *actor.PID
	Log     zerolog.Logger
	NextID  func() uint64 // backend ids
}

// Lane is a pool's part on one event loop: its queue, its leases and its backends. It executes what the pool machine
// decides.
type Lane struct {
	deps    *Deps
	loop    eventloop.Loop
	key     PoolKey
	spec    *PoolSpec
	machine *pool.Machine
	stats   *Stats
	spawner *eventloop.Spawner

	ctx      actor.Context // valid during Receive
	root     *actor.RootContext
	self     *actor.PID
	poolBud  *Budget
	dbBud    *Budget
	clients  int
	pending  []*Attach    // not answered: no server login has succeeded yet
	refusal  *pgerr.Error // why the last login failed; nil after a success
	rejected bool         // … and it was the server that said so
	attaches uint64       // Attach messages handled
	stopped  bool         // its children are ending
	askedAt  time.Time    // when other lanes were last asked for a permit
	emptied  time.Time    // since when nobody uses the lane; zero while somebody does
	effects  []pool.Effect
	running  bool
	timer    eventloop.Timer
	interval time.Duration // of the armed timer
}

// member is what a slot's Owner points to.
type member struct {
	b       *backend.Backend
	pid     *actor.PID
	granted Granted
	to      *actor.PID // who has the lease
	patient bool       // of the last Checkin
}

type branch struct{}

type tick struct{}

// offer says that a permit of a budget has become free; giveUp asks for the permit of an idle backend.
type (
	offer  struct{}
	giveUp struct{ share int }
)

func newLane(deps *Deps, loop eventloop.Loop, key PoolKey, spec *PoolSpec) *Lane {
	l := &Lane{deps: deps, loop: loop, key: key, spec: spec, stats: &Stats{}, machine: pool.New(spec.Limits)}
	l.spawner = eventloop.NewSpawner(loop)
	return l
}

// after takes over from the lane that failed before it, nil for the first: its clients are still there.
func (l *Lane) after(old *Lane) *Lane {
	if old != nil {
		l.clients, l.stats, l.attaches = old.clients, old.stats, old.attaches
		if old.machine.Paused() {
			l.machine.Step(time.Time{}, pool.Pause{})
		}
	}
	return l
}

// Receive implements actor.Actor.
func (l *Lane) Receive(ctx actor.Context) {
	l.ctx = ctx
	if l.stopped {
		l.late(ctx.Message())
		return
	}
	switch m := ctx.Message().(type) {
	case *Checkout:
		m.Owner = m
		l.run(l.machine.Checkout(l.loop.Now(), &m.Waiter))
	case *Checkin:
		l.checkin(m)
	case *Abandon:
		l.step(pool.Abandon{Waiter: &m.Checkout.Waiter})
	case *Attach:
		l.attach(m)
	case *Detach:
		l.detach(m)
	case *CancelLease:
		l.cancel(m)
	case *backend.CancelEnded:
		l.stats.Cancels[m.Outcome]++
		if m.Outcome != lease.Dropped {
			l.stats.CancelLease.Observe(m.Took)
		}
	case *backend.Opened:
		l.opened(m)
	case *backend.DialFailed:
		l.dialFailed(m)
	case *backend.Cleaned:
		l.step(pool.Cleaned{Slot: m.Backend.Slot})
	case *backend.Lost:
		l.lost(m)
	case tick:
		l.interval = 0
		l.step(pool.Tick{})
		l.expireLogins()
		l.retireIfUnused()
	case offer:
		l.step(pool.Tick{})
		l.decline()
	case controlLane:
		l.control(m.verb)
	case reloadLane:
		l.reload(m.spec)
	case giveUp:
		l.step(pool.GiveUp{Share: m.share})
	case *Spoiled:
		if mem, ok := m.Backend.Slot.Owner.(*member); ok {
			mem.to = nil
		}
		l.step(pool.Spoiled{Slot: m.Backend.Slot, Waiter: &m.Checkout.Waiter})
	case *actor.Terminated:
		l.terminated(m.Who)
	case *actor.Started:
		l.start()
	case *actor.Stopping, *actor.Restarting:
		l.stop()
	case *actor.Stopped:
	default:
		l.deps.Log.Error().Type("message_type", m).Str("pool", l.name()).Msg("lane: unhandled message")
	}
	l.arm()
	l.ctx = nil
}

func (l *Lane) name() string { return l.key.Database + "." + l.key.ServerUser }

func (l *Lane) start() {
	l.root, l.self = l.ctx.ActorSystem().Root, l.ctx.Self()
	l.poolBud, l.dbBud = l.deps.Budgets.For(l.key, l.spec)
	l.poolBud.Join(l.self)
	l.dbBud.Join(l.self)
	l.timer.Fire = func() { l.root.Send(l.self, tick{}) }
	l.step(pool.Tick{})
}

// late answers what comes while the lane's children end.
func (l *Lane) late(m any) {
	root := l.ctx.ActorSystem().Root
	switch m := m.(type) {
	case *Checkout:
		root.Send(m.From, &Refused{Req: m.Req, Err: pgerr.Shutdown()})
	case *Attach:
		root.Send(m.From, &AttachRefused{Req: m.Req, Err: pgerr.Shutdown()})
	case *CancelLease:
		m.Cancel.Done()
	}
}

// stop refuses what waits and gives the permits back; the backends are children and close with the lane.
func (l *Lane) stop() {
	l.stopped = true
	l.loop.StopTimer(&l.timer)
	l.interval = -1
	for _, w := range l.machine.Shut() {
		co := w.Owner.(*Checkout)
		l.root.Send(co.From, &Refused{Req: co.Req, Err: pgerr.Shutdown()})
	}
	for _, a := range l.pending {
		l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: pgerr.Shutdown()})
	}
	l.pending = nil
	for n := l.machine.Size(); n > 0; n-- {
		l.returnPermit()
	}
	l.tell(l.poolBud.Leave(l.self))
	l.tell(l.dbBud.Leave(l.self))
	l.deps.Budgets.Forget(l.key)
}

// arm keeps a timer running while there is something that time can change.
func (l *Lane) arm() {
	if l.interval < 0 {
		return
	}
	want := time.Duration(0)
	switch {
	case l.machine.Waiting() > 0 || len(l.pending) > 0:
		want = busyTick
	case l.machine.Size() > 0 || l.spec.Limits.MinSize > 0:
		want = idleTick
	case l.spec.Auto && l.clients == 0:
		want = autoTick
	}
	if want > 0 && (l.interval == 0 || want < l.interval) {
		l.interval = want
		l.loop.SetTimer(&l.timer, want)
	}
}

func (l *Lane) step(ev pool.Event) { l.run(l.machine.Step(l.loop.Now(), ev)) }

// run executes effects in order. Executing one may feed the machine again: what follows queues up behind.
func (l *Lane) run(effects []pool.Effect) {
	l.effects = append(l.effects, effects...)
	if l.running {
		return
	}
	l.running = true
	for i := 0; i < len(l.effects); i++ {
		l.execute(l.effects[i])
	}
	clear(l.effects)
	l.effects = l.effects[:0]
	l.running = false
}

func (l *Lane) execute(e pool.Effect) {
	switch e.Kind {
	case pool.Grant:
		l.grant(e)
	case pool.Refuse:
		l.refuse(e.Waiter)
	case pool.Dial:
		l.dial(e.Slot)
	case pool.Scrub:
		m := e.Slot.Owner.(*member)
		l.root.Send(m.pid, &backend.Clean{Reset: l.spec.ResetQuery, Limit: cleanLimit, Patient: m.patient})
	case pool.Close:
		l.root.Send(e.Slot.Owner.(*member).pid, &backend.Close{Why: e.Why.String(), Goodbye: e.Why != pool.WhyBroken})
	case pool.WantPermits:
		l.wantPermits(e.N)
	case pool.ReturnPermit:
		l.returnPermit()
	case pool.Bug:
		l.deps.Log.Error().Str("pool", l.name()).Msg("pool: impossible event")
	}
}

func (l *Lane) dial(s *pool.Slot) {
	view := l.spec.Shard.View()
	target := backend.Target{Host: view.Elected, Database: l.spec.DBName, User: l.key.ServerUser, Source: l.spec.Source, Timeout: l.spec.Dial, Tune: l.spec.Tune}
	id := l.deps.NextID()
	l.stats.Dials++
	m := &member{}
	s.Owner = m
	pid, err := l.spawner.SpawnNamed(l.ctx, fmt.Sprintf("b%d", id), func(mb *eventloop.Mailbox) actor.Actor {
		m.b = backend.New(id, l.deps.Backend, l.loop, mb, l.self, s, target, view.Epoch)
		m.granted.Backend = m.b
		return m.b
	})
	if err != nil {
		l.deps.Log.Error().Err(err).Str("pool", l.name()).Msg("spawn backend")
		l.step(pool.DialFailed{Slot: s})
		return
	}
	m.pid = pid
}
