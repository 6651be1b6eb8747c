// Package health is the HA state of a shard: whether its primary is served as usual, looked at with suspicion, or given
// up. It is pure: events in, effects out; the shard actor executes the effects. Who the primary is the election decides.
//
//	(start) --> Unhealthy
//	Healthy   --> Unhealthy   a connection lost that neither we nor a timeout of the server's settings ended; a connect that
//	                          failed; silence for unhealthy_after; the primary is no longer one, and nobody else is
//	Unhealthy --> Healthy     the primary is proven by something asked for after the last loss, and its monitor hears it
//	Unhealthy --> Failover    failover_disconnect_ratio of the connections that were there when it became Unhealthy are lost,
//	                          failover_min_time has passed, and the monitor is down
//	Healthy, Unhealthy --> Failover, at once: another host is elected; a shutdown was announced and a reconnect of the monitor that
//	                          began after that was refused, was closed before the first byte, or found the server shutting
//	                          down or in recovery;
//	                          a notification source says so
//	Failover  --> Healthy     as from Unhealthy
//
// What is counted are the connections to the host that was elected last, its monitor's among them.
package health

import (
	"fmt"
	"time"

	"fencepost/role"
)

// State of a shard.
type State uint8

// The states.
const (
	Unhealthy State = iota // every connection is kept, writes are granted under doubt or held
	Healthy                // serves
	Failover               // the write backends of the failed host are closed, writes are held or refused
)

func (s State) String() string {
	switch s {
	case Unhealthy:
		return "unhealthy"
	case Healthy:
		return "healthy"
	case Failover:
		return "failover"
	}
	return fmt.Sprintf("invalid(%d)", uint8(s))
}

// Config are the thresholds.
type Config struct {
	UnhealthyAfter  time.Duration // silence that makes a shard Unhealthy (unhealthy_after)
	DisconnectRatio float64       // share of the connections that must be lost for Failover, 0..1 (failover_disconnect_ratio)
	MinTime         time.Duration // how long it must have been Unhealthy for that (failover_min_time)
}

// Defaults are the thresholds where none are given.
func Defaults() Config {
	return Config{UnhealthyAfter: 10 * time.Second, DisconnectRatio: 0.6, MinTime: 30 * time.Second}
}

// host is what is known about the connections to one host.
type host struct {
	conns        int
	loss         time.Time // the last one, or whatever else put an end to what was proven before; zero: none
	proven       time.Time // the latest time at which a positive answer was asked for
	monitorAsked time.Time // the same for an answer of any kind to the monitor
	heard        time.Time
	monitor      Monitor
	gone         bool // no longer one of the shard
}

// Machine is the HA state of one shard.
type Machine struct {
	cfg     Config
	now     time.Time
	state   State
	since   time.Time
	reason  string
	hosts   map[role.Host]*host
	last    role.Host // elected last; "": none yet
	elected bool      // it still is

	total  int // connections there were when it became Unhealthy
	lost   int // of those
	notice notice

	effects []Effect
}

// notice is an announced shutdown that nothing has confirmed or refuted yet.
type notice struct {
	at   time.Time // zero: none
	code string
}

// New is the state of a shard of which nothing is known yet: Unhealthy.
func New(now time.Time, cfg Config) *Machine {
	return &Machine{cfg: cfg, now: now, since: now, reason: "started", hosts: make(map[role.Host]*host)}
}

// Resume is New after a restart of the shard's actor: the host elected last is known, so that the election of another
// one is seen to be a failover.
func Resume(now time.Time, cfg Config, elected role.Host) *Machine {
	m := New(now, cfg)
	if elected != "" {
		m.last, m.elected = elected, true
		m.keep(elected).loss = now
	}
	return m
}

// State of the shard.
func (m *Machine) State() State { return m.state }

// Since is when the shard entered its state.
func (m *Machine) Since() time.Time { return m.since }

// Reason says in a sentence why it did.
func (m *Machine) Reason() string { return m.reason }

// Host is the host elected last, whose connections are counted; "" if none was yet.
func (m *Machine) Host() role.Host { return m.last }

// Connections to the host elected last; of those that were there when the shard became Unhealthy, how many are lost.
func (m *Machine) Connections() (open, total, lost int) {
	return m.of(m.last).conns, m.total, m.lost
}

// Step takes one event in. The effects belong to the caller. Time never runs backwards: a now before the last one is
// taken for the last one.
func (m *Machine) Step(now time.Time, ev Event) []Effect {
	if now.After(m.now) {
		m.now = now
	}
	m.apply(ev)
	m.settle()
	effects := m.effects
	m.effects = nil
	return effects
}

// of is what is known about a host. A host that nothing has been said of is all zero, and is not kept.
func (m *Machine) of(name role.Host) *host {
	if h := m.hosts[name]; h != nil {
		return h
	}
	return &host{}
}

// keep is of, for a host that something is said of now.
func (m *Machine) keep(name role.Host) *host {
	h := m.hosts[name]
	if h == nil {
		h = &host{}
		m.hosts[name] = h
	}
	return h
}

// enter a state, because of something said of the host elected last.
func (m *Machine) enter(s State, why string) {
	from := m.state
	m.state, m.since, m.reason = s, m.now, string(m.last)+": "+why
	m.effects = append(m.effects, Entered{State: s, From: from, Host: m.last, Reason: m.reason})
}

func (m *Machine) bug(format string, a ...any) {
	m.effects = append(m.effects, Bug{fmt.Sprintf(format, a...)})
}

// at is when something happened: now if it is not known, and never later than now.
func (m *Machine) at(t time.Time) time.Time {
	if t.IsZero() || t.After(m.now) {
		return m.now
	}
	return t
}

// Next is when a Tick can change something if nothing else happens before: zero if never.
func (m *Machine) Next() time.Time {
	switch {
	case m.state == Healthy:
		return m.of(m.last).heard.Add(m.cfg.UnhealthyAfter)
	case m.state == Unhealthy && m.last != "" && m.since.Add(m.cfg.MinTime).After(m.now):
		return m.since.Add(m.cfg.MinTime)
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
