package shard_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/internal/actortest"
	"fencepost/pgerr"
	"fencepost/role"
)

// children of the shard's actor.
func (p *place) children() (pids []*actor.PID) {
	for _, name := range actortest.Names(p.system) {
		if strings.HasPrefix(name, p.pid.Id+"/") {
			pids = append(pids, actor.NewPID(p.pid.Address, name))
		}
	}
	return pids
}

// Names are resolved; one that does not resolve stands for itself and does not hold the election up.
func TestShardNames(t *testing.T) {
	inPlace(t, settings("one.test:5432", "two.test:5432"), func(p *place) {
		if p.row().Hosts[0].Host != "one.test:5432" || len(p.monitors) != 0 {
			t.Errorf("hosts: %+v", p.row().Hosts)
		}
		if v := p.shard.View(); !strings.Contains(v.Explanation, "one.test:5432: its name does not resolve") {
			t.Errorf("explanation: %q", v.Explanation)
		}
		if h := p.host("two.test:5432"); h.Name != "two.test:5432" || h.Pending || !strings.Contains(h.MonitorErr, "no such host") || h.ReadsWhy != "it has no monitor" {
			t.Errorf("row: %+v", h)
		}
		p.zone.set("one.test", "10.0.0.1")
		p.pass(time.Second + 10*time.Millisecond)
		if m := p.monitor(hostA); m.Name != "one.test:5432" || m.Names == nil {
			t.Errorf("monitor: %+v", m.Config)
		}
		p.probed(primary(hostA, 1))
		p.wantElected(hostA) // although two.test is not known: it has failed
		if h := p.host(hostA); h.Name != "one.test:5432" || h.MonitorErr != "" {
			t.Errorf("row: %+v", h)
		}
		if !strings.Contains(p.kinds(), "hosts") {
			t.Error(p.kinds())
		}
		p.zone.set("two.test", "10.0.0.2", "10.0.0.3")
		p.run(1500*time.Millisecond, func() { p.probed(primary(hostA, 1)) })
		p.probed(standby(hostB), standby(hostC))
		p.wantStandbys(hostB, hostC)
		p.wantElected(hostA)
		p.zone.set("two.test", "10.0.0.3")
		p.run(6*time.Second, func() { p.probed(primary(hostA, 1)) })
		p.wantStandbys(hostC)
		if len(p.watching(hostB)) != 0 {
			t.Error("an address that is gone is still watched")
		}
	})
}

// The primary's name points elsewhere: the address stays as long as it is the primary, and yields to a proven one.
func TestShardAddressGone(t *testing.T) {
	s := settings("one.test:5432")
	synctestNames := func(f func(p *place)) {
		inPlace(t, s, func(p *place) {
			p.zone.set("one.test", "10.0.0.1")
			p.pass(1010 * time.Millisecond)
			p.probed(primary(hostA, 1))
			p.wantElected(hostA)
			p.zone.set("one.test", "10.0.0.2")
			p.run(5500*time.Millisecond, func() { p.probed(primary(hostA, 1)) })
			p.wantElected(hostA)
			if h := p.host(hostA); !h.AddressGone {
				t.Errorf("row: %+v", h)
			}
			p.monitor(hostB)
			f(p)
		})
	}
	synctestNames(func(p *place) { // it takes over
		p.probed(standby(hostA), primary(hostB, 2))
		p.wantElected(hostB)
		if len(p.row().Hosts) != 1 || len(p.watching(hostA)) != 0 {
			t.Errorf("hosts: %+v", p.row().Hosts)
		}
	})
	synctestNames(func(p *place) { // the old address fails, on one timeline
		p.send(&monitor.Late{Host: hostA, Asked: time.Now(), At: time.Now()})
		p.probed(primary(hostB, 1))
		p.wantElected(hostB)
	})
	synctestNames(func(p *place) { // the actor fails meanwhile
		p.send(crash{})
		p.wantElected(hostA)
		if h := p.host(hostA); !h.AddressGone {
			t.Errorf("row: %+v", h)
		}
	})
	synctestNames(func(p *place) { // it comes back
		p.zone.set("one.test", "10.0.0.1")
		p.run(5500*time.Millisecond, func() { p.probed(primary(hostA, 1)) })
		p.wantElected(hostA)
		if h := p.host(hostA); h.AddressGone || len(p.row().Hosts) != 1 {
			t.Errorf("row: %+v", h)
		}
	})
}

