// Package actortest is for tests that run actors: a runtime that says nothing, a look at who lives in it, failures made on
// purpose, and the supervision that the tree's upper part has.
package actortest

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
)

// NewSystem makes an actor system that logs nothing, dead letters included.
func NewSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithDeadLetterRequestLogging(false), actor.WithDeadLetterThrottleCount(0),
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
}

// Names are those of all actors of a system, sorted.
func Names(s *actor.ActorSystem) (names []string) {
	for _, m := range s.ProcessRegistry.LocalPIDs.LocalPIDs {
		names = append(names, m.Keys()...)
	}
	slices.Sort(names)
	return names
}

// ErrInjected is what an actor fails with when a test makes it fail.
var ErrInjected = errors.New("injected crash")

// Injected reports whether a panic was ErrInjected.
func Injected(reason any) bool {
	err, ok := reason.(error)
	return ok && errors.Is(err, ErrInjected)
}

// KeepGoing is the supervision of the upper part of Fencepost's tree: lanes and shards restart, the others go on.
type KeepGoing struct {
	// Problem is told of failures that were not injected, in fmt's words.
	Problem func(format string, args ...any)
}

// HandleFailure implements actor.SupervisorStrategy.
func (k KeepGoing) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	if !Injected(reason) {
		k.Problem("%s failed: %v", child.Id, reason)
	}
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if strings.HasPrefix(name, "shard-") || strings.Contains(child.Id, "lanes-") && !strings.HasPrefix(name, "lanes-") {
		sup.RestartChildren(child)
		return
	}
	sup.ResumeChildren(child)
}
