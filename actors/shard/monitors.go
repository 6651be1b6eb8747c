package shard

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// watched is a host of the list with its monitor.
type watched struct {
	pid   *actor.PID // nil: its name has no address yet, or the monitor failed for good; see reconcileMonitors
	login monitorLogin
	kind  monitor.Kind // how it is reached, as the monitor told last …
	since time.Time    // … and since when
	late  bool         // a probe has had no answer for long
	code  string
	err   string
	up    bool // the monitor's connection is counted
	mode  monitor.Mode
	// standby: its last answer said that it is in recovery.
	standby bool
	ban     ban
	// behind is how many bytes it lacked at its last answer, at least.
	behind uint64
}

// monitorLogin is what a monitor cannot be told while it runs.
type monitorLogin struct {
	user, database, password string
	unanswered               time.Duration // 0: the monitor's own
}

// leastUnanswered is the least time after which a monitor gives up a connection on which it has no answer: a busy server is slow.
const leastUnanswered = 2 * time.Second

// A monitor gives up a silent connection when its host counts as silent, if that is sooner than it would by itself: whether it is the host
// or the connection shows the next one.
func (s *Settings) login() monitorLogin {
	l := monitorLogin{user: s.User, database: s.Database, password: s.Password}
	if after := s.Election.UnhealthyAfter; after > 0 && after < monitor.DefaultUnanswered {
		l.unanswered = max(after, leastUnanswered)
	}
	return l
}

var (
	probeNow  = &monitor.ProbeNow{}
	closeDown = &monitor.Close{}
)

// monitors are the actors that watch the shard's hosts.
type monitors struct {
	cfg   *ActorConfig
	log   zerolog.Logger
	hosts map[role.Host]*watched
	order hostList
	names *actor.PID // nil: no host has a name
	mode  monitor.Mode
}

// probe asks the host's monitor for a probe now.
func (m *monitors) probe(ctx actor.Context, h role.Host) {
	if w := m.hosts[h]; w != nil && w.pid != nil {
		ctx.Send(w.pid, probeNow)
	}
}

func (m *monitors) probeAll(ctx actor.Context) {
	for _, h := range m.order {
		m.probe(ctx, h.Host)
	}
}

// reconnect has the host's monitor connect anew if its connection was dialled before a time.
func (m *monitors) reconnect(ctx actor.Context, h role.Host, before time.Time) {
	if w := m.hosts[h]; w != nil && w.pid != nil {
		ctx.Send(w.pid, &monitor.Reconnect{Before: before})
	}
}

// probeAfterLoss asks the monitor of a host that something happened to, and all of them if it is the elected one: a host
// that takes over is then found sooner.
func (m *monitors) probeAfterLoss(ctx actor.Context, h, elected role.Host) {
	if h == elected {
		m.probeAll(ctx)
	} else {
		m.probe(ctx, h)
	}
}

// setMode tells the monitors how often to probe, if that is new. Standbys are asked more often than the primary: that one was
// promoted while the old primary lives is seen nowhere else, and each write that the old one takes meanwhile is lost.
func (m *monitors) setMode(ctx actor.Context, mode monitor.Mode) {
	m.mode = mode
	for _, h := range m.order {
		w, own := m.hosts[h.Host], mode
		if w.standby {
			own.Interval = min(own.Interval, monitor.StandbyInterval)
		}
		if w.pid != nil && own != w.mode {
			w.mode = own
			ctx.Send(w.pid, &own)
		}
	}
}

// start spawns a host's monitor.
func (m *monitors) start(ctx actor.Context, h election.HostConfig, login monitorLogin) *actor.PID {
	c := monitor.Config{
		Host: h.Host, User: login.user, Database: login.database, Dial: m.cfg.Dial, Mode: m.mode, Log: m.log, Unanswered: login.unanswered,
		Password: func(context.Context) (string, error) { return login.password, nil },
	}
	if named(HostSetting{Addr: h.Name, Role: h.Role}) {
		c.Names, c.Name = m.names, h.Name
	}
	return ctx.SpawnPrefix(m.cfg.Monitor(c), "monitor-")
}

