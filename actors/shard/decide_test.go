package shard_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/pgerr"
	"fencepost/role"
)

// LookupNetIP implements monitor.Resolver.
func (z *zone) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if list := z.answers[host]; len(list) > 0 {
		return addrs(list), nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// A shard begins with nobody, says why, waits for all its hosts and then elects.
func TestShardStart(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		v := p.shard.View()
		if v.Elected != "" || v.State != health.Unhealthy || !strings.Contains(v.Explanation, hostA+": it has not answered yet") {
			t.Errorf("at first: %+v", v)
		}
		if m := p.monitor(hostA); m.User != "watcher" || m.Database != "postgres" || m.Mode.Interval != monitor.UrgentInterval || m.Names != nil {
			t.Errorf("monitor: %+v", m.Config)
		}
		if secret, err := p.monitor(hostA).Password(t.Context()); secret != "secret" || err != nil {
			t.Errorf("password: %q, %v", secret, err)
		}
		p.views()
		p.probed(primary(hostA, 1))
		p.wantElected("") // b may be the primary on a higher timeline
		p.probed(standby(hostB))
		p.wantElected(hostA)
		p.wantState(health.Healthy)
		p.wantStandbys(hostB)
		p.wantDoubt(false)
		if v := p.shard.View(); v.Epoch == 0 || v.Floor != 1 || v.SystemID != cluster || v.Explanation != "" || v.Hint != "" || v.Static {
			t.Errorf("elected: %+v", v)
		}
		if p.views() == 0 {
			t.Error("the lane was not told")
		}
		p.run(5*time.Second, p.beat)
		if n := p.views(); n != 0 {
			t.Errorf("the lane was told of %d views while nothing changed", n)
		}
		r := p.row()
		if r.Static || r.Connections != 1 || r.State != health.Healthy || r.Counts.Elections != 1 || len(r.Hosts) != 2 || r.Hosts[0].Monitor != monitor.Up ||
			!r.Hosts[0].Elected || r.Hosts[0].Last.Observer != "boot" || r.Hosts[0].Last.Seq == 0 || !r.Hosts[1].Reads || r.Hosts[0].Reads {
			t.Errorf("row: %+v", r)
		}
	})
}

// The first election waits for a host that does not answer, not for ever.
func TestShardStartWithoutAStandby(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.probed(primary(hostA, 1))
		p.pass(990 * time.Millisecond)
		p.wantElected("")
		p.pass(20 * time.Millisecond)
		p.wantElected(hostA) // by the actor's own timer
	})
}

// A crash and a promotion: doubt, demotion, the new primary, and one log line for each.
func TestShardCrashAndPromotion(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		before := p.row().View
		now := time.Now()
		p.send(&monitor.Lost{Host: hostA, Kind: monitor.Broken, At: now}, &monitor.State{Host: hostA, Kind: monitor.Connecting})
		p.wantElected(hostA)
		p.wantDoubt(true)
		p.wantState(health.Unhealthy)
		if p.probes(hostA) == 0 || p.probes(hostB) == 0 {
			t.Error("not all monitors were asked for a probe")
		}
		if m := p.mode(hostB); m.Interval != monitor.UrgentInterval {
			t.Errorf("mode %+v", m)
		}
		p.send(&monitor.Refused{Host: hostA, AfterLoss: true, Kind: monitor.Closed, Asked: now, At: time.Now()}, &monitor.State{Host: hostA, Kind: monitor.Closed})
		p.wantElected("")
		p.wantDoubt(false) // there is nobody to be in doubt about
		v := p.shard.View()
		if v.Epoch <= before.Epoch || !strings.Contains(v.Explanation, hostA+": it refused a connection right after one was lost") ||
			!strings.Contains(v.Explanation, "unhealthy") || !strings.Contains(v.Explanation, "since "+v.Since.UTC().Format("2006")) {
			t.Errorf("nobody: %+v", v)
		}
		p.wantStandbys(hostB)
		p.views()
		p.probed(primary(hostB, 2))
		p.wantElected(hostB)
		p.wantState(health.Healthy)
		p.wantStandbys()
		if v := p.shard.View(); v.Floor != 2 || v.Explanation != "" {
			t.Errorf("after the promotion: %+v", v)
		}
		if p.views() == 0 {
			t.Error("the lane was not told")
		}
		// The old one comes back and believes that it is the primary.
		p.probed(primary(hostA, 1))
		p.wantElected(hostB)
		p.wantStandbys()
		p.probed(standby(hostA))
		p.wantStandbys(hostA)

		r := p.row()
		want := "doubt, state, demoted, view, view, state, state, demoted"
		if got := p.kinds(); !strings.HasSuffix(got, want) { // the last one when a is a standby
			t.Errorf("transitions: %s", got)
		}
		if r.Counts.Demotions == 0 || r.Counts.Elections != 3 || r.Counts.Doubts != 1 || r.Counts.States[health.Failover] != 1 {
			t.Errorf("counts: %+v", r.Counts)
		}
		p.oneLineEach()
		for _, l := range p.log.with("shard: demoted") {
			if l["level"] != "warn" || l["host"] == "" || l["shard"] != "main" || l["epoch"] == nil || l["reason"] == "" {
				t.Errorf("%v", l)
			}
		}
	})
}

