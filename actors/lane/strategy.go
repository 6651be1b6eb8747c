package lane

import (
	"fmt"
	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// StopOnFailure is the supervision of frontends and backends: one that fails is stopped, and its sockets close. What it
// held is reclaimed by its parent on Terminated.
func StopOnFailure(log zerolog.Logger) actor.SupervisorStrategy { return stopOnFailure{log} }

type stopOnFailure struct{ log zerolog.Logger }

// HandleFailure implements actor.SupervisorStrategy.
func (s stopOnFailure) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	s.log.Error().Str("actor", child.Id).Str("reason", fmt.Sprint(reason)).Type("message_type", message).Msg("actor failed and is stopped")
	sup.StopChildren(child)
}