// ban keeps reads from a standby for a while; false: it is the primary, whose failings are the election's business, or is
// banned already.
func (m *monitors) ban(now time.Time, h, elected role.Host) bool {
	w := m.hosts[h]
	if w == nil || h == elected || w.banned(now) {
		return false
	}
	w.ban.length = min(max(2*w.ban.length, firstBan), longestBan)
	w.ban.since, w.ban.until = now, now.Add(w.ban.length)
	m.log.Info().Str("host", string(h)).Dur("for", w.ban.length).Msg("shard: standby banned")
	return true
}

// candidates are the hosts that a client's login may look at where their monitors cannot: what answers, but does not let
// the monitor in, may be the primary all the same.
func (m *monitors) candidates(list hostList) (hosts []string) {
	for _, c := range list {
		if w := m.hosts[c.Host]; c.Role != election.Replica && w != nil && (w.kind == monitor.Rejected || w.kind == monitor.Senseless) {
			hosts = append(hosts, string(c.Host))
		}
	}
	return hosts
}

// reconcileMonitors sees that each host of the list has a monitor with the right login, and no other host has one.
func (a *decider) reconcileMonitors(now time.Time) {
	hosts := a.monitors.hosts
	for h, w := range hosts {
		if !a.list.has(h) {
			a.stopMonitor(now, h, w)
			delete(hosts, h)
			if a.conns.none(h) {
				a.assess(now, health.HostGone{Host: h})
			}
		}
	}
	a.monitors.order = a.list
	login := a.mem.settings.login()
	for _, c := range a.list {
		w := hosts[c.Host]
		if w == nil {
			w = &watched{}
			hosts[c.Host] = w
		}
		if standIn(c) || w.pid != nil && w.login == login {
			continue
		}
		a.stopMonitor(now, c.Host, w)
		w.login = login
		w.mode = a.monitors.mode
		w.pid = a.monitors.start(a.ctx, c, login)
	}
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
	if a.monitors.names != nil && a.monitors.names.Equal(who) {
		a.monitors.names = nil
	}
	for h, w := range a.monitors.hosts {
		if w.pid != nil && w.pid.Equal(who) {
			a.log.Error().Str("host", string(h)).Msg("shard: monitor ended")
			a.monitorGone(time.Now(), h, health.Disconnected{Expected: true, At: time.Now()})
			w.pid, w.kind = nil, monitor.Local
		}
	}
}

// setPace tells the monitors how often to probe.
func (a *decider) setPace(now time.Time) {
	_, doubted := a.election.InDoubt()
	urgent := doubted || a.election.View().Elected == "" || a.health.State() != health.Healthy
	a.monitors.setMode(a.ctx, a.pacer.mode(now, a.mem.settings.Interval, urgent))
}

// pacer decides how often monitors probe.
type pacer struct {
	urgentSince time.Time // zero: not urgent
	waited      time.Time // when a write waited last
}

// defaultInterval is role_check_interval where none is given.
const defaultInterval = time.Second

// waitKept is how long a write counts as waiting after the last Waiting.
const waitKept = 300 * time.Millisecond

func (p *pacer) writeWaits(now time.Time) bool {
	return !p.waited.IsZero() && now.Before(p.waited.Add(waitKept))
}

// mode is how often to probe; zero interval: the default. urgent: the shard is in doubt, not healthy or without a primary.
func (p *pacer) mode(now time.Time, interval time.Duration, urgent bool) monitor.Mode {
	if interval <= 0 {
		interval = defaultInterval
	}
	waits := p.writeWaits(now)
	switch {
	case !urgent && !waits:
		p.urgentSince = time.Time{}
	case p.urgentSince.IsZero():
		p.urgentSince = now
	}
	return monitor.Pace(interval, urgent, now.Sub(p.urgentSince), waits)
}
