// Package frontend is the actor for one client session, its parent on each loop (Sessions), and the cancel actor
// (KeyTable).
//
// A session's phases, one file each:
//
//	login (login.go, startup.go)  from the startup packet to the first ReadyForQuery
//	idle, waiting (checkout.go)   no backend; a checkout is in the lane's queue
//	settling (settle.go)          has a backend that is being given the client's parameters
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
	settling
	active
	skipping
	doomed
	console
	ended
)

var phaseNames = [...]string{"login", "login", "idle", "waiting", "active", "active", "idle", "idle", "idle", "ended"}

// Frontend is one client session. It lives on its loop: Receive and the callbacks of its socket run there, one at a time.
type Frontend struct {
	id         uint64
	deps       *Deps
	loop       eventloop.Loop
	sessions   *Sessions
	self       *actor.PID
	root       *actor.RootContext
	mb         *eventloop.Mailbox
	conn       eventloop.Conn
	phase      phase
	mode       Mode
	bound      bool // the key table knows the key
	cancelled  bool // a cancel came while the backend was being given the client's parameters
	terminated bool // the client has said Terminate; what it sent before is still being answered
	attached   bool // the lane counts this client
	busy       bool // the console owes an answer
	midAnswer  bool // the last bytes sent to the client end inside a message
	batch      bool // what is being skipped is an extended-protocol batch, which ends with Sync
	txOpen     bool // between the first statement of a transaction and its end, for the statistics
	aimed      bool // the client chose the target itself
	target     lane.Target
	unanswered unanswered
	scanner    wire.Scanner

	user, database string
	route          *Route
	lane           *actor.PID
	stats          *lane.Stats
	params         backend.Params // what the client wants, or was told
	backend        *backend.Backend
	key            wire.CancelKey
	startup        *startup     // until the session is ready
	ending         *pgerr.Error // the session ends with it at the next transaction boundary
	settled        []byte       // answers to the statements that carry the parameters

	req      uint64         // of the checkout, attach or command under way
	checkout *lane.Checkout // nil until the first, and after one was abandoned: its memory may still be the lane's
	checkin  lane.Checkin

	connected  time.Time
	requested  time.Time // arrival of the oldest request that is not answered
	txBegan    time.Time
	prev, next *Frontend // in Sessions
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
		f.welcome(m)
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
			f.conn.Hold(rest)
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
	default: // attaching, waiting, settling: paused
		f.conn.Hold(p)
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
