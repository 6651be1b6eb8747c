// Package admin is the console (databases fencepost and pgbouncer) and the HTTP server for metrics and health.
package admin

import (
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Messages between frontends of the console's database and the admin actor.
type (
	// Command is a console statement, sent by a frontend. Answered once by Answer with the same Req.
	Command struct {
		Req   uint64
		From  *actor.PID
		Text  string
		User  string
		Admin bool // may change things; else only SHOW
	}
	// Interrupt ends the statement a console session waits for, as a cancel request does; nothing answers it but the
	// Answer to the Command, which is then an error. A PAUSE that still waits is undone.
	Interrupt struct{ From *actor.PID }
	// Answer is the console's answer: protocol messages ready to be sent, without the ReadyForQuery. More says that it is not
	// all: another Answer follows, and ReadyForQuery only after the one without More.
	Answer struct {
		Req   uint64
		Bytes []byte
		More  bool
	}
)

// Messages to the sessions of an event loop (package frontend).
type (
	// DescribeClients asks for a row per client; Reply has room for every loop's answer.
	DescribeClients struct {
		Reply chan<- []ClientRow
		// ConsoleOnly says that only console sessions are wanted, so that nobody copies ten thousand rows to count three.
		// An answer that holds others too is right as well: the asker looks at ClientRow.Console.
		ConsoleOnly bool
	}
	// Drain ends every session with 57P01 at its next transaction boundary; those whose database matches ("" = all).
	// AtOnce ends them wherever they are. Console sessions stay unless AtOnce.
	Drain struct {
		Database string
		AtOnce   bool
	}
	// Kill ends one session by the id of SHOW CLIENTS. Reply: whether it was found.
	Kill struct {
		ID    uint64
		Reply chan<- bool
	}
)

// ClientRow describes a client; a copy.
type ClientRow struct {
	ID              uint64
	User, Database  string
	State           string // login, idle, waiting, active, ended
	Console         bool
	Remote, Local   netip.AddrPort // not valid for unix sockets
	Connected       time.Time
	Requested       time.Time     // last request
	Wait            time.Duration // so far, in the queue for a backend
	Backend         uint64        // id of the linked backend, 0 if none
	BackendPID      uint32
	PID             uint32 // of the cancel key
	ApplicationName string
	ServerUser      string
}

// Messages of the console to itself: tick asks for the next sample, sampled brings it.
type (
	tick    struct{ gen uint64 }
	sampled struct {
		gen    uint64
		sample *sample // nil if a loop did not answer
	}
)
