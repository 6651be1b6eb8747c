package supervisor

import (
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/strategy"
	"fencepost/admin"
)

// tree is the root actor. Its children keep their PIDs for the life of the process.
type tree struct {
	s     *Fencepost
	ready chan error

	backendDeps  *backend.Deps
	laneDeps     *lane.Deps
	frontendDeps *frontend.Deps

	lanes, sessions         []*actor.PID
	cancel, admin, listener *actor.PID
	fleet                   *actor.PID // nil: there is none
	mu                      sync.Mutex // guards shards
	shards                  map[string]*actor.PID
	spawned                 int // actors of shards, so that each has a name of its own
}

// shardPrefix begins the names of the shards' actors.
const shardPrefix = "shard-"

// Receive implements actor.Actor.
func (t *tree) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		t.ready <- t.start(ctx)
	case spawnShard:
		t.spawnShard(ctx, m.shard)
	case endShard:
		t.stopShard(ctx, m.name)
	case *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		t.s.log.Error().Type("message_type", m).Msg("root: unhandled message")
	}
}

func (t *tree) start(ctx actor.Context) error {
	s := t.s
	t.shards = map[string]*actor.PID{}
	keys := frontend.NewKeys()
	loops := s.group.Loops()
	first := loops[0]
	var err error
	onFirst := []actor.PropsOption{actor.WithDispatcher(first), actor.WithMailbox(func() actor.Mailbox { return first.NewMailbox() })}
	if t.cancel, err = ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &frontend.KeyTable{Log: s.log, Keys: keys, PeerID: s.settings.Load().PeerID, Forward: s.forwardCancel}
	}, onFirst...), "cancel"); err != nil {
		return err
	}
	for i, l := range loops {
		pid, err := ctx.SpawnNamed(lane.LanesProps(&lane.Lanes{Deps: t.laneDeps, Loop: l}), fmt.Sprintf("lanes-%d", i))
		if err != nil {
			return err
		}
		t.lanes = append(t.lanes, pid)
	}
	if err := t.spawnFleet(ctx, s.config.Load()); err != nil {
		return err
	}
	// A shard tells the lanes of each view, and lanes come to know it by their first client: both are there before one.
	for _, sh := range s.shards {
		t.spawnShard(ctx, sh)
	}
	t.frontendDeps.Lanes, t.frontendDeps.Cancel = t.lanes, t.cancel
	for i, l := range loops {
		pid, err := ctx.SpawnNamed(frontend.SessionsProps(&frontend.Sessions{Deps: t.frontendDeps, Loop: l}), fmt.Sprintf("sessions-%d", i))
		if err != nil {
			return err
		}
		t.sessions = append(t.sessions, pid)
	}
	// The console looks at the actors above, and frontends send to it: it comes between them and the first client.
	console := admin.NewConsole(s, s.log)
	if t.admin, err = ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return console }), "admin"); err != nil {
		return err
	}
	t.frontendDeps.Admin = t.admin
	t.attachFleet(ctx)
	listening := make(chan error, 1)
	t.listener, err = ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return newListener(s, first, listening) }, onFirst...), "listener")
	if err != nil {
		return err
	}
	return <-listening
}

// shardPID is the actor of a shard. Any goroutine.
func (t *tree) shardPID(name string) *actor.PID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shards[name]
}

// strategy is that of the root. Shards and the fleet are restarted and rebuild; the others go on with their next message.
func (t *tree) strategy(child *actor.PID) actor.SupervisorStrategy {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range t.shards {
		if pid.Equal(child) {
			return strategy.Restart(t.s.log)
		}
	}
	if t.fleet != nil && t.fleet.Equal(child) {
		return strategy.Restart(t.s.log)
	}
	return strategy.Resume(t.s.log)
}
