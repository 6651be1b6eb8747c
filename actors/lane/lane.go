package lane

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/lane/placement"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
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

// Lane is a pool's part on one event loop: its checkouts, its leases and its backends, a host pool per host. It executes what
// the pure packages pool, grant and placement decide.
type Lane struct {
	deps    *Deps
	loop    eventloop.Loop
	key     PoolKey
	spec    *PoolSpec
	stats   *Stats
	spawner *eventloop.Spawner
	params  *startupParams // of all lanes of the pool

	ctx  actor.Context // valid during Receive
	root *actor.RootContext
	self *actor.PID

	view  *shard.View    // the one that is acted on; see sync
	place placement.View // what the placing needs of it

	hostPools []*hostPool // one a host
	unplaced  *hostPool   // without a host
	write     *hostPool   // the elected host's, or unplaced

	waiters   waiters
	logins    logins
	unsettled unsettledDoubts
	clients   int
	attaches  uint64 // Attach messages that came

	fencing int    // backends that are being fenced
	fenceID uint64 // of the last fence

	paused   bool      // by PAUSE
	draining bool      // the process ends
	stopped  bool      // its children are ending
	emptied  time.Time // since when no client uses the lane; zero while one does

	askedAt    time.Time // when other lanes were last asked for a permit
	reportedAt time.Time // when the shard was last told that a write waits
	timer      eventloop.Timer
	interval   time.Duration // of the armed timer
}

func newLane(deps *Deps, loop eventloop.Loop, key PoolKey, spec *PoolSpec) *Lane {
	l := &Lane{deps: deps, loop: loop, key: key, spec: spec, stats: &Stats{}, unsettled: unsettledDoubts{}}
	l.logins.lane = l
	l.spawner = eventloop.NewSpawner(loop)
	return l
}

// inherit takes over from the lane that failed before it, nil for the first: its clients are still there.
func (l *Lane) inherit(old *Lane) *Lane {
	if old != nil {
		l.clients, l.stats, l.attaches, l.paused, l.draining = old.clients, old.stats, old.attaches, old.paused, old.draining
		// Checkouts, answers to fences, and doubts may come back from then.
		l.waiters.turn, l.fenceID, l.unsettled = old.waiters.turn, old.fenceID, old.unsettled
	}
	return l
}

// Receive implements actor.Actor.
func (l *Lane) Receive(ctx actor.Context) {
	l.ctx = ctx
	if l.stopped {
		l.receiveStopping(ctx.Message())
		return
	}
	if l.record(ctx.Message()) {
		return
	}
	if l.view != nil && l.view != l.spec.Shard.View() {
		l.sync(false)
	}
	l.handle(ctx.Message())
	l.arm()
	l.ctx = nil
}

// record notes what could not be recovered if the handling of this message panics: who waits for an answer, who has come and
// gone, and that a doubt's message has come. It reports whether that was all there is to do.
func (l *Lane) record(m any) (done bool) {
	switch m := m.(type) {
	case *Checkout:
		l.waiters.record(m)
	case *Spoiled:
		l.waiters.record(m.Checkout)
	case *Attach:
		l.logins.placing = m
		l.clients++
		l.attaches++
	case *Detach:
		l.clients--
	case *backend.Lost:
		l.reportLost(m)
	case *backend.Hinted:
		l.reportHint(m)
	case *actor.Stopping, *actor.Restarting:
		l.stop()
		return true
	}
	return false
}

func (l *Lane) handle(m any) {
	switch m := m.(type) {
	case *Checkout:
		l.checkout(m)
	case *Checkin:
		l.checkin(m)
	case *Abandon:
		l.abandon(m.Checkout)
	case *Attach:
		l.attach(m)
	case *Detach:
		l.detach(m)
	case *CancelLease:
		l.cancel(m)
	case *Spoiled:
		l.spoiled(m)
	case *backend.Opened:
		if e := l.entryOf(m.Backend); e != nil {
			e.opened()
		}
	case *backend.DialFailed:
		if e := l.entryOf(m.Backend); e != nil {
			e.dialFailed(m)
		}
	case *backend.Cleaned:
		if e := l.entryOf(m.Backend); e != nil {
			e.hp.step(pool.Cleaned{Slot: e.slot})
		}
	case *backend.Lost:
		l.lost(m)
	case *backend.Fenced:
		l.fenced(m)
	case *backend.CancelEnded:
		l.cancelEnded(m)
	case *backend.Hinted: // reported by record
	case *backend.Promoted:
		if e := l.entryOf(m.Backend); e != nil {
			l.reportTo(e.shard, &shard.Promoted{Host: m.Backend.Host(), At: m.At})
		}
	case tick:
		l.tick()
	case permitOffered:
		l.permitOffered()
	case yieldPermit:
		l.yieldPermit(m)
	case viewChanged:
		l.reportConnections(m)
	case controlLane:
		l.control(m.verb)
	case reloadLane:
		l.reload(m.spec)
	case *actor.Terminated:
		l.terminated(m.Who)
	case *actor.Started:
		l.start()
	default:
		l.deps.Log.Error().Type("message_type", m).Str("pool", l.name()).Msg("lane: unhandled message")
	}
}

func (l *Lane) name() string { return l.key.Database + "." + l.key.ServerUser }

