package frontend

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/eventloop"
	"fencepost/wire"
)

// Messages to the sessions of a loop (Sessions).
type (
	// Admit hands over the socket of a client whose startup packet is complete; Early is what it sent behind that
	// packet. The receiver owns the socket.
	Admit struct {
		Socket  eventloop.Socket
		Startup wire.Startup
		Early   []byte
		Since   time.Time // when the connection was accepted
		Timeout time.Duration
	}
)

// Recheck tells the sessions of a loop that the settings were reloaded.
type Recheck struct{}

// Messages to a frontend.
type (
	// CancelQuery asks to cancel what the client runs. Done is called on the frontend's loop, at least once, when nothing
	// more will be sent on its behalf.
	CancelQuery struct{ Done func() }
	// loginTimeout says that client_login_timeout is over.
	loginTimeout struct{}
	// authenticated carries the result of a login step that was too slow for the loop.
	authenticated struct {
		out  []byte
		done bool
		err  error
	}
)

// Messages to the cancel actor (KeyTable).
type (
	// Bind makes a frontend known under its cancel key.
	Bind struct {
		Key wire.CancelKey
		PID *actor.PID
	}
	// Unbind ends it.
	Unbind struct{ Key wire.CancelKey }
	// CancelRequest is a client's request; Done is called when it has been dealt with, for whatever reason, from any
	// goroutine.
	CancelRequest struct {
		Key  wire.CancelKey
		Done func()
		// Forwarded: another member passed it on. It is not passed on again.
		Forwarded bool
	}
)
