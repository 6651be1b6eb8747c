package eventloop

import (
	"errors"

	"github.com/asynkron/protoactor-go/actor"
)

// Spawner spawns actors that live on one loop, all with one shared actor.Props. It must be used on that loop.
type Spawner struct {
	loop    *loop
	props   *actor.Props
	pending *Mailbox // of the spawn that is going on
}

// NewSpawner makes a spawner for actors on l, which must come from this package. opts configure the props (supervisor
// strategy and so on); mailbox and dispatcher are the spawner's.
func NewSpawner(l Loop, opts ...actor.PropsOption) *Spawner {
	s := &Spawner{loop: l.(*loop)}
	s.props = actor.PropsFromProducer(s.produceActor, opts...).Configure(
		actor.WithDispatcher(l),
		actor.WithMailbox(s.produceMailbox),
	)
	return s
}

// SpawnNamed spawns a child of parent. produce is called during the call, before any message is handled, with the
// mailbox of the new actor, so that the actor can keep it for its connections; it is called again, with the same
// mailbox, whenever the supervisor restarts the actor, and must return a new value each time. It runs also when the
// name turns out to be taken (actor.ErrNameExists): it must have no side effects.
func (s *Spawner) SpawnNamed(parent actor.SpawnerContext, name string, produce func(mb *Mailbox) actor.Actor) (*actor.PID, error) {
	outer := s.pending
	defer func() { s.pending = outer }()
	s.pending = s.loop.NewMailbox()
	s.pending.produce = produce
	return parent.SpawnNamed(s.props, name)
}

// produceActor is called by the runtime in a spawn, and from the run of the actor's own mailbox in a restart.
func (s *Spawner) produceActor() actor.Actor {
	mb := s.pending
	if mb == nil {
		mb = s.loop.running
	}
	if mb == nil || mb.produce == nil {
		panic(errors.New("eventloop: a spawner's actor was produced outside of its loop"))
	}
	return mb.produce(mb)
}

// produceMailbox is called by the runtime right after produceActor.
func (s *Spawner) produceMailbox() actor.Mailbox { return s.pending }