func (l *Lane) start() {
	l.root, l.self = l.ctx.ActorSystem().Root, l.ctx.Self()
	l.params = l.deps.Budgets.joinParams(l.key)
	l.timer.Fire = func() { l.root.Send(l.self, tick{}) }
	l.view = &shard.View{} // no host yet: sync goes from here to what is published
	l.unplaced = newHostPool(l, "")
	l.unplaced.adoptControls()
	l.write = l.unplaced
	l.sync(true)
}

// receiveStopping answers what comes while the lane's children end.
func (l *Lane) receiveStopping(m any) {
	root := l.ctx.ActorSystem().Root
	switch m := m.(type) {
	case *Checkout:
		root.Send(m.From, &Refused{Req: m.Req, Err: pgerr.Shutdown()})
	case *Attach:
		root.Send(m.From, &AttachRefused{Req: m.Req, Err: pgerr.Shutdown()})
	case *CancelLease:
		m.Cancel.Done()
	case *Spoiled:
		root.Send(m.Checkout.From, &Refused{Req: m.Checkout.Req, Err: pgerr.Shutdown()})
	case *backend.Lost: // its doubt has to reach the shard all the same
		if m.Doubts {
			l.reportLost(m)
		}
	case *backend.Hinted:
		l.reportHint(m)
	case *actor.Stopped:
		l.reportUnsettled()
	}
}

// stop refuses whoever waits and gives the permits back; the backends are children and close with the lane. It may have
// failed in the middle of anything: only what record has noted for this moment is to be relied on.
func (l *Lane) stop() {
	l.stopped = true
	l.loop.StopTimer(&l.timer)
	if l.unplaced == nil { // it failed before it had started
		return
	}
	l.all(func(hp *hostPool) {
		hp.machine.Shut()
		hp.entries(func(e *entry) {
			if e.state.open() && !l.unsettled.lossRaised(e) { // nothing more is heard of it
				l.reportTo(e.shard, &shard.HostLost{Host: hp.host, Backend: e.b.ID, Expected: true, Opened: e.b.OpenedAt(), At: l.loop.Now()})
			}
		})
	})
	for _, co := range l.waiters.asked {
		l.root.Send(co.From, &Refused{Req: co.Req, Err: pgerr.Shutdown()})
	}
	l.waiters.asked = nil
	l.logins.refuseAll(pgerr.Shutdown())
	for _, hp := range l.hostPools {
		for hp.permits > 0 {
			hp.returnPermit()
		}
		hp.drop()
	}
	l.deps.Budgets.leaveParams(l.key)
}

// arm keeps a timer running while there is something that time can change. It runs after every message.
func (l *Lane) arm() {
	want := time.Duration(0)
	switch {
	case len(l.waiters.asked) > 0 || len(l.logins.pending) > 0 || l.fencing > 0:
		want = busyTick
	case l.interval != 0 && l.interval <= idleTick:
		return // nothing below is sooner
	case l.size() > 0 || l.spec.Limits.MinSize > 0 || len(l.hostPools) > 1:
		want = idleTick
	case l.spec.Auto && l.clients == 0:
		want = autoTick
	}
	if want > 0 && (l.interval == 0 || want < l.interval) {
		l.interval = want
		l.loop.SetTimer(&l.timer, want)
	}
}

func (l *Lane) size() int {
	n := 0
	for _, hp := range l.hostPools {
		n += hp.machine.Size()
	}
	return n
}

func (l *Lane) tick() {
	l.interval = 0
	l.all(func(hp *hostPool) { hp.step(pool.Tick{}) })
	l.tickFences()
	l.logins.expire()
	l.reportWaiting()
	l.probeCandidates()
	l.dropHostPools()
	l.retireIfUnused()
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

// reload replaces the limits; backends opened for another shard or database name are replaced.
func (l *Lane) reload(spec *PoolSpec) {
	old := l.spec
	l.spec = spec
	l.unplaced.step(pool.Configure{Config: l.limits("")})
	for _, hp := range l.hostPools {
		l.deps.Budgets.For(l.key, hp.host, spec)
		l.offerPermit(hp.poolBud.spare())
		l.offerPermit(hp.dbBud.spare())
		hp.step(pool.Configure{Config: l.limits(hp.host)})
	}
	if old.DBName == spec.DBName && old.Shard == spec.Shard {
		return
	}
	var waiters []*Checkout
	for _, hp := range l.hostPools {
		waiters = append(waiters, hp.unfence(func(*entry) bool { return true })...)
		if old.Shard != spec.Shard && !old.Shard.View().Static {
			// The lane hears of the old shard's elections no more.
			hp.entries(func(e *entry) { e.supersede("the database is on another shard now") })
			hp.writers = false
		}
		hp.step(pool.Reconnect{})
	}
	l.params.forget()
	if old.Shard != spec.Shard {
		l.sync(true)
	}
	slices.SortFunc(waiters, func(a, b *Checkout) int { return cmp.Compare(a.Turn, b.Turn) })
	for _, co := range waiters {
		l.requeue(co)
	}
}

// retireIfUnused asks the parent to end the lane of a made-up database name that no client has used for long.
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

func (l *Lane) String() string { return fmt.Sprintf("lane %s on loop %d", l.name(), l.loop.Index()) }
