package frontend

import (
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/auth"
	"fencepost/pgerr"
)

// Mode is a pool mode: when a session gives its backend back.
type Mode uint8

// The modes.
const (
	Transaction Mode = iota
	Session
	Statement
)

// Route is where a client's work goes.
type Route struct {
	Pool lane.PoolKey
	Spec *lane.PoolSpec
	Mode Mode
	// Target is the database's, for clients that do not choose one.
	Target lane.Target
}

// Settings are a snapshot of what logins need to know; immutable. A reload makes a new one.
type Settings struct {
	MaxClients int
	Auth       auth.Profile
	Method     auth.Method
	// Secret of a user; nil if there is no such user.
	Secret func(user string) *auth.Secret
	// Route of a database and user, or why there is none.
	Route  func(database, user string) (*Route, *pgerr.Error)
	Ignore map[string]bool // ignore_startup_parameters, lower case
	Admins map[string]bool
	Stats  map[string]bool
	// MaxStatements is how many statements a server connection keeps (max_prepared_statements); 0: a client's last until its
	// transaction ends.
	MaxStatements int
	// PeerID goes into cancel keys.
	PeerID         uint16
	LogConnections bool
	LogDisconnects bool
	LogErrors      bool
}

// Consoles are the names of the console's database.
var Consoles = map[string]bool{"fencepost": true, "pgbouncer": true}

// Deps are what all frontends share.
type Deps struct {
	Settings *atomic.Pointer[Settings]
	Names    backend.Names
	Lanes    []*actor.PID // by loop
	Cancel   *actor.PID
	Admin    *actor.PID
	Clients  *atomic.Int64 // clients admitted and not gone, console included
	Draining *atomic.Bool
	// Consoles is how many of Clients are logged in to the console; they hold up no drain.
	Consoles atomic.Int64
	NextID   func() uint64
	Version  string
	Log      zerolog.Logger
}

// flushLimit is how long a session that ends waits for its last message to be taken.
const flushLimit = 5 * time.Second
