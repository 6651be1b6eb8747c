package shard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/pgerr"
	"fencepost/role"
)

// FORGET clears the floor: what a restored server on an older timeline needs, and what the hint says.
func TestShardForget(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.probed(primary(hostA, 5), standby(hostB))
		p.wantElected(hostA)
		p.crashed(hostA)
		p.wantElected("")
		if h := p.shard.View().Hint; h != "" {
			t.Errorf("hint while there is nothing but to wait: %q", h)
		}
		p.probed(primary(hostB, 2))
		p.wantElected("")
		if h := p.shard.View().Hint; !strings.Contains(h, "FORGET main") {
			t.Errorf("hint %q", h)
		}
		reply := make(chan uint64, 1)
		p.send(&shard.Forget{Reply: reply})
		if g := <-reply; g != 1 {
			t.Errorf("generation %d", g)
		}
		p.wantElected("")
		p.crashed(hostA)
		p.probed(primary(hostB, 2))
		p.wantElected(hostB)
		if r := p.row(); r.Floor != (role.Floor{SystemID: cluster, Generation: 1, Timeline: 2}) || r.Counts.Forgets != 1 || !strings.Contains(p.kinds(), "forget") {
			t.Errorf("row: %+v", r)
		}
		p.oneLineEach()
	})
}

// A cluster without a primary goes on serving reads.
func TestShardWithoutPrimary(t *testing.T) {
	inPlace(t, settings(hostA, hostB, hostC), func(p *place) {
		p.probed(standby(hostA), standby(hostB), standby(hostC))
		p.wantElected("")
		p.wantStandbys(hostA, hostB, hostC)
		p.crashed(hostC)
		p.wantStandbys(hostA, hostB)
		p.run(40*time.Second, func() { p.probed(standby(hostA), standby(hostB)) })
		p.wantStandbys(hostA, hostB)
		if m := p.mode(hostA); m.Interval != monitor.StandbyInterval {
			t.Errorf("mode after 40 s: %+v", m)
		}
	})
}

// A host of another cluster serves nothing, and is named.
func TestShardForeignHost(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		o := standby(hostB)
		o.SystemID = 99
		p.probed(o)
		p.wantStandbys()
		if got := p.log.with("shard: foreign"); len(got) != 1 || got[0]["level"] != "warn" || !strings.Contains(fmt.Sprint(got[0]["reason"]), "99") {
			t.Errorf("log: %v", got)
		}
		if h := p.host(hostB); !h.Foreign || h.Reads || h.ReadsWhy != "it belongs to another cluster" {
			t.Errorf("row: %+v", h)
		}
	})
	s := settings(hostA)
	s.Election.SystemID = 12
	inPlace(t, s, func(p *place) {
		p.probed(primary(hostA, 1))
		p.wantElected("")
		if h := p.shard.View().Hint; !strings.Contains(h, "system_identifier") || strings.Contains(h, "FORGET") {
			t.Errorf("hint %q", h)
		}
	})
}

// Two writers on one timeline: named, and what to do is said where nobody is elected.
func TestShardTwoWriters(t *testing.T) {
	s := settings(hostA, hostB)
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.probed(primary(hostB, 1), primary(hostA, 1))
		p.wantElected(hostA)
		p.wantStandbys() // it is no standby
		if got := p.log.with("shard: conflict"); len(got) != 1 || got[0]["level"] != "warn" {
			t.Errorf("log: %v", got)
		}
		p.probed(standby(hostB))
		if !strings.HasSuffix(p.kinds(), "conflict, demoted, conflict over") {
			t.Errorf("transitions: %s", p.kinds())
		}
	})
	s.Election.TwoWriters = election.Refuse
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.probed(primary(hostB, 1), primary(hostA, 1))
		p.wantElected("")
		if h := p.shard.View().Hint; !strings.Contains(h, "all but one") {
			t.Errorf("hint %q", h)
		}
	})
}

// A monitor whose password is wrong sees nothing: one client's fence serves as the probe.
func TestShardMonitorRejected(t *testing.T) {
	inPlace(t, settings(hostA), func(p *place) {
		now := time.Now()
		p.send(&monitor.Failed{Host: hostA, Kind: monitor.Rejected, Code: pgerr.InvalidPassword, Asked: now, At: now, Err: context.Canceled},
			&monitor.State{Host: hostA, Kind: monitor.Rejected, Code: pgerr.InvalidPassword, Err: context.Canceled})
		p.wantElected("")
		if v := p.shard.View(); !strings.Contains(v.Explanation, "it rejected its monitor with "+pgerr.InvalidPassword) {
			t.Errorf("explanation: %q", v.Explanation)
		}
		if h := p.host(hostA); h.Monitor != monitor.Rejected || h.MonitorCode != pgerr.InvalidPassword || h.MonitorErr == "" || h.Heard.IsZero() {
			t.Errorf("row: %+v", h)
		}
		o := fence(hostA)
		p.send(&shard.Connected{Host: hostA, Observation: &o, At: time.Now()})
		p.wantElected(hostA)
		p.wantState(health.Healthy)
		if r := p.row(); r.Connections != 1 {
			t.Errorf("%d connections", r.Connections)
		}
	})
}