// oneLineEach fails unless the log has one line for each transition.
func (p *place) oneLineEach() {
	p.t.Helper()
	count := map[string]int{}
	for _, tr := range p.row().Transitions {
		count[tr.Kind]++
	}
	for kind, n := range count {
		if lines := len(p.log.with("shard: " + kind)); lines != n {
			p.t.Errorf("%d lines for %d transitions %q", lines, n, kind)
		}
	}
}

// A lane that sees a contradiction raises doubt and tells: the doubt lasts until something asked for after it is answered.
func TestShardDoubt(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.send(&shard.Connected{Host: hostA, At: time.Now()})
		early := primary(hostA, 1)
		p.pass(time.Millisecond)
		at := time.Now()
		p.shard.RaiseDoubt(at)
		p.pass(time.Millisecond)
		p.send(&shard.HostLost{Host: hostA, Doubts: true, At: at, Opened: at.Add(-time.Second)})
		p.wantDoubt(true)
		if since, _ := p.shard.InDoubt(); since.UnixNano() != at.UnixNano() {
			t.Errorf("since %v, not %v", since, at)
		}
		if p.probes(hostA) == 0 || p.probes(hostB) == 0 {
			t.Error("not all monitors were asked for a probe")
		}
		if r := p.row(); r.Doubt == "" || r.DoubtSince.IsZero() || r.Connections != 1 {
			t.Errorf("row: %+v", r)
		}
		p.probed(early) // asked before the loss
		p.wantDoubt(true)
		p.wantState(health.Unhealthy)
		p.views()
		p.send(&shard.Observed{Observation: fence(hostA)})
		p.wantDoubt(false)
		p.wantElected(hostA)
		p.probed(primary(hostA, 1))
		p.wantState(health.Healthy)
		if n := p.shard.View().Epoch; n != 2 && n > 3 {
			t.Errorf("doubt moved the epoch to %d", n)
		}

		// A loss that says nothing, and one elsewhere, are settled at once.
		at = time.Now()
		p.shard.RaiseDoubt(at)
		p.wantDoubt(true)
		p.send(&shard.HostLost{Host: hostB, Doubts: true, At: at})
		p.wantDoubt(false)
		p.shard.RaiseDoubt(at)
		p.send(&shard.HostLost{Host: hostA, Code: pgerr.IdleSessionTimeout, Doubts: true, At: at})
		p.wantDoubt(false)
		p.wantState(health.Healthy)

		// Each other message that can carry a doubt.
		for _, m := range []any{
			&shard.Hinted{Host: hostA, Code: pgerr.ReadOnlyTransaction, Doubts: true},
			&shard.Hinted{Host: hostA, Code: pgerr.AdminShutdown, Doubts: true},
			&shard.ConnectFailed{Host: hostA, Doubts: true, Err: syscall.ECONNREFUSED},
			&shard.ConnectFailed{Host: hostA, Doubts: true, Err: context.DeadlineExceeded},
			&shard.ConnectFailed{Host: hostA, Code: pgerr.CannotConnectNow, Doubts: true},
		} {
			p.shard.RaiseDoubt(time.Now())
			p.send(m)
			p.wantDoubt(true)
			p.wantElected(hostA)
			p.probed(primary(hostA, 1))
			p.wantDoubt(false)
			p.wantState(health.Healthy)
		}
		// What a client can bring about.
		p.shard.RaiseDoubt(time.Now())
		p.send(&shard.ConnectFailed{Host: hostA, Code: pgerr.InvalidCatalogName, Doubts: true, At: time.Now()})
		p.wantDoubt(false)
		p.wantState(health.Healthy)
	})
}

