package supervisor

import (
	"fmt"
	"strings"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/shard"
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

type (
	spawnShard struct{ shard *shard.Shard }
	endShard   struct{ name string }
)

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
	onLoop := func(i int) []actor.PropsOption {
		return []actor.PropsOption{actor.WithDispatcher(loops[i]), actor.WithMailbox(func() actor.Mailbox { return loops[i].NewMailbox() }),
			actor.WithSupervisor(keepGoing{s.log})}
	}
	if t.cancel, err = ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &frontend.KeyTable{Log: s.log, Keys: keys, PeerID: s.settings.Load().PeerID, Forward: s.forwardCancel}
	}, onLoop(0)...), "cancel"); err != nil {
		return err
	}
	for i, l := range loops {
		pid, err := ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &lane.Lanes{Deps: t.laneDeps, Loop: l} }, onLoop(i)...), fmt.Sprintf("lanes-%d", i))
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
	t.listener, err = ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return newListener(s, first, listening) }, onLoop(0)...), "listener")
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

// keepGoing is the supervision of everything above single connections. Actors whose state is their children or is
// rebuilt as it goes (the parents of sessions and lanes, the key table, the listener, the console) drop the message they
// failed on and go on; a lane or shard is restarted, and rebuilds.
type keepGoing struct{ log zerolog.Logger }

// HandleFailure implements actor.SupervisorStrategy.
func (k keepGoing) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	restart := name == fleetName || strings.HasPrefix(name, shardPrefix) || strings.Contains(child.Id, "lanes-") && !strings.HasPrefix(name, "lanes-")
	k.log.Error().Str("actor", child.Id).Str("reason", fmt.Sprint(reason)).Type("message_type", message).Bool("restarted", restart).Msg("actor failed")
	if restart {
		sup.RestartChildren(child)
		return
	}
	sup.ResumeChildren(child)
}