// New settings: what is known of hosts that stay is kept.
func TestShardConfigure(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.send(&shard.Connected{Host: hostB, At: time.Now()})
		epoch, old := p.shard.View().Epoch, p.monitor(hostA)
		s := settings(hostC, hostA) // reordered, one added, one removed
		s.Balance, s.Warm, s.Refuse = shard.Random, 2, true
		p.views()
		p.send(&shard.Configure{Settings: s})
		p.wantElected(hostA)
		p.wantDoubt(false)
		p.wantState(health.Healthy)
		p.wantStandbys()
		v := p.shard.View()
		if v.Epoch != epoch || v.Balance != shard.Random || v.Warm != 2 || !v.Refuse || p.views() == 0 {
			t.Errorf("view: %+v", v)
		}
		if len(p.watching(hostB)) != 0 || len(p.watching(hostC)) != 1 || p.monitor(hostA) != old {
			t.Error("monitors")
		}
		p.send(&shard.HostLost{Host: hostB, Expected: true, At: time.Now()}) // the lanes close what they have there
		p.wantState(health.Healthy)

		s.Password = "other"
		p.send(&shard.Configure{Settings: s})
		if m := p.monitor(hostA); m == old {
			t.Error("the monitor has the old password")
		} else if secret, _ := m.Password(t.Context()); secret != "other" {
			t.Errorf("password %q", secret)
		}
		p.wantState(health.Healthy)
		if r := p.row(); r.Connections != 0 {
			t.Errorf("%d connections while the new monitor has none", r.Connections)
		}
		p.probed(primary(hostA, 1), standby(hostC))
		p.wantElected(hostA)
		p.views()
		s.Warm = 3
		p.send(&shard.Configure{Settings: s})
		if p.views() == 0 {
			t.Error("the lane was not told how much to keep warm")
		}
		if r := p.row(); r.Connections != 1 {
			t.Errorf("%d connections", r.Connections)
		}
		s.Hosts = []shard.HostSetting{{Addr: hostC}}
		p.send(&shard.Configure{Settings: s})
		p.wantElected("")
		p.wantNoBugs()
		p.send(crash{}) // the new settings outlive a restart
		if len(p.row().Hosts) != 1 {
			t.Errorf("hosts: %+v", p.row().Hosts)
		}
	})
}

// A standby that drops connections or takes none is banned; a probe asked for after that ends it.
func TestShardBans(t *testing.T) {
	inPlace(t, settings(hostA, hostB, hostC), func(p *place) {
		p.healthy()
		p.wantStandbys(hostB, hostC)
		late := standby(hostB)
		p.settle()
		p.send(&shard.ConnectFailed{Host: hostB, Err: errors.New("timeout"), At: time.Now()})
		p.wantStandbys(hostC)
		if p.probes(hostB) == 0 {
			t.Error("its monitor was not asked for a probe")
		}
		if h := p.host(hostB); h.BannedUntil.IsZero() || h.ReadsWhy != "it is banned" || h.Reads {
			t.Errorf("row: %+v", h)
		}
		p.probed(late) // asked for before
		p.wantStandbys(hostC)
		p.probed(standby(hostB))
		p.wantStandbys(hostC, hostB)
		// Without probes a ban ends by itself, and the next one is longer.
		for _, d := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			p.send(&shard.HostLost{Host: hostB, Code: pgerr.CrashShutdown, At: time.Now()})
			p.wantStandbys(hostC)
			p.pass(d*time.Second - 10*time.Millisecond)
			p.probed(primary(hostA, 1), standby(hostC))
			p.wantStandbys(hostC)
			p.pass(20 * time.Millisecond)
			p.settle()
			p.wantStandbys(hostC, hostB)
		}
		// What is no fault of the server bans nobody, and the primary is not banned.
		p.probed(standby(hostB))
		p.send(&shard.ConnectFailed{Host: hostB, Code: pgerr.InvalidPassword, At: time.Now()}, &shard.HostLost{Host: hostB, Expected: true, At: time.Now()},
			&shard.HostLost{Host: hostB, Code: pgerr.TransactionTimeout, At: time.Now()}, &shard.ConnectFailed{Host: hostA, Err: syscall.ECONNREFUSED, At: time.Now()})
		p.wantStandbys(hostC, hostB)
		if h := p.host(hostA); !h.BannedUntil.IsZero() {
			t.Errorf("row: %+v", h)
		}
	})
}

