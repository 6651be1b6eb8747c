package shard

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/cluster"
	"fencepost/cluster/evidence"
)

// This file is what an operator orders: FORGET, a reload, SWITCHOVER, SHOW.

// forget begins a new generation.
func (a *decider) forget(now time.Time, m *Forget) {
	order := evidence.ForgetOrdered{Generation: a.election.View().Floor.Generation + 1, At: now}
	_, _ = rand.Read(order.Order[:]) // never fails: see crypto/rand
	a.judge(now, order)
	if a.cfg.Fleet != nil {
		a.ctx.Send(a.cfg.Fleet, &cluster.ForgetOrdered{Shard: a.cfg.Shard.Name, ForgetOrdered: order})
	}
	if m.Reply != nil {
		m.Reply <- a.election.View().Floor.Generation
	}
}

// configure replaces the settings. Hosts that stay keep what is known about them.
func (a *decider) configure(now time.Time, s Settings) {
	a.mem.settings = s
	a.elect(now, now, election.Configure{Config: s.Election})
	a.assess(now, health.Configure{Config: s.Health})
	a.watchNames()
	a.replaceHosts(now, "the settings changed")
	a.reconcileMonitors(now)
	a.stale = true
}

// describe makes a copy of all that is known.
func (a *decider) describe(now time.Time) Row {
	doubt, doubted := a.election.InDoubt()
	open, _, _ := a.health.Connections()
	v := *a.cfg.Shard.View()
	v.Standbys = slices.Clone(v.Standbys)
	row := Row{
		Name: a.cfg.Shard.Name, View: v, Floor: a.election.View().Floor,
		State: a.health.State(), StateReason: a.health.Reason(), StateSince: a.health.Since(),
		Connections: open, Transitions: slices.Clone(a.mem.history.transitions), Counts: a.mem.history.counts,
	}
	if doubted {
		row.Doubt, row.DoubtSince = doubt, a.doubtSince
	}
	rows := a.election.Hosts(now)
	why, _ := a.reads().objections(now, rows)
	for i, h := range rows {
		r := HostRow{HostRow: h, ReadsWhy: why[i]}
		r.Reads = r.ReadsWhy == ""
		if w := a.monitors.hosts[h.Host]; w != nil {
			r.Monitor, r.MonitorCode, r.MonitorErr = w.kind, w.code, w.err
			if w.banned(now) {
				r.BannedUntil = w.ban.until
			}
		}
		if err := a.mem.addresses.errs[h.Name]; err != nil && r.MonitorErr == "" {
			r.MonitorErr = err.Error()
		}
		row.Hosts = append(row.Hosts, r)
	}
	return row
}

func (a *decider) pauseWrites(now time.Time, m *PauseWrites) {
	elected := a.election.View().Elected
	a.endPause(now, a.mem.pause.over(now, elected)) // its time may be over since before this process was frozen
	answer, began := a.mem.pause.request(now, m, elected)
	if began {
		a.logTransition(now, zerolog.InfoLevel, "switchover", elected, "writes wait for another primary")
		a.monitors.probeAll(a.ctx)
	}
	a.stale = true
	if m.Reply != nil {
		m.Reply <- answer
	}
}

func (a *decider) resumeWrites(now time.Time, m *ResumeWrites) {
	if p := &a.mem.pause; p.id == m.ID && p.active() {
		a.endPause(now, "ended: writes resume")
	}
}

// endPause ends a pause for a reason; "" for none.
func (a *decider) endPause(now time.Time, why string) {
	if why == "" {
		return
	}
	a.mem.pause.ended, a.stale = true, true
	a.logTransition(now, zerolog.InfoLevel, "switchover", a.election.View().Elected, why)
}
