package admin

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/config"
	"fencepost/eventloop"
)

// Operations is what the console needs of the process; the supervisor implements it. Safe for any goroutine.
type Operations interface {
	// Config is the present settings; not to be changed.
	Config() *config.Config
	// Reload reads the settings file again, as SIGHUP does. On an error everything stays as it was.
	Reload() error
	// Shutdown ends the process: it returns at once and the end follows.
	Shutdown(how Shutdown)
	// Loops, Lanes (the parents of all lanes, one a loop) and Sessions (the parents of all frontends, one a loop).
	Loops() []eventloop.Loop
	Lanes() []*actor.PID
	Sessions() []*actor.PID
	// Shards are the shards with their actors, by name.
	Shards() []ShardRef
	// Fleet is the fleet's actor, nil without a fleet.
	Fleet() *actor.PID
	// Clients is the number of admitted clients, console sessions included.
	Clients() int64
	// ServerConnections is the number of server connections of a database.
	ServerConnections(database string) int
	// Draining reports whether the process was ordered to end. New clients are refused, or will be after drain_grace.
	Draining() bool
	// Actors is the number of live actors of the process.
	Actors() int
	// Standstills is how often the process did not run for more than a second, and how long in all.
	Standstills() (n uint64, length time.Duration)
	// Version of Fencepost.
	Version() string
	// System is the actor system.
	System() *actor.ActorSystem
}

// Shutdown says how the process ends.
type Shutdown uint8

// The ways to end.
const (
	Immediate      Shutdown = iota // now
	WaitForServers                 // each session at its next transaction boundary (57P01), then the process
	WaitForClients                 // when the last client has left
)