// Standbys that lag serve no reads; the others come in the order of what they have.
func TestShardLag(t *testing.T) {
	s := settings(hostA, hostB, hostC)
	s.MaxLagTime, s.MaxLagBytes = 2*time.Second, 1000
	inPlace(t, s, func(p *place) {
		p.healthy()
		behind := func(lag time.Duration, bytes, lsn uint64) role.Observation {
			o := standby(hostB)
			o.Lag, o.LagBytes, o.LSN = lag, bytes, lsn
			return o
		}
		at := func(o role.Observation, lsn uint64) role.Observation { o.LSN = lsn; return o }
		p.probed(behind(3*time.Second, 0, 1000))
		p.wantStandbys(hostC)
		if h := p.host(hostB); !strings.Contains(h.ReadsWhy, "max_lag_time") {
			t.Errorf("row: %+v", h)
		}
		p.probed(behind(2*time.Second, 1000, 1000))
		p.wantStandbys(hostC, hostB)
		p.probed(behind(0, 1001, 1000))
		p.wantStandbys(hostC)
		if h := p.host(hostB); !strings.Contains(h.ReadsWhy, "max_lag_bytes") {
			t.Errorf("row: %+v", h)
		}
		unknown := behind(time.Hour, 0, 1000)
		unknown.LagKnown = false
		p.probed(unknown)
		p.wantStandbys(hostC, hostB)
		// It has all that it received, but the primary is far ahead.
		p.probed(at(primary(hostA, 1), 9000), at(standby(hostC), 8500), behind(0, 0, 5000))
		p.wantStandbys(hostC)
		p.probed(behind(0, 0, 8500))
		p.wantStandbys(hostC, hostB)
		// An older answer of the primary proves nothing, but takes nothing back either.
		p.probed(at(primary(hostA, 1), 20000))
		p.wantStandbys(hostC, hostB)

		// Two that follow do not change places by turns.
		p.probed(at(primary(hostA, 1), 10000), at(standby(hostC), 9500))
		p.views()
		for lsn := uint64(9510); lsn < 9600; lsn += 20 {
			p.probed(behind(0, 0, lsn))
			p.probed(at(standby(hostC), lsn+10))
		}
		if n := p.views(); n != 0 {
			t.Errorf("%d views", n)
		}
		p.wantStandbys(hostC, hostB)
		p.probed(behind(0, 0, 9700)) // asked later: maybe
		p.wantStandbys(hostC, hostB)
		p.probed(at(standby(hostC), 9690)) // asked later, and less
		p.wantStandbys(hostB, hostC)
	})
}

// A standby's monitor says who can serve.
func TestShardReadsNeedTheMonitor(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		for kind, serves := range map[monitor.Kind]bool{
			monitor.Closed: false, monitor.Reset: false, monitor.Unreachable: false, monitor.Starting: false, monitor.Silent: false,
			monitor.Broken: true, monitor.Connecting: true, monitor.Local: true, monitor.Rejected: true,
		} {
			p.send(&monitor.State{Host: hostB, Kind: kind})
			if got := p.host(hostB).Reads; got != serves {
				t.Errorf("%s: %t", kind, got)
			}
			p.probed(standby(hostB))
			p.wantStandbys(hostB)
		}
	})
	s := settings(hostA, hostB, hostC)
	s.Hosts[0].Role, s.Hosts[1].Role = election.Primary, election.Replica
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.wantStandbys(hostB, hostC)
		p.probed(standby(hostA))
		p.wantElected("")
		p.wantStandbys(hostB, hostC, hostA)
		p.probed(answer(hostB, role.ReadOnly, 2)) // out of recovery: who knows what it has
		p.wantStandbys(hostC, hostA)
	})
}

// Monitors probe more often while it matters, and are told only of changes; standbys are probed more often than the primary.
func TestShardPace(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		calm := monitor.Mode{Interval: time.Second, Backoff: monitor.LongBackoff}
		if m := p.mode(hostA); m != calm {
			t.Errorf("healthy: %+v", m)
		}
		if m := p.mode(hostB); m != (monitor.Mode{Interval: monitor.StandbyInterval, Backoff: monitor.LongBackoff}) {
			t.Errorf("a standby: %+v", m)
		}
		told := len(p.monitor(hostA).modes)
		for range 5 {
			p.send(&shard.Waiting{Since: time.Now()})
			p.pass(100 * time.Millisecond)
		}
		if m := p.mode(hostA); m != (monitor.Mode{Interval: monitor.EagerInterval, Backoff: monitor.ShortBackoff}) {
			t.Errorf("a write waits: %+v", m)
		}
		p.pass(300 * time.Millisecond)
		if m := p.mode(hostA); m != calm {
			t.Errorf("it waits no more: %+v", m)
		}
		if n := len(p.monitor(hostA).modes); n != told+2 {
			t.Errorf("told %d modes", n-told)
		}
		p.send(&shard.Hinted{Host: hostA, Code: pgerr.ReadOnlyTransaction, At: time.Now()})
		if m := p.mode(hostA); m != (monitor.Mode{Interval: monitor.UrgentInterval, Backoff: monitor.LongBackoff}) {
			t.Errorf("in doubt: %+v", m)
		}
		p.pass(31 * time.Second)
		p.settle()
		if m := p.mode(hostA); m.Interval != monitor.TiredInterval {
			t.Errorf("in doubt for long: %+v", m)
		}
		p.beat()
		if m := p.mode(hostA); m != calm {
			t.Errorf("doubt over: %+v", m)
		}
		s := p.settings
		s.Interval = 3 * time.Second
		p.send(&shard.Configure{Settings: s})
		if m := p.mode(hostA); m.Interval != 3*time.Second {
			t.Errorf("other settings: %+v", m)
		}
	})
}

