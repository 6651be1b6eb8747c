package cluster

import (
	"net/netip"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
)

// Props spawns the fleet's actor, on the ordinary dispatcher; one actor per Props. The settings must pass Check.
func Props(c Config) *actor.Props {
	cfg := c.withDefaults()
	keys := &memberlist.Keyring{}
	shared := &durable{
		store: newStore(cfg.Boot), subscribers: make(map[string][]*subscriber), names: make(map[evidence.Shard]string),
		journal: newJournal(cfg.Log), keys: keys, roster: newRoster(cfg.TwinAfter),
	}
	setKeys(keys, cfg.Keys)
	return actor.PropsFromProducer(func() actor.Actor {
		own := cfg
		return &fleet{cfg: &own, durable: shared, requests: make(map[uint64]*request), served: make(map[uint64]*servedRequest)}
	})
}

// durable is what a restarted actor finds again. The actor alone uses it, but for what says otherwise.
type durable struct {
	store       *store
	journal     *journal
	roster      *roster
	keys        *memberlist.Keyring
	subscribers map[string][]*subscriber // by shard
	names       map[evidence.Shard]string
	attached    Attach
	meta        meta
	settings    map[string]string
	ready       bool
	joined      bool
	counts      counts
	waitUntil   time.Time
	expected    []netip.AddrPort // members of before a restart of the process
	configured  *Configure
	requestID   uint64
}

// subscriber is a shard.
type subscriber struct {
	to    *actor.PID
	ready bool // it got Ready
	// members are those that it was told of last.
	members []netip.AddrPort
}

// fleet is the actor.
type fleet struct {
	cfg *Config
	*durable
	link    *link    // nil: not open
	opening *opening // nil: not under way
	send    func(any)

	tickGeneration uint64
	timer          *time.Timer
	openAgain      time.Time // zero: it is being opened, or is open
	nextJoin       time.Time
	joins          int  // rounds so far
	joining        bool // a round is under way
	heard          bool // the state of some other member
	closing        bool
	requests       map[uint64]*request
	served         map[uint64]*servedRequest
}

// Receive implements actor.Actor.
func (f *fleet) Receive(ctx actor.Context) {
	now := time.Now()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		f.started(ctx, now)
	case *tick:
		f.tick(ctx, now, msg)
	case *opened:
		f.opened(now, msg)
	case *received:
		f.store.waiting.Add(-1)
		f.received(ctx, now, msg)
	case *receivedState:
		f.store.waiting.Add(-1)
		f.receivedState(ctx, now, msg)
	case *nodeSeen:
		f.nodeSeen(now, msg)
	case *nodeGone:
		f.nodeGone(now, msg)
	case *pinged:
		f.pinged(now, msg)
	case *joined:
		f.joinedRound(ctx, now, msg)
	case *undelivered:
		f.undelivered(msg)
	case *closed:
		ctx.Stop(ctx.Self())
	case *actor.Terminated:
		f.terminated(msg.Who)
	case *actor.Stopping, *actor.Restarting:
		f.end()
	case *actor.Stopped:
	default:
		f.receiveOthers(ctx, now)
	}
}

// receiveOthers takes the messages of other actors.
func (f *fleet) receiveOthers(ctx actor.Context, now time.Time) {
	switch msg := ctx.Message().(type) {
	case *Subscribe:
		f.subscribe(ctx, now, msg)
	case *Publish:
		f.publish(now, msg)
	case *PublishFloorClaim:
		f.publishFloorClaim(ctx, now, msg)
	case *ForgetOrdered:
		f.forgetOrdered(now, msg)
	case *CancelFor:
		f.cancelFor(now, msg)
	case *Operate:
		f.operate(ctx, now, msg)
	case *OperationDone:
		f.operationDone(msg)
	case *Attach:
		f.attach(msg)
	case *SetDraining:
		f.meta.Draining = msg.Draining
		f.announce()
	case *SetLoad:
		f.store.load.Store(uint64(msg.Clients)<<32 | uint64(msg.Servers))
	case *SetSettings:
		f.setSettings(msg.Settings)
	case *Configure:
		f.configured = msg
		f.configure(now)
	case *Describe:
		answer(msg.Reply, f.describe(now))
	case *Scrape:
		answer(msg.Reply, f.families())
	case *Close:
		f.close()
	default:
		f.cfg.Log.Error().Type("message_type", msg).Msg("fleet: unhandled message")
	}
}

