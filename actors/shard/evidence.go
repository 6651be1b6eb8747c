package shard

import (
	"errors"
	"syscall"
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/pgerr"
	"fencepost/role"
)

// This file says what each message of a lane or a monitor means to the two machines.

// Codes that a server announces its end with.
func announcesEnd(code string) bool {
	return code == pgerr.AdminShutdown || code == pgerr.CrashShutdown
}

// Codes with which a server ends a session as it was told to: no loss.
func endsAsTold(code string) bool {
	return code == pgerr.IdleSessionTimeout || code == pgerr.IdleInTransactionTimeout || code == pgerr.TransactionTimeout
}

// AboutLogin reports whether an error at login concerns the one who logs in, or how many do, and not the server. A client
// can bring it about, so it puts nothing in question.
func AboutLogin(code string) bool {
	return code != "" && code != pgerr.CannotConnectNow && !announcesEnd(code)
}

// connections are the backends that are counted, by host and ID.
type connections map[role.Host]map[uint64]bool

// add counts a backend; false: it was counted before, and the lane or the actor was restarted.
func (c connections) add(h role.Host, id uint64) bool {
	if c[h] == nil {
		c[h] = map[uint64]bool{}
	}
	was := c[h][id]
	c[h][id] = true
	return !was
}

// remove reports whether the backend was counted.
func (c connections) remove(h role.Host, id uint64) bool {
	was := c[h][id]
	delete(c[h], id)
	if len(c[h]) == 0 {
		delete(c, h)
	}
	return was
}

func (c connections) none(h role.Host) bool { return len(c[h]) == 0 }

// connected: a backend is logged in.
func (a *decider) connected(now time.Time, m *Connected) {
	h := role.Host(m.Host)
	if a.conns.add(h, m.Backend) {
		a.assess(now, health.Connected{Host: h})
	}
	if m.Observation != nil {
		a.observed(now, *m.Observation)
	} else {
		a.elect(now, m.At, election.Heard{Host: h, At: m.At})
	}
	a.stale = true
}

// observed records an answer, a backend's or a monitor's.
func (a *decider) observed(now time.Time, o role.Observation) {
	a.mem.seq++
	o.Observer, o.Seq = a.cfg.Observer, a.mem.seq
	a.elect(now, o.Answered, election.Observed{Observation: o})
	a.publishObserved(now, o)
	a.assess(now, health.Heard{Host: o.Host, At: o.Answered})
}

// hostLost: a backend is gone.
func (a *decider) hostLost(now time.Time, m *HostLost) {
	h, expected := role.Host(m.Host), m.Expected || endsAsTold(m.Code)
	a.elect(now, m.At, election.Lost{Host: h, Expected: expected, At: m.At})
	switch {
	case a.conns.remove(h, m.Backend):
		a.assess(now, health.Disconnected{Host: h, Expected: expected, Code: m.Code, Opened: m.Opened, At: m.At})
	case !expected: // one that was not counted, because the actor or the lane was restarted
		a.assess(now, health.ConnectFailed{Host: h, At: m.At})
		if announcesEnd(m.Code) {
			a.assess(now, health.ShutdownNotice{Host: h, Code: m.Code})
		}
	}
	if a.conns.none(h) && !a.list.has(h) {
		a.assess(now, health.HostGone{Host: h})
	}
	if expected {
		return
	}
	if m.Code == "" || announcesEnd(m.Code) {
		a.stale = a.monitors.ban(now, h, a.election.View().Elected) || a.stale
	}
	a.monitors.probeAfterLoss(a.ctx, h, a.election.View().Elected)
}

// connectFailed: a backend could not connect or log in.
func (a *decider) connectFailed(now time.Time, m *ConnectFailed) {
	h := role.Host(m.Host)
	a.assess(now, health.ConnectFailed{Host: h, Code: m.Code, At: m.At})
	if announcesEnd(m.Code) {
		a.assess(now, health.ShutdownNotice{Host: h, Code: m.Code})
	}
	switch {
	case AboutLogin(m.Code):
		a.elect(now, m.At, election.Heard{Host: h, At: m.At})
		return
	case m.Code != "", refused(m.Err):
		a.elect(now, m.At, election.Refused{Host: h, Code: m.Code, At: m.At})
	default:
		a.elect(now, m.At, election.Failed{Host: h, Why: "it could not be connected to", At: m.At})
	}
	a.stale = a.monitors.ban(now, h, a.election.View().Elected) || a.stale
	a.monitors.probe(a.ctx, h)
}

