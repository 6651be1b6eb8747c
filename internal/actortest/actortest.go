// Package actortest is for tests that run actors: a runtime that says nothing, a look at who lives in it, and failures
// made on purpose.
package actortest

import (
	"errors"
	"log/slog"
	"slices"

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