// answer never blocks: who asks without room for the answer gets none.
func answer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

func (f *fleet) started(ctx actor.Context, now time.Time) {
	root, self := ctx.ActorSystem().Root, ctx.Self()
	f.send = func(m any) { root.Send(self, m) }
	if f.meta.Member == "" {
		f.meta = meta{Boot: f.cfg.Boot, PeerID: f.cfg.PeerID, Member: f.cfg.Member, Version: f.cfg.Version, Admin: f.cfg.AdminAddr}
		f.waitUntil = now.Add(f.cfg.JoinWait)
	}
	f.configure(now)
	f.storeMeta()
	for _, m := range f.roster.others() { // of before a restart: those who are still there will be seen again
		f.roster.gone(now, m.node.name)
		f.store.locked(func(t *evidence.Table) { t.Left(now, m.Boot) })
	}
	for _, subs := range f.subscribers {
		for _, s := range subs {
			ctx.Watch(s.to)
		}
	}
	f.open()
	f.becomeReady(ctx, now)
	f.arm(now)
}

// configure takes the settings of a reload in, and again after a restart.
func (f *fleet) configure(now time.Time) {
	c := f.configured
	if c == nil {
		return
	}
	f.cfg.Join, f.cfg.Size = c.Join, c.Size
	setKeys(f.keys, c.Keys)
	if f.link != nil {
		f.nextJoin = now
	}
}

// setKeys makes the ring hold these keys, the first one first. What is no key is left out: Check says so before.
func setKeys(ring *memberlist.Keyring, keys [][]byte) {
	for _, k := range keys {
		_ = ring.AddKey(slices.Clone(k))
	}
	if len(keys) > 0 {
		_ = ring.UseKey(keys[0])
	}
	for _, k := range ring.GetKeys() {
		if !slices.ContainsFunc(keys, func(l []byte) bool { return slices.Equal(k, l) }) {
			_ = ring.RemoveKey(k)
		}
	}
}

// arm sets the timer for what is to be done next. There is at least one thing per second.
func (f *fleet) arm(now time.Time) {
	next := now.Add(time.Second)
	for _, t := range []time.Time{f.openAgain, f.nextJoin, f.readyAt(), f.firstDeadline()} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	f.tickGeneration++
	t, send := &tick{f.tickGeneration}, f.send
	f.timer = time.AfterFunc(max(next.Sub(now), time.Millisecond), func() { send(t) })
}

func (f *durable) readyAt() time.Time {
	if f.ready {
		return time.Time{}
	}
	return f.waitUntil
}

func (f *fleet) tick(ctx actor.Context, now time.Time, msg *tick) {
	if msg.generation != f.tickGeneration || f.closing {
		return
	}
	if !f.openAgain.IsZero() && !now.Before(f.openAgain) {
		f.openAgain = time.Time{}
		f.open()
	}
	f.joinAgain(now)
	f.becomeReady(ctx, now)
	f.expireRequests(now)
	f.store.locked(func(t *evidence.Table) { t.Expire(now) })
	f.roster.expire(now)
	reached := f.roster.reached()
	for _, subs := range f.subscribers {
		for _, s := range subs {
			s.tell(ctx, reached)
		}
	}
	for _, m := range f.roster.others() {
		f.compareSettings(m)
	}
	for _, problem := range f.roster.twins(now) {
		f.journal.note(zerolog.ErrorLevel, problem, "")
	}
	f.arm(now)
}
