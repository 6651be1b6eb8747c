package lane

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
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

// Lane is a pool's part on one event loop: its queues, its leases and its backends, a host pool per host. It executes what
// the pool machines decide.
type Lane struct {
	deps    *Deps
	loop    eventloop.Loop
	key     PoolKey
	spec    *PoolSpec
	stats   *Stats
	spawner *eventloop.Spawner

	ctx       actor.Context // valid during Receive
	root      *actor.RootContext
	self      *actor.PID
	view      *shard.View // the one that is acted on; see sync
	hostPools []*hostPool // one a host, the primary's first as a rule
	unplaced  *hostPool   // who has no host
	write     *hostPool   // the elected host's, or unplaced
	params    *startupParams

	clients       int
	pending       []*login        // not answered: no server login has succeeded yet
	pendingAttach *Attach         // being handled: not answered, and not among the pending yet
	attaches      uint64          // Attach messages that came
	asked         []*Checkout     // not answered, wherever they are
	unsettled     unsettledDoubts // doubts raised for backends of this lane that it has not passed on yet
	turn          uint64          // of the last checkout
	next          int             // round robin over standbys
	fencing       int             // backends that are being fenced
	fenceID       uint64
	paused        bool
	draining      bool
	stopped       bool      // its children are ending
	askedAt       time.Time // when other lanes were last asked for a permit
	reportedAt    time.Time // when the shard was last told that a write waits
	emptied       time.Time // since when nobody uses the lane; zero while somebody does
	timer         eventloop.Timer
	interval      time.Duration // of the armed timer
}

type tick struct{}

func newLane(deps *Deps, loop eventloop.Loop, key PoolKey, spec *PoolSpec) *Lane {
	l := &Lane{deps: deps, loop: loop, key: key, spec: spec, stats: &Stats{}, unsettled: unsettledDoubts{}}
	l.spawner = eventloop.NewSpawner(loop)
	return l
}

// inherit takes over from the lane that failed before it, nil for the first: its clients are still there.
func (l *Lane) inherit(old *Lane) *Lane {
	if old != nil {
		l.clients, l.stats, l.attaches, l.paused, l.draining = old.clients, old.stats, old.attaches, old.paused, old.draining
		l.turn, l.fenceID, l.unsettled = old.turn, old.fenceID, old.unsettled // checkouts and doubts may come back from then
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
	// What would be missed for ever is taken in before anything here can fail: who waits for an answer, who has come and
	// gone, and the word of whoever has raised doubt.
	switch m := ctx.Message().(type) {
	case *Checkout:
		l.recordAsked(m)
	case *Spoiled:
		l.recordAsked(m.Checkout)
	case *Attach:
		l.pendingAttach = m
		l.clients++
		l.attaches++
	case *Detach:
		l.clients--
	case *backend.Lost:
		l.reportLost(m)
	case *backend.Hinted:
		l.hinted(m)
	case *actor.Stopping, *actor.Restarting:
		l.stop()
		return
	}
	if l.view != nil && l.view != l.spec.Shard.View() {
		l.sync(false)
	}
	switch m := ctx.Message().(type) {
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
	case *backend.CancelEnded:
		l.stats.Cancels[m.Outcome]++
		if m.Outcome != cancellease.Dropped {
			l.stats.CancelLease.Observe(m.Took)
		}
	case *backend.Opened:
		l.opened(m)
	case *backend.DialFailed:
		l.dialFailed(m)
	case *backend.Cleaned:
		if e := l.entryOf(m.Backend); e != nil {
			e.hp.step(pool.Cleaned{Slot: m.Backend.Slot})
		}
	case *backend.Lost:
		l.lost(m)
	case *backend.Fenced:
		l.fenced(m)
	case *backend.Hinted: // passed on above
	case *Spoiled:
		l.spoiled(m)
	case tick:
		l.tick()
	case permitOffered:
		l.each(func(hp *hostPool) {
			hp.step(pool.Tick{})
			hp.decline()
		})
	case yieldPermit:
		l.yieldPermit(m)
	case viewChanged:
		l.recount(m.recount)
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
	l.arm()
	l.ctx = nil
}

func (l *Lane) name() string { return l.key.Database + "." + l.key.ServerUser }

// each calls f for every host pool with a host.
func (l *Lane) each(f func(*hostPool)) {
	for _, hp := range l.hostPools {
		f(hp)
	}
}

// entryOf is the record of a backend; nil if its slot is gone, or of the lane that failed before this one: what is still
// said about those changes nothing here.
func (l *Lane) entryOf(b *backend.Backend) *entry {
	if m, _ := b.Slot.Owner.(*entry); m != nil && m.hp.lane == l {
		return m
	}
	return nil
}

// all calls f for every host pool, that of who has no host included.
func (l *Lane) all(f func(*hostPool)) {
	l.each(f)
	f(l.unplaced)
}

// entries calls f for every backend of the host pool.
func (hp *hostPool) entries(f func(*entry)) {
	hp.machine.Slots(func(s *pool.Slot) {
		if m, ok := s.Owner.(*entry); ok {
			f(m)
		}
	})
}

func (l *Lane) start() {
	l.root, l.self = l.ctx.ActorSystem().Root, l.ctx.Self()
	l.params = l.deps.Budgets.joinParams(l.key)
	l.timer.Fire = func() { l.root.Send(l.self, tick{}) }
	l.view = &shard.View{} // nobody yet: sync goes from here to what is published
	l.unplaced = l.newHostPool("")
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
	case *backend.Lost: // its doubt is to be taken in all the same
		if m.Doubts {
			l.reportLost(m)
		}
	case *backend.Hinted:
		l.hinted(m)
	case *actor.Stopped:
		l.reportUnsettledDoubts()
	}
}

// stop refuses whoever waits and gives the permits back; the backends are children and close with the lane. It may have
// failed in the middle of anything: only what it has written down for this moment is to be relied on.
func (l *Lane) stop() {
	l.stopped = true
	l.loop.StopTimer(&l.timer)
	l.all(func(hp *hostPool) {
		hp.machine.Shut()
		hp.entries(func(m *entry) {
			if m.connected && !m.losing { // nothing more is heard of it
				l.reportTo(m.shard, &shard.HostLost{Host: hp.host, Backend: m.b.ID, Expected: true, Opened: m.b.OpenedAt(), At: l.loop.Now()})
			}
		})
	})
	for _, co := range l.asked {
		l.root.Send(co.From, &Refused{Req: co.Req, Err: pgerr.Shutdown()})
	}
	if a := l.pendingAttach; a != nil {
		l.pending = append(l.pending, &login{Attach: a})
	}
	for _, a := range l.pending {
		l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: pgerr.Shutdown()})
	}
	l.asked, l.pending = nil, nil
	l.each(func(hp *hostPool) {
		for hp.permits > 0 {
			hp.returnPermit()
		}
		hp.drop()
	})
	l.deps.Budgets.leaveParams(l.key)
}

// arm keeps a timer running while there is something that time can change. It runs after every message.
func (l *Lane) arm() {
	want := time.Duration(0)
	switch {
	case len(l.asked) > 0 || len(l.pending) > 0 || l.fencing > 0:
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

func (l *Lane) waiting() int {
	n := 0
	l.all(func(hp *hostPool) { n += hp.machine.Waiting() })
	return n
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
	l.expireLogins()
	l.reportWaiting()
	l.probeCandidates()
	l.dropHostPools()
	l.retireIfUnused()
}

func (l *Lane) String() string { return fmt.Sprintf("lane %s on loop %d", l.name(), l.loop.Index()) }
