// Package backend is the actor for one server connection: it opens it, watches it while nobody holds it, brings it to
// rest after a holder that vanished, and sends cancels for it.
//
//	                   fencing
//	               Fence |  ^ (answered)
//	                     v  |
//	dialling --login--> idle --(lane grants)--> held --Release--> idle
//	    |                 |                       |                ^
//	 DialFailed          Lost                    Lost    cleaning--+ (Clean: drain, ROLLBACK, reset query)
//
// What the server says of itself is the backend's Proof: asked for at login (Target.Identify) and by each Fence, void when
// the server reports that it was promoted or became read-only.
//
// While a holder (a frontend on the same loop) has the backend, bytes do not pass through messages: OnData scans what the
// server sends, notes it in the Tracker and hands the bytes to the holder; the holder writes to the server with Write.
// Both run on the loop's thread, one at a time.
package backend

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend/cancellease"
	"fencepost/actors/backend/prepared"
	"fencepost/actors/backend/session"
	"fencepost/eventloop"
	"fencepost/pgerr"
	"fencepost/wire"
)

// Holder is who holds a backend, on the same loop. Its methods are called from the backend's socket callbacks.
type Holder interface {
	// ServerData delivers bytes the server sent, already noted in the Tracker. b is valid until it returns.
	ServerData(b []byte, seen Seen)
	// ServerDrained says that Write will take more after having reported false.
	ServerDrained()
	// ServerLost says that the connection is gone; the backend is no longer held. err says how.
	ServerLost(err *pgerr.Error)
}

// Seen sums up one chunk of server bytes.
type Seen struct {
	Ready    int  // ReadyForQuery messages
	Params   bool // a tracked parameter changed: Backend.Params is new
	Rows     bool // rows or COPY data
	Failed   bool // an ErrorResponse
	Boundary bool // the chunk ends at a message boundary
	Cleared  bool // the server has dropped all prepared statements
	// Described: the server has answered all that we asked about statements.
	Described bool
}

// Deps are what all backends share.
type Deps struct {
	Group       Sockets
	Dialer      Dialer
	Names       Names
	Log         zerolog.Logger
	CancelLimit func() time.Duration // cancel_ack_timeout
	// CancelVanished says whether what a client that vanished was running is cancelled (cancel_on_disconnect).
	CancelVanished func() bool
	Cancels        *atomic.Int64 // CancelRequests on their way
	Leases         func() Leases // of one backend: new(cancellease.Machine)
}

// Leases say when a backend may be handed on although cancels were sent for it (package cancellease).
type Leases interface {
	Step(now time.Time, ev cancellease.Event) []cancellease.Effect
	Hold(holder uint64) bool
	Leave()
	InFlight() int
	Spoiled() bool
	MayBeHandedOn() bool
}

// Sockets turns a connection made by a Dialer into a socket for a loop.
type Sockets interface {
	Socket(nc net.Conn) (eventloop.Socket, error)
}

type phase uint8

const (
	dialling phase = iota
	idle
	fencing
	held
	left // its holder went away while the server still owed something; Clean follows
	cleaning
	gone
)

// Backend is one server connection. All methods must be called on its loop.
type Backend struct {
	ID      uint64
	Owner   any             // the lane's record
	Tracker session.Tracker // what the server owes the present holder
	Params  Params          // tracked values as the server reported them last
	// Statements are the prepared statements that the server has under names of ours: in transaction and statement mode.
	Statements prepared.Cache

	deps         *Deps
	loop         eventloop.Loop
	lane         *actor.PID
	target       Target
	epoch        uint64
	system       *actor.ActorSystem
	mb           *eventloop.Mailbox
	self         *actor.PID
	conn         eventloop.Conn
	scanner      wire.Scanner
	holder       Holder
	phase        phase
	mayTerminate bool   // what was sent to the server ends at a message boundary: a Terminate may follow
	carry        []byte // body of a message to be seen whole that came in pieces
	carried      bool

	login     *Login
	proof     *Proof
	fence     *fence // nil unless fencing
	shadowed  bool
	addr      net.Addr  // where cancels go
	dialledAt time.Time // when the login began
	opened    time.Time
	idleSince time.Time
	lastCode  string // see LastCode
	farewell  bool   // see Farewell
	silent    bool   // see Close
	stopDial  context.CancelFunc
	leases    Leases
	leaseID   uint64
	unwanted  bool   // the present or last holder asked for a cancel
	holding   uint64 // number of the present or last holding
	clean     cleanup
	timer     eventloop.Timer
}

// New makes the actor; the lane spawns it on loop with mailbox mb. It begins to dial when started.
func New(id uint64, deps *Deps, loop eventloop.Loop, mb *eventloop.Mailbox, lane *actor.PID, owner any, target Target, epoch uint64) *Backend {
	b := &Backend{ID: id, leases: deps.Leases(), Owner: owner, deps: deps, loop: loop, mb: mb, lane: lane, target: target, epoch: epoch}
	b.timer.Fire = func() { b.system.Root.Send(b.self, cleanTimeout{}) }
	return b
}

// Receive implements actor.Actor.
func (b *Backend) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		b.system, b.self = ctx.ActorSystem(), ctx.Self()
		b.dial()
	case *Clean:
		b.startCleaning(m)
	case *Fence:
		b.startFence(m.ID)
	case cleanTimeout:
		b.cleanTooLong()
	case *Close:
		b.mayTerminate, b.silent = m.Goodbye, m.Silent
		b.end(true, errors.New(m.Why))
	case *Cancel:
		b.startCancel(m.Holder, m.Done)
	case *actor.Stopping:
		b.release()
	case *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		b.deps.Log.Error().Type("message_type", m).Uint64("backend", b.ID).Msg("backend: unhandled message")
	}
}