// A shutdown that is announced and confirmed is a failover at once.
func TestShardShutdownNotice(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.send(&shard.Connected{Host: hostA, At: time.Now()})
		p.shard.RaiseDoubt(time.Now())
		p.send(&shard.HostLost{Host: hostA, Code: pgerr.AdminShutdown, Doubts: true, At: time.Now()})
		p.wantState(health.Unhealthy)
		now := time.Now()
		p.send(&monitor.Lost{Host: hostA, Kind: monitor.Broken, Code: pgerr.AdminShutdown, At: now}, &monitor.State{Host: hostA, Kind: monitor.Connecting})
		p.wantState(health.Unhealthy) // all that were idle may have been ended by somebody
		p.send(&monitor.Failed{Host: hostA, Kind: monitor.Broken, Code: pgerr.AdminShutdown, Asked: time.Now(), At: time.Now()},
			&monitor.State{Host: hostA, Kind: monitor.Broken, Code: pgerr.AdminShutdown})
		p.wantState(health.Unhealthy) // the new session as well
		p.send(&monitor.Refused{Host: hostA, Kind: monitor.Starting, Code: pgerr.CannotConnectNow, Asked: time.Now(), At: time.Now()})
		p.wantState(health.Failover)
		p.wantElected(hostA)
		if v := p.shard.View(); !strings.Contains(v.Explanation, "failover since") {
			t.Errorf("explanation: %q", v.Explanation)
		}
		p.beat()
		p.wantState(health.Healthy)
		if v := p.shard.View(); v.Explanation != "" {
			t.Errorf("explanation: %q", v.Explanation)
		}
	})
}

// The same if it is announced on a connection that is still there.
func TestShardShutdownNoticeWithoutLoss(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.send(&shard.Hinted{Host: hostA, Code: pgerr.AdminShutdown, At: time.Now()})
		p.wantState(health.Healthy)
		early := time.Now()
		p.settle()
		p.send(&monitor.Lost{Host: hostA, Kind: monitor.Broken, At: time.Now()}, &monitor.State{Host: hostA, Kind: monitor.Connecting})
		p.wantState(health.Unhealthy)
		p.send(&monitor.Refused{Host: hostA, Kind: monitor.Starting, Code: pgerr.CannotConnectNow, Asked: early.Add(-time.Second), At: time.Now()})
		p.wantState(health.Unhealthy) // the attempt began before the notice
		p.send(&monitor.Refused{Host: hostA, Kind: monitor.Starting, Code: pgerr.CannotConnectNow, Asked: time.Now(), At: time.Now()})
		p.wantState(health.Failover)
	})
}

// What is only told to people is no news to the lanes.
func TestShardExplanationIsRefreshed(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.crashed(hostA)
		p.views()
		p.send(&monitor.Failed{Host: hostA, Kind: monitor.Unreachable, Asked: time.Now(), At: time.Now()},
			&monitor.Refused{Host: hostA, AfterLoss: true, Code: pgerr.CannotConnectNow, Kind: monitor.Starting, At: time.Now()})
		if v := p.shard.View(); !strings.Contains(v.Explanation, hostA+": it refused a connection with "+pgerr.CannotConnectNow) {
			t.Errorf("explanation: %q", v.Explanation)
		}
		if n := p.views(); n != 0 {
			t.Errorf("the lane was told of %d views", n)
		}
	})
}

// Most connections lost and the monitor down for failover_min_time: given up, though nobody else is there.
func TestShardGivenUp(t *testing.T) {
	inPlace(t, settings(hostA), func(p *place) {
		p.healthy()
		p.send(&shard.Connected{Host: hostA, Backend: 1, At: time.Now()}, &shard.Connected{Host: hostA, Backend: 2, At: time.Now()})
		now := time.Now()
		p.send(&monitor.Lost{Host: hostA, Kind: monitor.Silent, At: now}, &monitor.State{Host: hostA, Kind: monitor.Connecting},
			&monitor.Failed{Host: hostA, Kind: monitor.Unreachable, Asked: now, At: now}, &monitor.State{Host: hostA, Kind: monitor.Unreachable},
			&shard.HostLost{Host: hostA, Backend: 1, At: now})
		p.pass(29 * time.Second)
		p.wantState(health.Unhealthy)
		p.probes(hostA)
		p.pass(2 * time.Second)
		p.wantState(health.Failover)
		if p.probes(hostA) == 0 {
			t.Error("its monitor was not asked for a probe")
		}
	})
}

// A host that nobody checks is served by its word alone.
func TestShardAny(t *testing.T) {
	s := settings(hostA, hostB)
	s.Hosts[0].Role, s.Hosts[1].Role = election.Any, election.Replica
	inPlace(t, s, func(p *place) {
		p.wantElected(hostA)
		p.probed(standby(hostA), standby(hostB))
		p.wantElected(hostA)
		p.wantState(health.Healthy)
		p.wantStandbys(hostB)
		if !p.shard.View().Static {
			t.Error("not static")
		}
	})
	s.Hosts[0].Addr = "one.test:5432"
	inPlace(t, s, func(p *place) {
		p.wantElected("one.test:5432") // the name is dialled
		if m := p.monitor("one.test:5432"); m.Names != nil {
			t.Errorf("monitor: %+v", m.Config)
		}
	})
}
