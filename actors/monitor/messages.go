package monitor

import (
	"fmt"
	"time"

	"fencepost/role"
)

// Messages to a monitor, from its shard. Nothing answers them but what a monitor reports anyway.
type (
	// ProbeNow asks for a probe that is asked after this message: at once, or right behind the one under way. Without a
	// connection the next attempt to connect is made at once, but not sooner than the shortest back-off after the last.
	ProbeNow struct{}
	// Mode says how often to probe and how long to wait between attempts to connect. It works at once. See Pace.
	Mode struct {
		Interval time.Duration // from asking to asking; below 1 ms: as 1 ms
		Backoff  time.Duration // the longest wait between attempts to connect; below 1 ms: as 1 ms
	}
	// Reconnect has a monitor whose connection was dialled before Before give it up and connect anew, at once: a newer connection
	// to the same address leads to another server.
	Reconnect struct{ Before time.Time }
	// Close ends the monitor: it closes its connection and stops. Its parent gets Terminated.
	Close struct{}
)

// Messages from a monitor to its shard, in the order in which things happened. They are immutable. Times are by this
// process's clock, with its monotonic reading: Asked is when an attempt or a probe began, At when what is told happened. What
// is Asked after a message's At was asked when the monitor knew of it.
type (
	// Observed is an answer to a probe, with Source Probe. Observer and Seq are the shard's to set.
	Observed struct{ role.Observation }
	// Late says that the probe asked at Asked has had no answer for Config.Late. It is sent once per probe, while the
	// probe runs; its answer may still come (Observed, with the same Asked) or not (Lost).
	Late struct {
		Host      role.Host
		Asked, At time.Time
	}
	// Lost says that the connection is gone: the server ended or reset it, or did not answer a probe for Config.Unanswered
	// (Kind Silent), or said something that is no PostgreSQL (Kind Garbled). A connection that was never logged in is not
	// lost: see Refused and Failed.
	Lost struct {
		Host role.Host
		Kind Kind   // Broken, Silent or Garbled; Local after a bug
		Code string // SQLSTATE of the server's last word, also when that was a warning; "" if it said nothing
		// Expected: the server closed what was idle for too long (57P05, 25P03, 25P04), or the close was ours (Garbled, Local).
		// That says nothing about the server.
		Expected bool
		At       time.Time
		Err      error
	}
	// Refused says that an attempt to connect was refused, reset or closed before the server's first byte, or answered
	// with 57P03.
	Refused struct {
		Host role.Host
		// AfterLoss: this was the first attempt after a Lost that was not Expected.
		AfterLoss bool
		Kind      Kind   // Closed, Reset or Starting
		Code      string // 57P03 if Kind is Starting, else ""
		Asked, At time.Time
		Err       error
	}
	// Failed says that an attempt to connect or to probe failed in any other way. On the first attempt it means that
	// nothing is known of the host yet. A probe that the server answered with an error or with nonsense leaves the
	// connection open and is asked again at the next interval.
	Failed struct {
		Host      role.Host
		Kind      Kind
		Code      string // SQLSTATE, if the server sent one
		Asked, At time.Time
		Err       error
	}
	// State says how the host can be reached now. It is sent when Kind changes, behind the message that caused it.
	State struct {
		Host role.Host
		Kind Kind
		Code string
		Err  error // nil if Kind is Up or Connecting
	}
)

// Messages to Names, from the shard that owns it.
type (
	// Watch gives the names to follow, "host:port" each, instead of those before. What is known of the ones that stay is
	// kept, and not reported again.
	Watch struct{ Names []string }
	// Refresh asks for a look at a name now, or right behind the one under way, but not sooner than 200 ms after the last.
	// Monitors send it with every attempt to connect. A name that is not watched is ignored. Only a change is answered.
	Refresh struct{ Name string }
)

// Messages from Names to its shard.
type (
	// Resolved gives the addresses of a name, sorted and each once: when they are first known, when they change, and
	// after Unresolved. There is at least one.
	Resolved struct {
		Name  string
		Hosts []role.Host
	}
	// Unresolved says that a name has no answer since now: on the first failure, and when Slow changes. What Resolved said
	// before still holds; nothing is known of the addresses but that the question was not answered.
	Unresolved struct {
		Name string
		Slow bool // no answer in time, as opposed to an answer that says no
		Err  error
	}
)

// tick is the timer's message of a monitor to itself; one of an earlier setting is stale.
type tick struct{ id uint64 }