// Doubt that was raised before its message has no gap: not for a moment, whatever the actor is doing.
func TestShardDoubtHasNoGap(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		for i := range 1000 {
			at := time.Now()
			p.shard.RaiseDoubt(at)
			var gap, stop atomic.Bool
			var watcher sync.WaitGroup
			watcher.Go(func() {
				for !stop.Load() {
					if _, doubted := p.shard.InDoubt(); !doubted {
						gap.Store(true)
					}
				}
			})
			reply := make(chan shard.Row, 1)
			switch i % 10 {
			case 0: // the actor fails on the line it logs
				p.system.Root.Send(p.pid, &shard.Hinted{Host: hostA, Code: poison, Doubts: true, At: at})
			case 1: // it fails before it has drawn any conclusion
				p.system.Root.Send(p.pid, &shard.ConnectFailed{Host: hostA, Err: bomb{}, Doubts: true, At: at})
			case 2:
				p.system.Root.Send(p.pid, &shard.ConnectFailed{Host: hostA, Err: syscall.ECONNRESET, Doubts: true, At: at})
			default:
				p.system.Root.Send(p.pid, &shard.HostLost{Host: hostA, Doubts: true, At: at})
			}
			p.system.Root.Send(p.pid, &shard.DescribeShard{Reply: reply})
			<-reply
			stop.Store(true)
			watcher.Wait()
			if gap.Load() {
				t.Fatalf("round %d: no doubt for a moment, though nothing was proven", i)
			}
			p.settle()
			p.wantDoubt(true)
			p.beat()
			p.wantDoubt(false)
		}
		if n := p.row().Counts.Restarts; n != 200 {
			t.Errorf("the actor failed %d times", n)
		}
	})
}

// bomb is an error that cannot be looked at.
type bomb struct{}

func (bomb) Error() string { return "bomb" }
func (bomb) Is(error) bool { panic("injected") }

func fence(host string) role.Observation {
	o := primary(host, 1)
	o.Source = role.Fence
	return o
}

// Evidence that nobody renews becomes too old by itself: the actor has a timer for it.
func TestShardEvidenceExpires(t *testing.T) {
	s := settings(hostA, hostB)
	s.Election.TTL, s.Election.UnhealthyAfter, s.Health.UnhealthyAfter = 3300*time.Millisecond, 20*time.Second, 10700*time.Millisecond
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.pass(3299 * time.Millisecond)
		p.wantDoubt(false)
		p.pass(2 * time.Millisecond)
		p.wantDoubt(true)
		p.wantElected(hostA)
		if p.probes(hostA) == 0 {
			t.Error("its monitor was not asked for a probe")
		}
		p.pass(7398 * time.Millisecond)
		p.wantState(health.Healthy)
		p.pass(2 * time.Millisecond)
		p.wantState(health.Unhealthy) // nothing was heard for so long
	})
}

// Hosts that disagree about their cluster do so after a restart of the actor, too: one of them may be silent then.
func TestShardRestartKeepsDisagreement(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		stranger := primary(hostB, 1)
		stranger.SystemID++
		p.probed(primary(hostA, 1), stranger)
		p.wantElected("")
		p.send(crash{})
		p.probed(primary(hostA, 1))
		p.pass(2 * time.Second)
		p.probed(primary(hostA, 1))
		p.wantElected("")
	})
}

