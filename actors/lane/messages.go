package lane

import (
	"net"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/grant"
	"fencepost/actors/lane/placement"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/pgerr"
)

// Messages to the lanes of a loop (Lanes) and to a lane.
type (
	// Attach asks the lanes of a loop for the lane of a pool, on behalf of a frontend that has authenticated. Answered
	// once, by Attached or AttachRefused with the same Req, as soon as one server login of the pool has succeeded.
	Attach struct {
		Req    uint64
		From   *actor.PID
		Pool   PoolKey
		Spec   *PoolSpec
		Target Target
		// Deadline is when to refuse it, for the reason the lane knows; zero: never.
		Deadline time.Time
		Since    time.Time // when the client connected
	}
	// CancelLease asks for a cancel of what a leased backend runs. Cancel.Done is called when it is over.
	CancelLease struct {
		Backend *backend.Backend
		Cancel  *backend.Cancel
	}
	// Ensure makes the lane of a pool, so that min_pool_size backends are opened before the first client comes.
	Ensure struct {
		Pool PoolKey
		Spec *PoolSpec
	}
	// Detach ends an attachment, or takes back an Attach that was not answered.
	Detach struct {
		Req  uint64
		From *actor.PID
		Pool PoolKey
	}
	// Checkout asks for a backend. Answered once, by Granted or Refused with the same Req. The message belongs to the
	// lane until then, or until Abandon was handled; its memory is the frontend's, which has one checkout at a time.
	Checkout struct {
		pool.Waiter
		From   *actor.PID
		Target Target

		at       *hostPool // the queue it is in, or was in last
		place    int       // in waiters.asked
		unplaced bool      // it has waited for a host to be known
	}
	// Spoiled says that the backend granted to Checkout is gone: the checkout keeps its place and is answered again.
	Spoiled struct {
		Backend  *backend.Backend
		Checkout *Checkout
	}
	// Abandon takes a Checkout back. Nothing answers it. A Granted that crosses it must be checked in as usual.
	Abandon struct{ Checkout *Checkout }
	// Checkin ends a lease. The message belongs to the lane until the frontend's next Granted.
	Checkin struct {
		Backend   *backend.Backend
		Condition pool.Condition
		Patient   bool // a dirty backend may take its time: its client said goodbye and meant what it had sent
	}
	// Describe asks for rows. Reply has room for every lane's answer; nobody waits on it inside an actor.
	Describe struct{ Reply chan<- []LaneRow }
	// Control changes how lanes serve; those whose database matches Database ("" = all). Reply as in Describe; nil: no
	// answer wanted.
	Control struct {
		Verb     Verb
		Database string
		Reply    chan<- int
	}
	// Reload gives a lane its new limits.
	Reload struct{ Spec func(PoolKey) *PoolSpec }
	// Quiet asks how many lanes still work for a database; the answer counts backends and waiters that Wait names.
	Quiet struct {
		Wait     Verb // Pause: anything busy; Reconnect: backends that are to be closed
		Database string
		Reply    chan<- int
	}
)

// Messages from a lane to a frontend.
type (
	// Attached answers Attach.
	Attached struct {
		Req     uint64
		Lane    *actor.PID
		Startup *StartupParams
		Stats   *Stats
	}
	// AttachRefused answers Attach.
	AttachRefused struct {
		Req uint64
		Err *pgerr.Error
	}
	// Granted leases a backend: the frontend calls Serve on it, and ends with Checkin. Epoch is the view's.
	Granted struct {
		Req     uint64
		Epoch   uint64
		Backend *backend.Backend
	}
	// Refused answers a Checkout whose time was over.
	Refused struct {
		Req uint64
		Err *pgerr.Error
	}
)

// Superseded tells the holder of a lease that its server is not what it was leased for any more: it may write, and another one was
// elected, or its timeline is below the floor. The holder ends the lease at once, as docs/failover.md says of what clients see.
type Superseded struct {
	Backend *backend.Backend
	Why     string // the view's, or its StateWhy if the primary was given up
	// AtBoundary: it is still the only one, but read-only by its own settings: the transaction under way may go on, and the
	// lease ends with it.
	AtBoundary bool
	// Promoted: the holder, which wants a standby, has one no longer. With AtBoundary.
	Promoted bool
}

// Target is what a checkout is for; libpq's words.
type Target = placement.Target

// The targets. On a static shard each is served by its one host.
const (
	ReadWrite     = placement.ReadWrite
	Standby       = placement.Standby
	PreferStandby = placement.PreferStandby
	Any           = placement.Any
)

// FenceMode is when a write checkout needs a fence of its own.
type FenceMode = grant.Mode

// The modes.
const (
	FenceAuto   = grant.Auto
	FenceAlways = grant.Always
	FenceOff    = grant.Off
)

// Verb is a Control.
type Verb uint8

// The verbs.
const (
	Pause Verb = iota + 1
	Resume
	Reconnect
	Drain
)

// PoolKey names a pool: backends of one database, logged in as one server user.
type PoolKey struct {
	Database   string // as the client names it
	ServerUser string
}

// PoolSpec is what a lane needs to know about its pool; immutable.
type PoolSpec struct {
	Shard      *shard.Shard
	Limits     pool.Config
	Size       int    // of the whole pool
	DBLimit    int    // max_db_connections of the database, 0 = none
	DBName     string // the database's name on the server
	Source     backend.CredentialSource
	Dial       time.Duration // server_connect_timeout
	WaitLimit  time.Duration // query_wait_timeout
	Fence      FenceMode
	ResetQuery string         // run at checkin of a session; "" for none
	Session    bool           // leases last as long as sessions
	Mode       string         // for the console
	Auto       bool           // the database is not in the settings by name ("*")
	Tune       func(net.Conn) // socket options; may be nil
}

// StartupParams is what a pool's clients are told at login: every parameter the last server login reported, in a fixed order.
type StartupParams struct {
	Parameters [][2]string
	Params     backend.Params // the tracked ones among them
}

// Between a Lanes and its lanes, and lanes of other loops.
type (
	viewChanged struct{ recount *actor.PID }
	controlLane struct{ verb Verb }
	reloadLane  struct{ spec *PoolSpec }
	unused      struct{ key PoolKey } // lane to Lanes: nobody has used it for long
	// permitOffered says that a permit of a budget has become free; yieldPermit asks for that of an idle backend.
	permitOffered struct{}
	yieldPermit   struct {
		budget *Budget
		share  int
	}
	tick struct{} // a lane's own timer
)
