package shard

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// watched is a host of the list with its monitor.
type watched struct {
	pid   *actor.PID // nil: its name has no address yet, or the monitor failed for good; see reconcileMonitors
	login monitorLogin
	kind  monitor.Kind // how it is reached, as the monitor told last
	code  string
	err   string
	up    bool // the monitor's connection is counted
	ban   ban
	// behind is how many bytes it lacked at its last answer, at least.
	behind uint64
}

// monitorLogin is what a monitor cannot be told while it runs.
type monitorLogin struct{ user, database, password string }

func (s *Settings) login() monitorLogin { return monitorLogin{s.User, s.Database, s.Password} }

var (
	probeNow  = &monitor.ProbeNow{}
	closeDown = &monitor.Close{}
)

// reconcileMonitors sees that each host of the list has a monitor with the right login, and no other host has one.
func (a *decider) reconcileMonitors(now time.Time) {
	for h, w := range a.hosts {
		if !a.has(h) {
			a.stopMonitor(now, h, w)
			delete(a.hosts, h)
			if len(a.conns[h]) == 0 {
				a.assess(now, health.HostGone{Host: h})
			}
		}
	}
	login := a.mem.settings.login()
	for _, c := range a.list {
		w := a.hosts[c.Host]
		if w == nil {
			w = &watched{}
			a.hosts[c.Host] = w
		}
		if standIn(c) || w.pid != nil && w.login == login {
			continue
		}
		a.stopMonitor(now, c.Host, w)
		w.login = login
		w.pid = a.ctx.SpawnPrefix(a.cfg.Monitor(a.monitorConfig(c)), "monitor-")
	}
}

func (a *decider) monitorConfig(c election.HostConfig) monitor.Config {
	login := a.mem.settings.login()
	m := monitor.Config{
		Host: c.Host, User: login.user, Database: login.database, Dial: a.cfg.Dial, Mode: a.mode, Log: a.log,
		Password: func(context.Context) (string, error) { return login.password, nil },
	}
	if named(HostSetting{Addr: c.Name, Role: c.Role}) {
		m.Names, m.Name = a.names, c.Name
	}
	return m
}

// stopMonitor ends a host's monitor. That is no loss.
func (a *decider) stopMonitor(now time.Time, h role.Host, w *watched) {
	if w.pid == nil {
		return
	}
	a.ctx.Send(w.pid, closeDown)
	a.monitorGone(now, h, health.Disconnected{Expected: true, At: now})
	w.pid, w.kind, w.code, w.err = nil, monitor.Connecting, "", ""
}

// terminated: a child has ended. A monitor that was not told to has failed too often in a row: the next tick gives the host
// another one.
func (a *decider) terminated(who *actor.PID) {
	if a.ended || a.election == nil {
		return
	}
	if a.names != nil && a.names.Equal(who) {
		a.names = nil
	}
	for h, w := range a.hosts {
		if w.pid != nil && w.pid.Equal(who) {
			a.log.Error().Str("host", string(h)).Msg("shard: monitor ended")
			a.monitorGone(time.Now(), h, health.Disconnected{Expected: true, At: time.Now()})
			w.pid, w.kind = nil, monitor.Local
		}
	}
}

// defaultInterval is role_check_interval where none is given.
const defaultInterval = time.Second

// waitKept is how long a write counts as waiting after the last word of it.
const waitKept = 300 * time.Millisecond

func (a *decider) writeWaits(now time.Time) bool {
	return !a.waited.IsZero() && now.Before(a.waited.Add(waitKept))
}

// pace is how often monitors are to probe.
func (a *decider) pace(now time.Time) monitor.Mode {
	interval := a.mem.settings.Interval
	if interval <= 0 {
		interval = defaultInterval
	}
	_, doubted := a.election.InDoubt()
	urgent := doubted || a.election.View().Elected == "" || a.health.State() != health.Healthy
	waits := a.writeWaits(now)
	switch {
	case !urgent && !waits:
		a.urgentSince = time.Time{}
	case a.urgentSince.IsZero():
		a.urgentSince = now
	}
	return monitor.Pace(interval, urgent, now.Sub(a.urgentSince), waits)
}

// setPace tells the monitors how often to probe, if that is new.
func (a *decider) setPace(now time.Time) {
	mode := a.pace(now)
	if mode == a.mode {
		return
	}
	a.mode = mode
	for _, c := range a.list {
		if w := a.hosts[c.Host]; w.pid != nil {
			a.ctx.Send(w.pid, &mode)
		}
	}
}
