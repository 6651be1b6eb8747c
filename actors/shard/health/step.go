package health

import (
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

func (m *Machine) apply(ev Event) {
	switch e := ev.(type) {
	case Connected:
		h := m.keep(e.Host)
		h.conns++
		h.heard, h.gone = m.now, false // back, if it was gone: its connections are counted again
	case Disconnected:
		m.disconnected(e)
	case ConnectFailed:
		m.connectFailed(e)
	case Heard:
		h := m.keep(e.Host)
		h.heard = later(h.heard, m.at(e.At))
	case MonitorState:
		m.monitor(e)
	case MonitorAnswered:
		m.answered(e)
	case Proven:
		if m.sane(e.Host, e.Asked) {
			h := m.keep(e.Host)
			h.proven, h.heard = later(h.proven, e.Asked), m.now
		}
	case Elected:
		m.elect(e.Host)
	case ShutdownNotice:
		m.announced(e)
	case SourceSaysFailover:
		if e.Host == m.last && e.Host != "" {
			m.fail(e.Why)
		}
	case HostGone:
		m.keep(e.Host).gone = true
		m.forget(e.Host)
	case Configure:
		m.cfg = e.Config
	case Tick:
	default:
		m.bug("unknown event %v", ev)
		m.suspect("an event that cannot happen")
	}
}

// sane reports whether an answer can have been asked for when it says it was.
func (m *Machine) sane(host role.Host, asked time.Time) bool {
	if asked.IsZero() || asked.After(m.now) {
		m.bug("an answer of %s was asked for at an impossible time", host)
		return false
	}
	return true
}

// A server that ends a session because it was idle, or too long in a transaction, does as it was told.
func ordinary(code string) bool {
	return code == pgerr.IdleSessionTimeout || code == pgerr.IdleInTransactionTimeout || code == pgerr.TransactionTimeout
}

func (m *Machine) disconnected(e Disconnected) {
	h := m.keep(e.Host)
	if h.conns == 0 {
		m.bug("a connection to %s ended that was not there", e.Host)
		e.Expected = false
	} else {
		h.conns--
	}
	// Of those that were there when the shard became Unhealthy? In other states nobody counts.
	old := e.Host == m.last && (e.Opened.IsZero() || !e.Opened.After(m.since))
	if e.Expected || ordinary(e.Code) {
		if old && m.total > m.lost {
			m.total--
		}
		return
	}
	if old && m.lost < m.total {
		m.lost++
	}
	m.loss(h, e.Host, m.at(e.At), 1, "a connection to it was lost")
	if announces(e.Code) {
		m.announced(ShutdownNotice{e.Host, e.Code})
	}
}

// loss of a number of connections, or of the hope for one.
func (m *Machine) loss(h *host, name role.Host, at time.Time, n int, why string) {
	h.loss = later(h.loss, at)
	if name == m.last && m.state == Healthy {
		m.enter(Unhealthy, why)
		m.total, m.lost = h.conns+n, n
	}
}

// connectFailed: a server that gives a reason of its own is alive.
func (m *Machine) connectFailed(e ConnectFailed) {
	h := m.keep(e.Host)
	if e.Code != "" && e.Code != pgerr.CannotConnectNow {
		h.heard = later(h.heard, m.at(e.At))
		return
	}
	m.loss(h, e.Host, m.at(e.At), 0, "a connect to it failed")
}

// suspect makes a healthy shard Unhealthy, and in any other lets only what is asked for from now on end that.
func (m *Machine) suspect(why string) {
	if m.last != "" {
		m.loss(m.keep(m.last), m.last, m.now, 0, why)
	}
}

// fail gives the host elected last up, if that has not been done.
func (m *Machine) fail(why string) {
	m.notice = notice{}
	if m.state == Failover {
		return
	}
	h := m.keep(m.last)
	h.loss = later(h.loss, m.now)
	m.enter(Failover, why)
}

func (m *Machine) elect(name role.Host) {
	m.elected = name != ""
	switch {
	case name == "":
		m.suspect("it is no longer the primary, and no other host is")
	case m.last == "":
		m.last = name
	case name != m.last:
		if m.state != Failover {
			m.enter(Failover, string(name)+" was elected instead")
		}
		before := m.last
		m.last, m.notice = name, notice{}
		m.forget(before)
	}
}

// forget what is known about a host that is gone, unless it was elected last.
func (m *Machine) forget(name role.Host) {
	if name != m.last && m.of(name).gone {
		delete(m.hosts, name)
	}
}

func (m *Machine) monitor(e MonitorState) {
	if e.Kind > MonitorLogin {
		m.bug("monitor of %s: %s", e.Host, e.Kind)
		return
	}
	h := m.keep(e.Host)
	h.monitor = e.Kind
	if e.Kind == MonitorLogin {
		h.heard = m.now
	}
	if e.Kind.Down() || e.Kind == MonitorStarting {
		m.loss(h, e.Host, m.now, 0, "its monitor: "+e.Kind.String())
	}
	// A session that an operator ends hears the same as all do at a shutdown, and so does the monitor's if all that are idle
	// are ended: its loss confirms nothing. What a reconnect finds does, if it began when the shutdown was announced already.
	if n := m.notice; e.Host == m.last && !n.at.IsZero() && e.Asked.After(n.at) &&
		(e.Kind == MonitorRefused || e.Kind == MonitorReset || e.Kind == MonitorStarting) {
		m.fail("its shutdown was announced (" + n.code + "), and its monitor: " + e.Kind.String())
	}
}

func (m *Machine) answered(e MonitorAnswered) {
	if !m.sane(e.Host, e.Asked) {
		return
	}
	h := m.keep(e.Host)
	h.monitorAsked, h.heard, h.monitor = later(h.monitorAsked, e.Asked), m.now, MonitorUp
	if e.InRecovery && e.Host == m.last && !m.notice.at.IsZero() {
		m.fail("its shutdown was announced (" + m.notice.code + "), and it is in recovery")
	}
}

func announces(code string) bool { return code == pgerr.AdminShutdown || code == pgerr.CrashShutdown }

func (m *Machine) announced(e ShutdownNotice) {
	if !announces(e.Code) {
		m.bug("shutdown notice with %s", e.Code)
		return
	}
	if e.Host != m.last || e.Host == "" {
		return
	}
	if m.notice.at.IsZero() { // the first of many counts: a reconnect may have been under way since
		m.notice = notice{m.now, e.Code}
	}
}

// settle draws the conclusions of a step.
func (m *Machine) settle() {
	h := m.of(m.last)
	if !m.notice.at.IsZero() && h.monitorAsked.After(m.notice.at) {
		m.notice = notice{} // the monitor was answered after it
	}
	if m.state == Healthy && m.silent(h) {
		m.suspect("nothing was heard from it for " + m.cfg.UnhealthyAfter.String())
	}
	if m.state != Healthy && m.elected && m.wellHeard(h) {
		m.total, m.lost = 0, 0
		m.enter(Healthy, "it was proven by an answer requested after the last loss")
		return
	}
	if m.state == Unhealthy && m.last != "" && m.given(h) {
		m.fail("most of its connections are lost, and its monitor: " + h.monitor.String())
	}
}

// silent reports whether nothing was heard from the host for too long.
func (m *Machine) silent(h *host) bool { return !m.now.Before(h.heard.Add(m.cfg.UnhealthyAfter)) }

// wellHeard reports whether the host is proven by something asked for after the last loss, and its monitor hears it. A
// monitor that the server does not let in cannot: then a client's fence is enough.
func (m *Machine) wellHeard(h *host) bool {
	if !h.proven.After(h.loss) || m.silent(h) {
		return false
	}
	return h.monitor == MonitorLogin || h.monitor == MonitorUp && h.monitorAsked.After(h.loss)
}

// given reports whether enough is lost for long enough: all there is, if no connection was there to begin with.
func (m *Machine) given(h *host) bool {
	if m.now.Before(m.since.Add(m.cfg.MinTime)) || !h.monitor.Down() {
		return false
	}
	if m.total == 0 {
		return h.conns == 0
	}
	return float64(m.lost) >= m.cfg.DisconnectRatio*float64(m.total)
}
