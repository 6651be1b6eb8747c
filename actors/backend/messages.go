package backend

import (
	"time"

	"fencepost/actors/backend/lease"
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
	}
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
	}
	// Cleaned answers Clean.
	Cleaned struct{ Backend *Backend }
	// CancelEnded says how a cancel ended, and how long its lease was held.
	CancelEnded struct {
		Outcome lease.Outcome
		Took    time.Duration
	}
	// Lost says that the connection is gone. It is the last message of a backend that was opened. Expected: we closed
	// it. Code is the SQLSTATE of the server's last words, "" if there were none.
	Lost struct {
		Backend  *Backend
		Epoch    uint64
		Expected bool
		Code     string
		Err      error
	}
)
