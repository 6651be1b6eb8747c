package shard

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/role"
)

// Messages from a lane to its shard's actor. Doubts: the sender has called Shard.RaiseDoubt before, and the actor calls
// ClearDoubt when it has handled the message. At is when it happened. Backend is its ID: whoever was restarted may tell, or be
// told, of a connection once more.
type (
	// Connected says that a backend is logged in, and what it said of itself, if it was asked.
	Connected struct {
		Host        string
		Backend     uint64
		Observation *role.Observation // Source Fence: it was asked on a backend; nil: it was not
		At          time.Time
	}
	// Observed is a fence's answer.
	Observed struct{ Observation role.Observation }
	// HostLost reports a lost connection.
	HostLost struct {
		Host       string
		Backend    uint64
		Code       string // SQLSTATE of the server's last words
		Expected   bool   // we closed it
		Doubts     bool
		Opened, At time.Time
	}
	// ConnectFailed reports a failed connect.
	ConnectFailed struct {
		Host   string
		Code   string // SQLSTATE, if the server answered
		Err    error
		Doubts bool
		At     time.Time
	}
	// Hinted reports what a server said on a backend that puts its role in question: a write refused as read-only, or the
	// notice of its shutdown.
	Hinted struct {
		Host   string
		Code   string
		Doubts bool
		At     time.Time
	}
	// Waiting says that a write waits for a primary or for a connection to it; repeated every busyTick while it does.
	Waiting struct{ Since time.Time }
)

// Messages from a shard's actor.
type (
	// ViewPublished tells the Lanes of each loop that the view is new. Lanes that see it earlier by themselves act earlier.
	// Recount: the actor was restarted; each lane answers with a Connected per open backend.
	ViewPublished struct {
		Shard   *Shard
		Recount *actor.PID
	}
)