// refused reports whether a connect failed because the host itself said no.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// hinted: a server said something on a backend that puts its role in question.
func (a *decider) hinted(now time.Time, m *Hinted) {
	h, why := role.Host(m.Host), "it said "+m.Code+" on a connection"
	switch {
	case m.Code == "": // the lane ended before it came to know
		why = "it reported an error that puts its role in doubt"
	case m.Code == pgerr.ReadOnlyTransaction:
		why = "it refused a write as read-only"
	case announcesEnd(m.Code):
		why = "it announced its shutdown"
		a.assess(now, health.ShutdownNotice{Host: h, Code: m.Code})
	}
	a.elect(now, m.At, election.Hint{Host: h, Why: why, At: m.At})
	a.monitors.probeAfterLoss(a.ctx, h, a.election.View().Elected)
}

// probed: a monitor was answered.
func (a *decider) probed(now time.Time, o role.Observation) {
	a.observed(now, o)
	a.assess(now, health.MonitorAnswered{Host: o.Host, Asked: o.Asked, InRecovery: o.Verdict == role.InRecovery})
	if v := a.election.View(); v.Elected == o.Host && a.list.roleOf(o.Host) == election.Any {
		a.assess(now, health.Proven{Host: o.Host, Asked: o.Asked}) // nobody checks it: that it answers must do
	}
	if w := a.monitors.hosts[o.Host]; w != nil {
		w.answered(o, primaryLSN(a.election, o))
	}
	a.stale = true
}

func (a *decider) monitorLost(now time.Time, m *monitor.Lost) {
	a.elect(now, m.At, election.Lost{Host: m.Host, Expected: m.Expected, At: m.At})
	a.monitorGone(now, m.Host, health.Disconnected{Expected: m.Expected, Code: m.Code, At: m.At})
	if !m.Expected {
		a.monitors.probeAfterLoss(a.ctx, m.Host, a.election.View().Elected)
	}
	a.stale = true
}

// monitorGone takes the monitor's connection off the count, if it is on it.
func (a *decider) monitorGone(now time.Time, h role.Host, e health.Disconnected) {
	if w := a.monitors.hosts[h]; w != nil && w.up {
		w.up = false
		e.Host = h
		a.assess(now, e)
	}
}

// monitorFailed: a server that answers with an error is there.
func (a *decider) monitorFailed(now time.Time, m *monitor.Failed) {
	why := "its monitor could not ask it"
	switch {
	case m.Kind == monitor.Rejected:
		why = "it rejected its monitor with " + m.Code
	case m.Kind == monitor.Senseless && m.Code != "":
		why = "it answered its monitor with error " + m.Code
	case m.Kind == monitor.Senseless:
		why = "its answer made no sense"
	case m.Kind == monitor.Unreachable:
		why = "it could not be reached"
	case m.Kind == monitor.Silent:
		why = "it did not answer its monitor in time"
	case m.Kind == monitor.Garbled:
		why = "it does not speak PostgreSQL's protocol"
	}
	a.elect(now, m.At, election.Failed{Host: m.Host, Why: why, At: m.At})
	if m.Code != "" {
		a.elect(now, m.At, election.Heard{Host: m.Host, At: m.At})
	}
	a.stale = true
}

func (a *decider) monitorState(now time.Time, m *monitor.State) {
	w := a.monitors.hosts[m.Host]
	if w == nil {
		return
	}
	w.kind, w.since, w.late, w.code, w.err = m.Kind, now, false, m.Code, ""
	if m.Err != nil {
		w.err = m.Err.Error()
	}
	switch {
	case m.Kind == monitor.Up && !w.up:
		w.up = true
		a.assess(now, health.Connected{Host: m.Host})
	case m.Kind != monitor.Up && m.Kind != monitor.Senseless: // a monitor that was restarted has told of no loss
		a.monitorGone(now, m.Host, health.Disconnected{Expected: true, At: now})
	}
	a.assess(now, health.MonitorState{Host: m.Host, Kind: healthKind(m.Kind)})
	a.stale = true
}

// healthKind is what a monitor's kind means to the state of the shard. A login that was ended with 57P01 is Broken, a lost connection:
// whoever ends all sessions ends that one, too. A server that shuts down refuses the next one.
func healthKind(k monitor.Kind) health.Monitor {
	switch k {
	case monitor.Up:
		return health.MonitorUp
	case monitor.Closed:
		return health.MonitorRefused
	case monitor.Reset:
		return health.MonitorReset
	case monitor.Unreachable:
		return health.MonitorUnreachable
	case monitor.Starting:
		return health.MonitorStarting
	case monitor.Rejected, monitor.Senseless:
		return health.MonitorLogin
	}
	return health.MonitorLost // Connecting, Silent, Broken, Garbled, Local
}
