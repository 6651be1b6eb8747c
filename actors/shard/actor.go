package shard

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// Actor is the shard's actor. With static hosts it has nothing to decide.
type Actor struct {
	Shard *Shard
	Log   zerolog.Logger
}

// Receive implements actor.Actor.
func (a *Actor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Connected, *Observed, *Hinted, *ConnectFailed, *Waiting:
	case *HostLost:
		if !m.Expected {
			a.Log.Debug().Str("shard", a.Shard.Name).Str("host", m.Host).Str("code", m.Code).Msg("server connection lost")
		}
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		a.Log.Error().Type("message_type", m).Str("shard", a.Shard.Name).Msg("shard: unhandled message")
	}
}
