// Package eventloop runs actors and their sockets on event loops.
//
// A Loop is an actor.Dispatcher: mailbox runs, socket callbacks and timers of everything that lives on one loop happen on
// one thread, one at a time and never nested. That is what lets a session hand bytes from its own socket to a server's
// socket without a message, a lock or a goroutine switch, and still be an actor.
//
// There are two implementations behind the same interfaces, chosen at run time by Options.Kind: Epoll (Linux; a thread
// locked to its own epoll instance) and Portable (goroutines; any net.Conn, also in-memory ones inside a
// testing/synctest bubble, optionally in a seeded order of steps).
//
// Order of one turn: a socket event is handed to its handler, then the run queue (posted functions, mailbox runs) is
// drained, then the next event. Bytes a handler keeps with Conn.Stash stay in the loop's shared read buffer until the
// run queue has been drained, so that a checkout answered within the turn forwards them without a copy; whatever is
// still stashed then is copied once.
package eventloop

import (
	"net"
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Loop is one event loop. Methods marked "any goroutine" are safe from everywhere; all others must be called on the
// loop itself (from a callback, a timer, a posted function or the Receive of an actor that lives on it).
type Loop interface {
	// Schedule puts a mailbox run on the loop's queue (any goroutine). Part of actor.Dispatcher.
	// Throughput is huge on purpose: yielding inside a mailbox run is dear on a locked thread.
	actor.Dispatcher

	// Index is the loop's position in its Group, from 0.
	Index() int
	// Now is the loop's cached time, taken once per wake-up. Any goroutine may call it; off the loop it may be stale.
	Now() time.Time
	// Post queues fn behind everything queued before (any goroutine). It reports false once the loop has stopped: fn
	// will then never run.
	Post(fn func()) bool
	// Adopt registers a socket with the loop, which owns and closes it from now on (also when it returns an error).
	// h's callbacks begin after the current turn. mb is the mailbox of the actor the socket belongs to: while that
	// actor is suspended its callbacks are withheld, and a panic in a callback is escalated to its supervisor. mb may be
	// nil for sockets without an actor: a panic then closes the socket.
	Adopt(s Socket, h Handler, mb *Mailbox) (Conn, error)
	// Listen accepts connections from l on this loop; the loop owns l, also when it returns an error, and removes a unix
	// socket's file at the end unless another file took its place. accept runs on the loop for each connection and
	// owns the socket. A failure to accept for want of descriptors or memory pauses accepting for AcceptPause and is
	// reported to failed (which may be nil).
	Listen(l net.Listener, accept func(Socket), failed func(error)) (Acceptor, error)
	// SetTimer arms t to call t.Fire on the loop after d (at once when d <= 0). An armed timer is moved.
	SetTimer(t *Timer, d time.Duration)
	// StopTimer disarms t. After it returns Fire is not called for the former arming. A timer that is not armed is
	// left alone.
	StopTimer(t *Timer)
	// NewMailbox makes a mailbox whose runs happen on this loop. It allocates nothing per message in steady state.
	NewMailbox() *Mailbox
	// Stats returns the loop's counters (any goroutine): Posted and Heartbeat as of now, the others as of the loop's
	// last wait.
	Stats() Stats
}

// AcceptPause is how long a listener rests after accept failed for want of descriptors or memory.
const AcceptPause = time.Second

// Socket is a connected socket that belongs to no loop yet. Whoever holds it must Adopt or Close it.
type Socket interface {
	// RemoteAddr is the peer's address; the zero AddrPort for a unix socket.
	RemoteAddr() netip.AddrPort
	// LocalAddr is our address; the zero AddrPort for a unix socket.
	LocalAddr() netip.AddrPort
	// IsUnix reports whether it is a unix-domain socket.
	IsUnix() bool
	// Close releases the socket. Idempotent.
	Close() error
}

// Handler receives a connection's events, on the loop.
type Handler interface {
	// OnData delivers bytes: those kept by an earlier Stash first, then what arrived now. b is valid until OnData
	// returns; what must outlive the call is given to Conn.Stash.
	OnData(c Conn, b []byte)
	// OnDrained says that the queue that had made Write report false is empty again.
	OnDrained(c Conn)
	// OnClosed says that the peer closed (io.EOF) or the socket failed. Called at most once, never after Close, also
	// while the connection is paused. Bytes that arrived before the end are delivered first unless the connection is
	// paused. The handler must call Close.
	OnClosed(c Conn, err error)
}

// Conn is a non-blocking connection on a loop. All methods must be called on the loop.
type Conn interface {
	// Write sends b or queues what the kernel does not take. It reports false when bytes stay queued: the caller must
	// then pause the source of these bytes until OnDrained, which bounds the queue. b is not kept. After Close, or once
	// the socket failed, it drops b and reports true (OnClosed tells).
	Write(b []byte) bool
	// Queued is the number of bytes accepted by Write that the kernel has not taken.
	Queued() int
	// Stash keeps b, which must be the tail of the slice handed to the running OnData. The next OnData starts with it.
	// Until the end of the turn, and at any time with a tail of Stashed, it shortens what is stashed. An empty b is Unstash.
	Stash(b []byte)
	// Stashed returns the bytes kept by Stash, nil if none. Valid until the next Stash, Unstash or Close on this connection.
	Stashed() []byte
	// Unstash forgets the stashed bytes: the caller has used them.
	Unstash()
	// Pause stops OnData until Resume; hang-ups are still reported. Idempotent.
	Pause()
	// Resume continues reading. If bytes are stashed or waiting in the socket OnData is called later in the same turn or
	// in the next one, never from inside Resume. Without a Pause before it does nothing: stashed bytes are not delivered
	// again on their own.
	Resume()
	// Paused reports whether reading is paused.
	Paused() bool
	// Quiet peeks at the socket: false when the peer has closed it, it failed, or something has come that was not delivered.
	// Costs one system call.
	Quiet() bool
	// Close discards what is queued, deregisters and closes the socket. No callback follows. Idempotent.
	Close()
	// CloseFlushed closes as soon as the write queue is empty, at the latest after limit. Input is discarded meanwhile
	// and no callback follows, not even OnDrained. What has come in is read before the close, since a close with unread
	// input would reset the connection and could take the last message away from the peer.
	CloseFlushed(limit time.Duration)
	// Detach takes an open connection off its loop so that another loop can Adopt it. It fails (and leaves the
	// connection as it is) when bytes are queued or stashed.
	Detach() (Socket, error)
	// RemoteAddr and LocalAddr are as on Socket.
	RemoteAddr() netip.AddrPort
	LocalAddr() netip.AddrPort
	IsUnix() bool
	// Loop is the loop the connection lives on.
	Loop() Loop
}

// Acceptor is a listening socket on a loop.
type Acceptor interface {
	// Close stops accepting and closes the listening socket. Idempotent; on the loop.
	Close()
}

// Timer is one timer of one owner, embedded in it; the zero value with Fire set is ready. A timer belongs to one loop.
// Fire and Mailbox must not be changed while the timer is armed.
type Timer struct {
	Fire func()
	// Mailbox is the mailbox of the actor the timer belongs to: while that actor is suspended Fire is withheld, and a
	// panic in Fire is escalated to its supervisor. With nil a panic is told to Options.Panicked only.
	Mailbox *Mailbox

	when time.Duration // since the loop's start
	slot int32         // 1 + position in the loop's heap, -1 while withheld, 0 when not armed
	seq  uint32        // order of arming, for timers of the same instant
}

// Armed reports whether the timer is waiting.
func (t *Timer) Armed() bool { return t.slot != 0 }

// Kind selects an implementation.
type Kind string

// The implementations.
const (
	Epoll    Kind = "epoll"    // Linux only
	Portable Kind = "portable" // goroutines; slower, runs anywhere and inside a synctest bubble
)

// Options configure a Group.
type Options struct {
	Kind  Kind // default: Epoll on Linux, else Portable
	Loops int  // default 1
	// Seed, if not nil, makes a Portable loop execute one step (one mailbox message, one socket event, one timer, one
	// posted function) at a time, picked by a generator seeded with it. For simulations in a synctest bubble.
	Seed *uint64
	// Rest, if not nil, is called before each step of a seeded group and returns when every other goroutine waits:
	// synctest.Wait. Without it a goroutine that wakes at the very instant of a step comes before or after it as it pleases,
	// and the same seed does not give the same run.
	Rest func()
	// Panicked is told of every panic recovered on a loop that no actor's supervisor hears of. May be nil.
	Panicked func(reason any, stack []byte)
	// Escalated is told of every panic that is escalated to an actor's supervisor, which gets no stack. May be nil.
	// Both functions are called on the loop.
	Escalated func(reason any, stack []byte)
}

// Stats are a loop's counters since start, except where noted.
type Stats struct {
	Turns, Waits, Wakeups   uint64 // events handled, waits in the kernel, cross-thread wake-ups received
	Reads, Writes           uint64 // socket system calls
	ShortWrites             uint64 // writes that had to be queued
	BytesRead, BytesWritten uint64
	Conns                   int64 // open now
	Timers                  int64 // armed now
	Posted                  uint64
	Panics                  uint64
	StaleEvents             uint64 // events for a connection that was already gone
	AcceptFailures          uint64
	Heartbeat               time.Time // last time the loop was seen alive: now while it waits with nothing to do
	QueuedBytes             int64     // in write queues now
}
