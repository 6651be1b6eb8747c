package backend

import (
	"time"

	"fencepost/actors/backend/cancellease"
	"fencepost/pgerr"
)

// Messages to a backend, all from its lane.
type (
	// Clean brings a backend that its last holder left behind to rest and makes it fit for the next one: what is still
	// being answered is read and dropped, an open COPY is failed, an open transaction rolled back, and Reset is run if
	// not empty. Answered by Cleaned, or by Lost when it takes longer than Limit.
	Clean struct {
		Reset string
		Limit time.Duration
		// Patient: what is still running is neither cancelled nor limited in time.
		Patient bool
	}
	// cleanTimeout says that Clean.Limit is over.
	cleanTimeout struct{}
	// Close ends the backend. Answered by Lost{Expected: true}.
	Close struct {
		Why     string
		Goodbye bool // with a Terminate: no client's message was cut on it
		Silent  bool // its server, a standby, says nothing any more: a holder is told so
	}
	// Fence asks the server, on this connection and while nobody holds it, who it is and whether it can take writes now
	// (role.IdentityQuery). Answered once by Fenced with the same ID, unless the connection is lost before (Lost).
	Fence struct{ ID uint64 }
	// Cancel sends a CancelRequest for what the backend is running, if Holder still holds it, under a lease (package
	// lease) that keeps the backend from the next holder. Done is called on the backend's loop once, when the server has
	// closed the cancel connection or the attempt has ended otherwise.
	Cancel struct {
		Holder Holder
		Done   func()
	}
)

// Messages from a backend to its lane. Epoch is that of the view under which the backend was opened.
type (
	// Opened says that the backend is logged in and at rest.
	Opened struct {
		Backend *Backend
		Epoch   uint64
	}
	// DialFailed says that it could not be opened. Rejected: the server answered, with Err; else it could not be reached.
	DialFailed struct {
		Backend  *Backend
		Epoch    uint64
		Err      *pgerr.Error
		Rejected bool
		Aborted  bool // Close came before the login was over
	}
	// Cleaned answers Clean.
	Cleaned struct{ Backend *Backend }
	// Fenced answers Fence. With Err nil Backend.Proof is what the server said, whatever that is.
	Fenced struct {
		Backend         *Backend
		ID              uint64
		Asked, Answered time.Time
		Err             error
	}
	// Hinted says that the server said something on this connection that puts its role in question: a write refused as
	// read-only (25006), the notice of its shutdown (57P01, 57P02). Sent only when Target.Doubt returned true just before.
	Hinted struct {
		Backend *Backend
		Code    string
		At      time.Time
	}
	// Promoted says that the server, which was in recovery, told this connection that it is no longer (in_hot_standby = off).
	Promoted struct {
		Backend *Backend
		At      time.Time
	}
	// CancelEnded says how a cancel ended, and how long its lease was held.
	CancelEnded struct {
		Outcome cancellease.Outcome
		Took    time.Duration
	}
	// Lost says that the connection is gone. It is the last message of a backend that was opened. Expected: we closed
	// it, also because it did not come to rest; else, if Target.Lost is set, it was called first, and Doubts is true. Code is
	// the SQLSTATE of the last words of the server about itself, "" if there were none.
	Lost struct {
		Backend  *Backend
		Epoch    uint64
		Expected bool
		Doubts   bool // Target.Lost was called
		Code     string
		Err      error
	}
)
