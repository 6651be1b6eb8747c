package shard

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// Actor is the actor of a shard whose one host has no role: it has nothing to decide, and takes what the lanes tell it.
type Actor struct {
	Shard *Shard
	Log   zerolog.Logger
}

// Receive implements actor.Actor.
func (a *Actor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Connected, *Observed, *Hinted, *ConnectFailed, *Waiting, *Configure:
	case *HostLost:
		if !m.Expected {
			a.Log.Debug().Str("shard", a.Shard.Name).Str("host", m.Host).Str("code", m.Code).Msg("server connection lost")
		}
	case *DescribeShard:
		v := a.Shard.View()
		m.Reply <- Row{Name: a.Shard.Name, Static: true, View: *v, State: v.State, StateReason: v.Why, StateSince: v.Since}
	case *Forget:
		if m.Reply != nil {
			m.Reply <- 0 // there is no floor to forget
		}
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		a.Log.Error().Type("message_type", m).Str("shard", a.Shard.Name).Msg("shard: unhandled message")
	}
	if Doubts(ctx.Message()) {
		a.Shard.ClearDoubt()
	}
}