// Reports of a worker to its actor; each says whose it is, since after a restart of the actor an old one may come.
type (
	// dialed: logged in, or not.
	dialed struct {
		by     *worker
		failed *failure
	}
	// probed: the answer to a probe; with senseless the connection goes on too.
	probed struct {
		by        *worker
		id        role.Identity
		senseless *failure
	}
	// dropped: the connection was lost, while a probe was under way or not.
	dropped struct {
		by    *worker
		cause *failure
	}
)

// Messages of Names to itself. A look that is not the name's present one is stale.
type (
	lookDue struct {
		name string
		look uint64
	}
	looked struct {
		name  string
		look  uint64
		hosts []role.Host
		err   error
	}
)

// IgnoreDeadLetterLogging: what arrives while the actor ends is not wanted any more.
func (tick) IgnoreDeadLetterLogging()    {}
func (dialed) IgnoreDeadLetterLogging()  {}
func (probed) IgnoreDeadLetterLogging()  {}
func (dropped) IgnoreDeadLetterLogging() {}
func (lookDue) IgnoreDeadLetterLogging() {}
func (looked) IgnoreDeadLetterLogging()  {}

// Kind is how a host is reached or not.
type Kind uint8

// The kinds. Up and Connecting occur in State only.
const (
	// Connecting: not tried yet, or the connection was lost and the next attempt has not ended.
	Connecting Kind = iota
	// Up: the last probe was answered.
	Up
	// Closed: nobody listens there. TCP refused, or a unix socket without a server.
	Closed
	// Reset: the connection was closed or reset before the server's first byte. A proxy or relay without a server behind
	// it does so, and so does a server that is just ending.
	Reset
	// Starting: the server answered with 57P03: it starts, recovers or shuts down, or takes no connections in recovery.
	Starting
	// Unreachable: no route, or the connection could not be made in time.
	Unreachable
	// Silent: the connection was made, but a login or a probe was not answered in time.
	Silent
	// Broken: the connection ended in the middle.
	Broken
	// Rejected: the server answered the login with an error other than 57P03. It runs, but the monitor cannot look.
	Rejected
	// Senseless: the server answered the probe with an error or with a row that makes no sense.
	Senseless
	// Garbled: what answers does not speak PostgreSQL's protocol.
	Garbled
	// Local: the fault is here: no file descriptor or port was free, the credential source failed, a bug.
	Local
)

// Down reports whether nobody can be talked to at the address, which a server that is merely slow, busy or picky does not
// cause: refused, reset or unreachable.
func (k Kind) Down() bool { return k == Closed || k == Reset || k == Unreachable }

// String is the kind's name in the log, in metrics and in the console.
func (k Kind) String() string {
	switch k {
	case Connecting:
		return "connecting"
	case Up:
		return "up"
	case Closed:
		return "closed"
	case Reset:
		return "reset"
	case Starting:
		return "starting"
	case Unreachable:
		return "unreachable"
	case Silent:
		return "silent"
	case Broken:
		return "broken"
	case Rejected:
		return "rejected"
	case Senseless:
		return "senseless"
	case Garbled:
		return "garbled"
	case Local:
		return "local"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Intervals of Pace.
const (
	EagerInterval   = 20 * time.Millisecond // a write waits, and that for no longer than EagerFor
	EagerFor        = 10 * time.Second
	StandbyInterval = 80 * time.Millisecond  // of a host that is in recovery, at most
	UrgentInterval  = 50 * time.Millisecond  // in doubt, not Healthy, or a write waits
	TiredInterval   = 500 * time.Millisecond // the same for longer than TiredAfter while no write waits
	TiredAfter      = 30 * time.Second
	LongBackoff     = 500 * time.Millisecond
	ShortBackoff    = 100 * time.Millisecond // while a write waits
)

// Pace is the Mode for a shard's situation. interval is role_check_interval; urgent: the shard is in doubt or not Healthy;
// writeWaits: a client waits for the primary. urgentFor is how long either has been so.
func Pace(interval time.Duration, urgent bool, urgentFor time.Duration, writeWaits bool) Mode {
	m := Mode{Interval: interval, Backoff: LongBackoff}
	switch {
	case writeWaits && urgentFor < EagerFor:
		m = Mode{Interval: min(interval, EagerInterval), Backoff: ShortBackoff}
	case writeWaits:
		m = Mode{Interval: min(interval, UrgentInterval), Backoff: ShortBackoff}
	case urgent && urgentFor < TiredAfter:
		m.Interval = min(interval, UrgentInterval)
	case urgent:
		m.Interval = min(interval, TiredInterval)
	}
	return m
}
