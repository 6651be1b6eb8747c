// Package shard holds the actors that decide and serve: the shard (which host is the primary), and on every event loop
// the lanes (a pool's part on that loop: queue, leases, backends).
//
//	Lanes (one per loop) -- Attach --> Lane (one per pool and loop) --> backends
//	Shard --> View (atomic pointer), read by lanes whenever they open or grant
//
// A lane executes what the pure machine in package pool decides. A shard that fails takes no socket with it.
package shard

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// View is what a shard has decided; immutable. Lanes grant by it without asking.
type View struct {
	Epoch   uint64
	Elected string // host that gets the writes, "" if none is known
	State   State
}

// State of a shard as far as lanes need it.
type State uint8

// The states.
const (
	Static State = iota // hosts without roles: nothing is elected
)

func (s State) String() string { return "static" }

// Shard is the handle of a shard: its name, hosts and view. Safe for any goroutine.
type Shard struct {
	Name  string
	Hosts []string
	view  atomic.Pointer[View]
}

// NewShard makes the handle of a shard whose single host serves everything.
func NewShard(name string, hosts []string) *Shard {
	s := &Shard{Name: name, Hosts: hosts}
	s.view.Store(&View{Epoch: 1, Elected: hosts[0], State: Static})
	return s
}

// View is the present decision.
func (s *Shard) View() *View { return s.view.Load() }

// Actor is the shard's actor. With static hosts it has nothing to decide; it counts what lanes report.
type Actor struct {
	Shard *Shard
	Log   zerolog.Logger

	observed, lost uint64
}

// Receive implements actor.Actor.
func (a *Actor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Observed:
		a.observed++
	case *HostLost:
		if !m.Expected {
			a.lost++
			a.Log.Debug().Str("shard", a.Shard.Name).Str("host", m.Host).Str("code", m.Code).Msg("server connection lost")
		}
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		a.Log.Error().Type("message_type", m).Str("shard", a.Shard.Name).Msg("shard: unhandled message")
	}
}