// dial logs in on a goroutine, which ends with the login, its failure, or when the actor stops.
func (b *Backend) dial() {
	ctx, stop := context.WithTimeout(context.Background(), b.target.Timeout)
	b.stopDial, b.dialledAt = stop, time.Now()
	go func() {
		defer stop()
		l, err := b.deps.Dialer.Dial(ctx, b.target)
		posted := b.loop.Post(func() {
			b.mb.Run(func() {
				defer l.discard() // unless it was adopted, also if that failed halfway
				b.dialled(l, err)
			})
		})
		if !posted {
			l.discard()
		}
	}()
}

func (b *Backend) dialled(l *Login, err error) {
	if b.phase != dialling {
		return
	}
	if err == nil {
		err = b.adopt(l)
	}
	if err != nil {
		e, rejected := loginError(err)
		b.phase = gone
		b.send(&DialFailed{Backend: b, Epoch: b.epoch, Err: e, Rejected: rejected})
		return
	}
	b.phase = idle
	b.opened, b.idleSince = b.loop.Now(), b.loop.Now()
	b.send(&Opened{Backend: b, Epoch: b.epoch})
}

func (b *Backend) adopt(l *Login) error {
	b.addr = cancelAddr(l.Conn)
	s, err := b.deps.Group.Socket(l.Conn)
	if err != nil {
		return err
	}
	c, err := b.loop.Adopt(s, b, b.mb)
	if err != nil {
		return err
	}
	l.Conn = nil
	b.conn, b.login = c, l
	b.setProof(l.Proof)
	values := UnknownValues(len(b.deps.Names))
	for name, v := range l.Params {
		if i := b.deps.Names.Index(name); i >= 0 {
			values[i] = v
		}
	}
	b.Params = MakeParams(values)
	b.Tracker.Reset()
	b.Statements.Tracker = &b.Tracker
	return nil
}

func (b *Backend) send(m any) { b.system.Root.Send(b.lane, m) }

// Serve makes h the holder. The lane grants a backend before its holder calls this; nobody else may.
func (b *Backend) Serve(h Holder) {
	b.holder, b.phase = h, held
	b.Tracker.Reset()
	b.holding++
	b.unwanted = false
	if !b.leases.Hold(b.holding) {
		b.deps.Log.Error().Uint64("backend", b.ID).Msg("lease: handed on with a cancel in flight")
	}
}

// Release ends the holding: the holder hands the backend back to the lane (Checkin) in the same turn.
func (b *Backend) Release() {
	b.holder = nil
	if b.phase == held {
		b.phase = left
		if b.Tracker.Idle() && b.scanner.AtBoundary() && b.lastCode == "" {
			b.rest()
		}
		b.idleSince = b.loop.Now()
	}
	if b.conn != nil {
		b.conn.Resume()
	}
}

// rest makes the backend idle: its last holding is over.
func (b *Backend) rest() {
	b.phase = idle
	b.leases.Leave()
}

// Write sends p to the server. It reports false when bytes stay queued: pause the client until ServerDrained.
func (b *Backend) Write(p []byte) bool { return b.conn.Write(p) }

// Pause stops reading from the server, Resume continues.
func (b *Backend) Pause() { b.conn.Pause() }

// Resume continues reading from the server.
func (b *Backend) Resume() { b.conn.Resume() }

// peekAfter is how long a backend is trusted to be alive without a look: the loop hears of a closed socket within a turn.
const peekAfter = 5 * time.Millisecond

// Usable reports whether an idle backend may be granted: alive, and no cancel can hit its next holder. If it was idle for
// peekAfter the socket is peeked at, which costs a system call: the server may have closed it, or said that it will.
func (b *Backend) Usable() bool {
	if b.phase != idle || !b.leases.MayBeHandedOn() || !b.scanner.AtBoundary() {
		return false
	}
	return b.loop.Now().Sub(b.idleSince) < peekAfter || b.conn.Quiet()
}

// end closes the connection and tells the holder and the lane.
func (b *Backend) end(expected bool, why error) {
	if b.phase == gone {
		return
	}
	was := b.phase
	doubts := was != dialling && !expected && b.target.Lost != nil
	if doubts {
		b.target.Lost(time.Now()) // before anybody can act on the loss
	}
	h, outstanding := b.holder, b.Tracker.Outstanding() > 0 || b.Tracker.NeedsSync()
	b.shut()
	switch {
	case h == nil:
	case b.silent:
		h.ServerLost(pgerr.StandbySilent(why))
	default:
		h.ServerLost(pgerr.ServerLost(outstanding).WithCause(why))
	}
	if was == dialling {
		b.send(&DialFailed{Backend: b, Epoch: b.epoch, Err: pgerr.CannotConnect(why), Aborted: expected})
		return
	}
	b.send(&Lost{Backend: b, Epoch: b.epoch, Expected: expected, Doubts: doubts, Code: b.lastCode, Err: why})
}

// shut releases everything the backend owns. Idempotent.
func (b *Backend) shut() {
	b.phase, b.holder = gone, nil
	if b.stopDial != nil {
		b.stopDial()
	}
	b.loop.StopTimer(&b.timer)
	if b.conn != nil {
		if b.mayTerminate && b.conn.Queued() == 0 {
			b.conn.Write(terminate)
		}
		b.conn.Close()
	}
	b.carry, b.fence = nil, nil
	b.Statements.Drop()
}

var terminate = wire.AppendTerminate(nil)

// release is shut for an actor that stops: a holder it still has loses the connection.
func (b *Backend) release() {
	h := b.holder
	was := b.phase
	b.shut()
	if h != nil && was == held {
		h.ServerLost(pgerr.ServerLost(true))
	}
}
