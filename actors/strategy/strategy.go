// Package strategy says what becomes of an actor that failed. Every parent names the strategy for its children in its
// props; what an actor is called plays no part, since names contain what clients and settings choose.
package strategy

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// Stop is for frontends and backends: the actor is stopped, and its sockets close. What it held is reclaimed by its
// parent on Terminated.
func Stop(log zerolog.Logger) actor.SupervisorStrategy {
	return &strategy{log, "stopped", actor.Supervisor.StopChildren}
}

// Restart is for actors that rebuild what they know (lanes, shards, monitors, the fleet): a new instance goes on with the
// messages behind the one that failed, after all children were stopped.
func Restart(log zerolog.Logger) actor.SupervisorStrategy {
	return &strategy{log, "restarted", actor.Supervisor.RestartChildren}
}

// Resume is for actors whose state is their children, or is sound whatever message they failed on (parents of sessions and
// of lanes, the key table, the listener, the console): the instance goes on with the next message.
func Resume(log zerolog.Logger) actor.SupervisorStrategy {
	return &strategy{log, "resumed", actor.Supervisor.ResumeChildren}
}

// ByChild is for a parent whose children are of several kinds: it chooses the strategy of the child that failed. It is
// called in the parent's turn, and must not panic.
type ByChild func(child *actor.PID) actor.SupervisorStrategy

// HandleFailure implements actor.SupervisorStrategy.
func (f ByChild) HandleFailure(system *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, reason, message any) {
	f(child).HandleFailure(system, sup, child, rs, reason, message)
}

// strategy is used by pointer: the runtime keeps a guardian's in a map.
type strategy struct {
	log     zerolog.Logger
	outcome string
	apply   func(sup actor.Supervisor, children ...*actor.PID)
}

// HandleFailure implements actor.SupervisorStrategy.
func (s *strategy) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	s.log.Error().Str("actor", child.Id).Str("reason", fmt.Sprint(reason)).Type("message_type", message).Str("outcome", s.outcome).Msg("actor failed")
	s.apply(sup, child)
}
