// Package frontend is the actor for one client session, its parent on each loop (Sessions), and the cancel actor
// (KeyTable).
//
// A session's phases, one file each:
//
//	login (login.go, startup.go)  from the startup packet to the first ReadyForQuery
//	idle, waiting (checkout.go)   no backend; a checkout is in the lane's queue
//	applyingParams (applyparams.go)          has a backend that is being given the client's parameters
//	active (relay.go, server.go)  bytes go straight between the two sockets
//	skipping (checkout.go)        an extended batch was refused; what follows is dropped up to its Sync
//	doomed (superseded.go)        its transaction is lost with a server that is not the primary any more
//	console (console.go)          talks to the admin actor
//	ended (end.go)
//
// The one rule for giving a backend back is in done (server.go).
package frontend

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/backend/prepared"
	"fencepost/actors/lane"
	"fencepost/admin"
	"fencepost/auth"
	"fencepost/eventloop"
	"fencepost/pgerr"
	"fencepost/wire"
)

type phase uint8

const (
	login phase = iota
	attaching
	idle
	waiting
	applyingParams
	active
	skipping
	doomed
	console
	ended
)

var phaseNames = [...]string{"login", "login", "idle", "waiting", "active", "active", "idle", "idle", "idle", "ended"}

// Frontend is one client session. It lives on its loop: Receive and the callbacks of its socket run there, one at a time.
//
// The fields are grouped by how long they mean something. Small ones stand together at the end of their group or in one
// place, because each idle client costs one Frontend.
type Frontend struct {
	// For the life of the actor: set by Sessions.admit and at actor.Started.
	id         uint64
	deps       *Deps
	loop       eventloop.Loop
	sessions   *Sessions
	prev, next *Frontend // in Sessions
	self       *actor.PID
	root       *actor.RootContext
	mb         *eventloop.Mailbox
	connected  time.Time // when the connection was accepted

	// The client's socket: set by begin. The scanner follows the client's bytes, and is reset where a header is kept back
	// or a request refused.
	conn    eventloop.Conn
	scanner wire.Scanner

	// Where the session stands. Every method that ends a phase sets the next one; ended is the last.
	phase phase
	mode  Mode // set by loggedIn, for the life of the session

	// Facts, each with its writer:
	bound      bool       // the key table knows the key: from ready to close
	attached   bool       // the lane counts this client: from loggedIn to leavePool
	aimed      bool       // the client chose the target itself: set by aim at login, never reset
	cancelled  bool       // a cancel came in phase applyingParams: set by cancelQuery, reset by applyParams
	terminated bool       // the client has said Terminate, and what it sent before is still being answered: set by terminate, never reset
	busy       bool       // the console owes an answer: from command to answered
	midAnswer  bool       // the last bytes sent to the client end inside a message: set by each ServerData
	batch      bool       // what is being skipped is an extended-protocol batch, which ends with Sync: set by skip and consoleData, reset by refuse and at the console's Sync
	stalled    bool       // the client's next message waits for an answer that says what its name means: from relay to ServerData
	txOpen     bool       // a transaction is being timed for the statistics: from activate to answeredQueries
	unanswered unanswered // what may become of an open block (outcome.go): kept by relay, reset by ServerData when the server is at rest

	// Who the client is and where its work goes: set during login (begin, setRoute, loggedIn, completeLogin, ready). A reload
	// replaces route and, unless aimed, target.
	user, database string
	route          *Route
	target         lane.Target
	lane           *actor.PID
	stats          *lane.Stats
	key            wire.CancelKey
	startup        *startup // nil from ready on

	// names are the client's prepared statements, in transaction and statement mode: from the first message about one to
	// close.
	names *prepared.Names

	// What the client was told of its parameters: set by completeLogin, then by each ServerData and paramsAnswered.
	params backend.Params

	// The holding: backend from granted to giveBack, ServerLost or waitAgain; paramAnswers, the answers to the statements that
	// carry the parameters, in phase applyingParams.
	backend      *backend.Backend
	paramAnswers []byte

	// Requests to the lane or the console. req numbers the checkout, attach or command under way: an answer with
	// another number is stale. checkout is nil until the first, and after one was abandoned, since its memory may still
	// be the lane's; checkin is used again by each giveBack.
	req      uint64
	checkout *lane.Checkout
	checkin  lane.Checkin

	// ending is what the session ends with at its next transaction boundary: set by drain and doom, never reset.
	ending *pgerr.Error

	// For the statistics and the console.
	requested time.Time // arrival of the oldest unanswered request: set by ask, relay, answeredQueries and command
	txBegan   time.Time // set by activate, in session mode by answeredQueries
}

// startup is what a session needs only while it logs in.
type startup struct {
	admit    *Admit
	settings *Settings
	exchange *auth.Exchange
	wanted   []string // tracked parameters the client asked for, by index
	timer    eventloop.Timer
	deadline time.Time // client_login_timeout; zero: none
	stepping bool      // a goroutine works on the login
}

// Receive implements actor.Actor.
func (f *Frontend) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *lane.Granted:
		f.granted(m)
	case *lane.Refused:
		f.refused(m)
	case *lane.Superseded:
		f.superseded(m)
	case *lane.Attached:
		f.completeLogin(m)
	case *lane.AttachRefused:
		f.attachRefused(m)
	case loginTimeout:
		f.loginTooLong()
	case *authenticated:
		f.stepped(m)
	case *CancelQuery:
		f.cancelQuery(m)
	case *admin.Answer:
		f.answered(m)
	case *actor.Started:
		f.self, f.root = ctx.Self(), ctx.ActorSystem().Root
		f.begin()
	case *actor.Stopping:
		f.release()
	case *actor.Stopped:
		f.sessions.remove(f)
	case *actor.Restarting, *actor.Terminated:
	default:
		f.deps.Log.Error().Type("message_type", m).Uint64("client", f.id).Msg("frontend: unhandled message")
	}
}

// OnData implements eventloop.Handler: the client sent p, which begins with what was held before.
func (f *Frontend) OnData(_ eventloop.Conn, p []byte) {
	switch f.phase {
	case active:
		if rest := f.relay(p); len(rest) > 0 {
			f.conn.Stash(rest)
			if f.stalled {
				f.conn.Pause()
			}
		}
	case idle, doomed:
		f.request(p)
	case login:
		f.loginData(p)
	case skipping:
		f.skip(p)
	case console:
		f.consoleData(p)
	case ended:
	default: // attaching, waiting, applyingParams: paused
		f.conn.Stash(p)
		f.conn.Pause()
	}
}

// OnDrained implements eventloop.Handler: the client has taken what was queued for it.
func (f *Frontend) OnDrained(eventloop.Conn) {
	if f.backend != nil {
		f.backend.Resume()
	}
}

// OnClosed implements eventloop.Handler.
func (f *Frontend) OnClosed(_ eventloop.Conn, err error) {
	f.vanish(err)
}

// fail ends the session with an error the client is told.
func (f *Frontend) fail(e *pgerr.Error) { f.finish(e.Fatal(), e.Code+" "+e.Message) }
