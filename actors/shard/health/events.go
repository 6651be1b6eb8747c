package health

import (
	"fmt"
	"time"

	"fencepost/role"
)

// Event is what happens to a shard: one of the types below. Where an event has At it is when that happened, at the latest
// now; zero means now. Events about hosts that are not elected are kept for when they are.
type Event interface {
	event()
	fmt.Stringer
}

// Monitor is how a host's monitor fares with its connection.
type Monitor uint8

// The states of a monitor. Late is not one of them: a monitor that waits is up.
const (
	MonitorUp          Monitor = iota // connected, or not known yet
	MonitorLost                       // its connection was lost, and no attempt since has told why: silence is not down
	MonitorRefused                    // connection refused
	MonitorReset                      // reset, or closed before the first byte
	MonitorUnreachable                // no route, or no answer at all to a connect
	MonitorStarting                   // the server lets nobody in: it is starting up or shutting down (cannot_connect_now)
	MonitorLogin                      // any other error from the server: it answers, but the monitor cannot log in
)

var monitorNames = [...]string{"up", "connection lost", "refused", "reset", "unreachable", "starting up or shutting down", "cannot log in"}

func (k Monitor) String() string {
	if int(k) < len(monitorNames) {
		return monitorNames[k]
	}
	return fmt.Sprintf("invalid(%d)", uint8(k))
}

// Down reports whether the host is down as far as its monitor can tell.
func (k Monitor) Down() bool {
	return k == MonitorRefused || k == MonitorReset || k == MonitorUnreachable
}

type (
	// Connected says that a connection to a host stands, a backend's or its monitor's.
	Connected struct{ Host role.Host }
	// Disconnected says that one ended. Expected: we closed it. Code is the SQLSTATE the
	// server sent last, "" for none: one that announces a shutdown counts as a ShutdownNotice. Opened is when it was
	// connected, zero if that is not known.
	Disconnected struct {
		Host     role.Host
		Expected bool
		Code     string
		Opened   time.Time
		At       time.Time
	}
	// ConnectFailed says that a backend could not connect. Code is the SQLSTATE the server gave, "" if it gave none.
	ConnectFailed struct {
		Host role.Host
		Code string
		At   time.Time
	}
	// Heard says that the host sent something on any connection.
	Heard struct {
		Host role.Host
		At   time.Time
	}
	// MonitorState says how the host's monitor fares. It comes after the Disconnected of the monitor's connection. Asked is
	// when the attempt to connect that showed it began; zero: it was none.
	MonitorState struct {
		Host  role.Host
		Kind  Monitor
		Asked time.Time
	}
	// MonitorAnswered says that a probe was answered, whatever the answer.
	MonitorAnswered struct {
		Host       role.Host
		Asked      time.Time
		InRecovery bool // it said so: confirms an announced shutdown
	}
	// Proven says that the host answered a probe or a fence as writable, in the right cluster and not below the floor.
	Proven struct {
		Host  role.Host
		Asked time.Time
	}
	// Elected says who is elected now; "" for nobody. It comes before the Proven that it rests on, or after.
	Elected struct{ Host role.Host }
	// ShutdownNotice says that a server announced its end on a connection that is still there, in an error or a notice
	// (admin_shutdown, crash_shutdown).
	ShutdownNotice struct {
		Host role.Host
		Code string
	}
	// SourceSaysFailover says that a notification source declared the host failed.
	SourceSaysFailover struct {
		Host role.Host
		Why  string
	}
	// HostGone says that the host is no longer one of the shard, and that nothing more will be said of it until it is one
	// again: then a connection to it comes first.
	HostGone struct{ Host role.Host }
	// Configure replaces the thresholds.
	Configure struct{ Config Config }
	// Tick lets time pass; see Machine.Next.
	Tick struct{}
)

func (Connected) event()          {}
func (Disconnected) event()       {}
func (ConnectFailed) event()      {}
func (Heard) event()              {}
func (MonitorState) event()       {}
func (MonitorAnswered) event()    {}
func (Proven) event()             {}
func (Elected) event()            {}
func (ShutdownNotice) event()     {}
func (SourceSaysFailover) event() {}
func (HostGone) event()           {}
func (Configure) event()          {}
func (Tick) event()               {}

func (e Connected) String() string { return fmt.Sprintf("connected %s", e.Host) }
func (e Disconnected) String() string {
	return fmt.Sprintf("disconnected %s expected=%t %q", e.Host, e.Expected, e.Code)
}
func (e ConnectFailed) String() string { return fmt.Sprintf("connect failed %s %q", e.Host, e.Code) }
func (e Heard) String() string         { return fmt.Sprintf("heard %s", e.Host) }
func (e MonitorState) String() string  { return fmt.Sprintf("monitor of %s: %s", e.Host, e.Kind) }
func (e MonitorAnswered) String() string {
	return fmt.Sprintf("monitor of %s answered in-recovery=%t", e.Host, e.InRecovery)
}
func (e Proven) String() string  { return fmt.Sprintf("proven %s", e.Host) }
func (e Elected) String() string { return fmt.Sprintf("elected %q", e.Host) }
func (e ShutdownNotice) String() string {
	return fmt.Sprintf("shutdown notice %s %s", e.Host, e.Code)
}
func (e SourceSaysFailover) String() string {
	return fmt.Sprintf("source says failover %s: %s", e.Host, e.Why)
}
func (e HostGone) String() string  { return fmt.Sprintf("host gone %s", e.Host) }
func (e Configure) String() string { return fmt.Sprintf("configure %+v", e.Config) }
func (e Tick) String() string      { return "tick" }

// Effect is what the shard has to do or to tell: one of the types below.
type Effect interface {
	effect()
	fmt.Stringer
}

type (
	// Entered says that the state changed. Host is the one elected last, or, in a Failover because another one was
	// elected, the one before it: whose write backends are to be closed.
	Entered struct {
		State, From State
		Host        role.Host
		Reason      string
	}
	// Bug says that something came that cannot happen. It was taken for the worse.
	Bug struct{ What string }
)

func (Entered) effect() {}
func (Bug) effect()     {}

func (e Entered) String() string {
	return fmt.Sprintf("%s -> %s %q: %s", e.From, e.State, e.Host, e.Reason)
}
func (e Bug) String() string { return "bug: " + e.What }