// An actor that fails takes nothing with it: the primary stays, in doubt; connections are counted anew.
func TestShardRestart(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.conns[hostA] = []uint64{1, 2, 3}
		for _, id := range p.conns[hostA] {
			p.send(&shard.Connected{Host: hostA, Backend: id, At: time.Now()})
		}
		if r := p.row(); r.Connections != 4 {
			t.Errorf("%d connections", r.Connections)
		}
		before, row := *p.shard.View(), p.row()
		p.views()
		p.send(crash{})
		p.wantElected(hostA)
		p.wantDoubt(true)
		p.wantStandbys(hostB) // until it has been asked
		v := p.shard.View()
		if v.Epoch != before.Epoch || v.Floor != 1 || v.State != health.Unhealthy || !v.Since.Equal(before.Since) {
			t.Errorf("after the restart: %+v", v)
		}
		r := p.row()
		if r.Connections != 3 || r.Counts.Restarts != 1 || len(r.Transitions) <= len(row.Transitions) {
			t.Errorf("row: %+v", r)
		}
		if !recounts(p) {
			t.Error("the lane was not asked for its connections")
		}
		if len(p.watching(hostA)) != 1 || len(p.watching(hostB)) != 1 {
			t.Error("monitors")
		}
		p.beat()
		p.wantDoubt(false)
		p.wantState(health.Healthy)

		for id := range uint64(5) { // more than it knows of
			p.send(&shard.HostLost{Host: hostA, Backend: id, Expected: true, At: time.Now()})
		}
		if r := p.row(); r.Connections != 1 {
			t.Errorf("%d connections", r.Connections)
		}
		p.wantState(health.Healthy)
		p.send(&shard.HostLost{Host: hostA, At: time.Now()})
		p.wantState(health.Unhealthy)
		p.wantNoBugs()
		p.beat()

		// It fails on a message that a doubt was raised for: the doubt stays.
		p.shard.RaiseDoubt(time.Now())
		p.send(&shard.Hinted{Host: hostA, Code: pgerr.ReadOnlyTransaction, Doubts: true, At: time.Now()}, crash{})
		p.wantDoubt(true)
		p.beat()
		p.wantDoubt(false)

		// Another primary is found after a restart: that is a failover.
		p.send(crash{})
		p.probed(standby(hostA), primary(hostB, 2))
		p.wantElected(hostB)
		if r := p.row(); r.Counts.States[health.Failover] != 1 {
			t.Errorf("counts: %+v", r.Counts)
		}
		// A restart without a primary.
		p.crashed(hostB)
		p.wantElected("")
		p.send(crash{})
		p.wantElected("")
		p.wantDoubt(false)
		p.probed(standby(hostA), primary(hostB, 2))
		p.wantElected(hostB)
		if n := len(p.log.with("shard: monitor ended")); n != 0 {
			t.Errorf("%d monitors were missed that ended with the actor", n)
		}
	})
}

// A connection counts once, whatever an actor that fails is told twice, and one that ends without having been counted takes
// no other one's place.
func TestShardCountsConnectionsOnce(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		connected := func(id uint64) any { return &shard.Connected{Host: hostA, Backend: id, At: time.Now()} }
		lost := func(id uint64) any {
			return &shard.HostLost{Host: hostA, Backend: id, Expected: true, At: time.Now()}
		}
		want := func(backends int) {
			t.Helper()
			if r := p.row(); r.Connections != backends+1 {
				t.Errorf("%d connections, with the monitor's, to %d backends", r.Connections, backends)
			}
		}
		p.send(connected(1), connected(2))
		want(2)
		p.conns[hostA] = []uint64{1, 2, 3}
		for _, m := range []any{crash{}, connected(3)} { // it is in the mailbox when the actor fails, and among what the lane counts
			p.system.Root.Send(p.pid, m)
		}
		p.beat()
		want(3)
		p.conns[hostA] = []uint64{2, 3}
		p.send(crash{})
		p.send(lost(1)) // its lane failed before it was asked, and its word comes late
		p.beat()
		want(2)
		p.send(lost(2), lost(2))
		want(1)
		p.send(lost(3))
		want(0)
		p.wantNoBugs()
	})
}

func (p *place) wantNoBugs() {
	p.t.Helper()
	if lines := p.log.with("shard: unexpected event; assumed unsafe"); len(lines) != 0 {
		p.t.Errorf("%v", lines)
	}
}

func recounts(p *place) (asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.told {
		asked = asked || m.Recount != nil
	}
	return asked
}

// A monitor that fails for good is replaced.
func TestShardMonitorEnds(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		m := p.monitor(hostA)
		p.mu.Lock()
		n := len(p.monitors)
		p.mu.Unlock()
		p.send(&shard.Connected{Host: hostA, At: time.Now()})
		pids := p.children()
		for range 20 {
			for _, pid := range pids {
				p.system.Root.Send(pid, crash{})
			}
			p.settle()
		}
		p.run(2*time.Second, p.beat)
		if !m.closed || len(p.monitors) != n+2 || len(p.watching(hostA)) != 1 {
			t.Errorf("closed %t, %d monitors after %d", m.closed, len(p.monitors), n)
		}
		if r := p.row(); r.Connections != 2 {
			t.Errorf("%d connections", r.Connections)
		}
		p.wantState(health.Healthy)
	})
}