// A state file keeps the floor over a restart of the process: a former primary on its old timeline gets nothing.
func TestShardStateFile(t *testing.T) {
	s := settings(hostA, hostB)
	s.StateFile = filepath.Join(t.TempDir(), "state.json")
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.crashed(hostA)
		p.probed(primary(hostB, 2))
		p.wantElected(hostB)
		text, err := os.ReadFile(s.StateFile)
		if err != nil || !strings.HasPrefix(string(text), `{"system_identifier":"7700","generation":0,"timeline":2,"host":"10.0.0.2:5432","seen":"2000-01-01T`) {
			t.Fatalf("%s, %v", text, err)
		}
		p.reopen()
		p.probed(primary(hostA, 1)) // b is gone
		p.crashed(hostB)
		p.pass(3 * time.Second)
		p.probed(primary(hostA, 1))
		p.wantElected("")
		if v := p.shard.View(); !strings.Contains(v.Hint, "FORGET") || v.Floor != 2 {
			t.Errorf("view: %+v", v)
		}
		p.send(&shard.Forget{})
		p.crashed(hostB)
		p.probed(primary(hostA, 1))
		p.wantElected(hostA)
		p.reopen()
		p.probed(primary(hostA, 1), standby(hostB))
		p.wantElected(hostA)
		if r := p.row(); r.Floor != (role.Floor{SystemID: cluster, Generation: 1, Timeline: 1}) {
			t.Errorf("floor %v", r.Floor)
		}
	})
}

// A state file that cannot be used is named, and does not keep the shard from serving.
func TestShardStateFileDamaged(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "{", "null", "{} garbage", `{"system_identifier":"x"}`, `{"timeline":3}`, `{"system_identifier":"1","timeline":-1}`, `{"other":1}`} {
		s := settings(hostA)
		s.StateFile = filepath.Join(dir, "state.json")
		if err := os.WriteFile(s.StateFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		inPlace(t, s, func(p *place) {
			lines := p.log.with("shard: the state file cannot be used and is ignored: a primary on an older timeline than the last one would not be noticed")
			if len(lines) != 1 || lines[0]["level"] != "error" || lines[0]["state_file"] != s.StateFile {
				t.Errorf("%q: %v", text, lines)
			}
			p.probed(primary(hostA, 1))
			p.wantElected(hostA)
		})
		if f, err := os.ReadFile(s.StateFile); err != nil || !strings.Contains(string(f), "7700") {
			t.Errorf("%q: then %s, %v", text, f, err)
		}
	}
	s := settings(hostA)
	s.StateFile = filepath.Join(dir, "nowhere", "state.json")
	inPlace(t, s, func(p *place) {
		p.healthy()
		p.run(62*time.Second, p.beat)
		lines := p.log.with("shard: the state file cannot be written")
		if len(lines) != 2 || lines[0]["level"] != "error" {
			t.Errorf("%d lines: %v", len(lines), lines)
		}
		p.wantState(health.Healthy)
		if err := os.Mkdir(filepath.Dir(s.StateFile), 0o700); err != nil {
			t.Fatal(err)
		}
		p.run(6*time.Second, p.beat)
		if _, err := os.Stat(s.StateFile); err != nil {
			t.Error(err)
		}
	})
}

// A hundred transitions are kept.
func TestShardTransitionsAreBounded(t *testing.T) {
	inPlace(t, settings(hostA), func(p *place) {
		p.healthy()
		for range 150 {
			p.send(&shard.Hinted{Host: hostA, Code: pgerr.ReadOnlyTransaction, At: time.Now()})
			p.send(&shard.Hinted{Host: hostA, Code: pgerr.ReadOnlyTransaction, At: time.Now()}) // no new doubt
			p.beat()
		}
		r := p.row()
		if len(r.Transitions) != 100 || r.Transitions[99].Kind != "doubt over" || r.Counts.Doubts != 150 {
			t.Errorf("%d transitions, %d doubts", len(r.Transitions), r.Counts.Doubts)
		}
	})
}
