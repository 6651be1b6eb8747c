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
	// Promoted says that a standby has told one of its connections that it is one no longer (in_hot_standby, PostgreSQL 14 and
	// newer): sooner than a monitor may have seen it.
	Promoted struct {
		Host string
		At   time.Time
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

// Messages to a shard's actor from the console and a reload.
type (
	// DescribeShard asks for a copy of what is known. Reply has room for the answer.
	DescribeShard struct{ Reply chan<- Row }
	// Configure replaces the settings. Evidence, bans and the elected primary are kept for hosts that stay.
	Configure struct{ Settings Settings }
	// Forget clears identifier and floor (FORGET shard). Reply, if not nil, has room for the answer: the new generation.
	Forget struct{ Reply chan<- uint64 }
)

// Messages for a planned switchover (SWITCHOVER on the console).
type (
	// PauseWrites makes writes wait, at their transaction boundaries, as if no primary were known, until another host is elected,
	// For is over, or ResumeWrites comes. Repeated with the same ID it goes on for that much longer; it never begins anew once it
	// has ended, also if others came since: who gives the order may have been frozen meanwhile. Reply, if not nil, has room
	// for the answer.
	PauseWrites struct {
		ID    string
		For   time.Duration
		Reply chan<- PauseState
	}
	// ResumeWrites ends it before its time.
	ResumeWrites struct{ ID string }
)

// PauseState is the answer to PauseWrites.
type PauseState struct {
	Paused  bool
	From    string // who was the primary when it began
	Elected string // who is elected now, whether writes wait or not; "" for nobody
	Err     error  // why it could not begin
}

// Messages of the actor to itself.
type (
	// shardTick is the timer's; one of an earlier setting is stale.
	shardTick struct{ id uint64 }
	// stateRead and stateWritten say how the reading or writing of a state file ended.
	stateRead struct {
		path  string
		state state
		err   error
	}
	stateWritten struct {
		path  string
		state *state
		err   error
	}
)

// IgnoreDeadLetterLogging: what arrives while the actor ends is not wanted any more.
func (shardTick) IgnoreDeadLetterLogging()    {}
func (stateRead) IgnoreDeadLetterLogging()    {}
func (stateWritten) IgnoreDeadLetterLogging() {}
