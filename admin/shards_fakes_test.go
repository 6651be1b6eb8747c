package admin

import (
	"errors"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// fakeShard answers what a shard's actor is asked, with what the test sets; the fields are guarded by mu, but for the
// name in row.
type fakeShard struct {
	pid *actor.PID

	mu      sync.Mutex
	row     shard.Row
	mute    bool
	deaf    bool // to Forget
	forgets int

	hold     *shard.PauseWrites // the last one
	from     string             // who was the primary when it began
	until    time.Time
	released bool
}

func (s *fakeShard) Receive(ctx actor.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mute {
		return
	}
	switch m := ctx.Message().(type) {
	case *shard.DescribeShard:
		s.settle()
		m.Reply <- s.row
	case *shard.PauseWrites:
		s.holdOn(m)
	case *shard.ResumeWrites:
		if s.hold != nil && s.hold.ID == m.ID {
			s.end()
		}
	case *shard.Forget:
		if s.deaf {
			return
		}
		s.forgets++
		s.row.Floor = role.Floor{Generation: s.row.Floor.Generation + 1}
		m.Reply <- s.row.Floor.Generation
	}
}

// holdOn does with a Hold what a shard's actor does.
func (s *fakeShard) holdOn(m *shard.PauseWrites) {
	s.settle()
	var state shard.PauseState
	switch {
	case s.hold != nil && s.hold.ID == m.ID && s.released:
	case s.hold != nil && s.hold.ID == m.ID:
		s.until = time.Now().Add(m.For)
	case s.hold != nil && !s.released:
		state.Err = errors.New("another switchover of the shard is under way")
	case s.row.View.Elected == "":
		state.Err = shard.ErrNoPrimaryToPause
	default:
		s.hold, s.from, s.until, s.released = m, s.row.View.Elected, time.Now().Add(m.For), false
		s.row.View.Elected = ""
		s.row.Transitions = append(s.row.Transitions, shard.Transition{At: time.Now(), Kind: "switchover", Host: s.from})
	}
	if s.hold != nil && s.hold.ID == m.ID {
		state.Paused, state.From = !s.released, s.from
		state.Elected = s.row.View.Elected
		if state.Paused {
			state.Elected = s.from
		}
	}
	m.Reply <- state
}

func (s *fakeShard) settle() {
	if s.hold != nil && !s.released && !time.Now().Before(s.until) {
		s.end()
	}
}

func (s *fakeShard) end() {
	if !s.released {
		s.released = true
		s.row.View.Elected = s.from
		s.row.Transitions = append(s.row.Transitions, shard.Transition{At: time.Now(), Kind: "switchover", Host: s.from})
	}
}

// elect makes a host the primary, which ends a hold.
func (s *fakeShard) elect(host string) {
	s.set(func(s *fakeShard) {
		s.settle()
		if s.hold != nil && !s.released {
			s.end()
		}
		s.row.View.Elected = host
	})
}

// held reports whether writes wait.
func (s *fakeShard) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	return s.hold != nil && !s.released
}

func (s *fakeShard) set(change func(*fakeShard)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *fakeShard) forgotten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgets
}

const thisCluster, otherCluster = 7301111111111111111, 18446744073709551615

// shardRows are a shard with a host of every kind, and one whose only host has no role.
func shardRows(now time.Time) []shard.Row {
	main := shard.Row{
		Name: "main",
		View: shard.View{Epoch: 12, Elected: "10.0.0.1:5433", Floor: 7, SystemID: thisCluster, State: health.Healthy,
			Since: now.Add(-time.Hour), Why: "10.0.0.1:5433 was promoted"},
		Floor: role.Floor{SystemID: thisCluster, Generation: 2, Timeline: 7},
		State: health.Healthy, StateReason: "10.0.0.1:5433 is proven", StateSince: now.Add(-time.Minute), Doubt: "a connection was lost",
		DoubtSince: now, Connections: 6, Hosts: hostRows(now),
		Counts: shard.Counts{Elections: 3, Demotions: 2, Doubts: 5, States: [3]uint64{4, 6, 1}, Forgets: 1, Restarts: 1},
		Transitions: []shard.Transition{
			{At: now.Add(-time.Hour), Epoch: 11, Kind: "demoted", Host: "10.0.0.2:5433", State: health.Unhealthy, Reason: "it is in recovery"},
			{At: now.Add(-time.Hour + 41*time.Millisecond), Epoch: 12, Kind: "view", Elected: "10.0.0.1:5433", State: health.Failover},
		},
	}
	static := shard.Row{Name: "reports", Static: true, State: health.Healthy, StateReason: "the only host, role any",
		View: shard.View{Epoch: 1, Static: true, Elected: "/run/postgresql:5432", State: health.Healthy}, Connections: 1,
		Transitions: []shard.Transition{{At: now.Add(-2 * time.Hour), Epoch: 1, Kind: "view", Elected: "/run/postgresql:5432", State: health.Healthy}}}
	return []shard.Row{main, static}
}

func hostRows(now time.Time) []shard.HostRow {
	seen := func(v role.Verdict, ago time.Duration) role.Observation {
		return role.Observation{Verdict: v, SystemID: thisCluster, Timeline: 7, LSN: 0x1_0203_0405, Source: role.Probe,
			Asked: now.Add(-ago), Answered: now.Add(-ago)}
	}
	row := func(name, addr string, last role.Observation) shard.HostRow {
		h := shard.HostRow{Monitor: monitor.Up}
		h.Name, h.Host, h.Last = name, role.Host(addr), last
		if !last.Asked.IsZero() {
			h.Age = now.Sub(last.Asked)
		}
		return h
	}
	elected := row("pg1.example:5433", "10.0.0.1:5433", seen(role.Writable, 40*time.Millisecond))
	elected.Elected, elected.Strength, elected.Last.Source, elected.ReadsWhy = true, role.Proven, role.Fence, "it is the primary"
	standby := row("pg2.example:5433", "10.0.0.2:5433", seen(role.InRecovery, 900*time.Millisecond))
	standby.Strength, standby.Cause, standby.Why, standby.Objection = role.Demoted, role.CauseInRecovery, "it is in recovery", "it is in recovery"
	standby.Last.Lag, standby.Last.LagKnown, standby.Last.LagBytes, standby.Reads = 120*time.Millisecond, true, 4096, true
	bare := row("pg3.example:5433", "10.0.0.3:5433", role.Observation{Verdict: role.InRecovery, Asked: now, Source: role.Login})
	bare.Role, bare.Strength, bare.ReadsWhy, bare.BannedUntil = election.Replica, role.Demoted, "it is banned", now.Add(30*time.Second)
	readOnly := row("", "10.0.0.4:5433", seen(role.ReadOnly, time.Second))
	readOnly.Strength, readOnly.Why, readOnly.ReadsWhy = role.Demoted, "it is read-only", "it is read-only"
	old := row("pg5.example:5433", "10.0.0.5:5433", seen(role.Writable, time.Second))
	old.Last.Timeline, old.Strength, old.Role, old.Objection = 6, role.Proven, election.Primary, "its timeline 6 is below the shard's floor, 7"
	foreign := row("pg6.example:5433", "10.0.0.6:5433", seen(role.Writable, time.Second))
	foreign.Last.SystemID, foreign.Foreign, foreign.Strength, foreign.AddressGone = otherCluster, true, role.Demoted, true
	down := row("pg7.example:5433", "10.0.0.7:5433", seen(role.InRecovery, time.Minute))
	down.BannedUntil, down.ReadsWhy = now.Add(-time.Second), "its monitor: closed" // the ban is over
	down.Failure, down.Strength, down.Why = role.Fact{At: now.Add(-time.Second), Why: "refused"}, role.Doubted, "it refused a connection"
	down.Monitor, down.MonitorErr = monitor.Closed, "connect: connection refused"
	never := row("pg8.example:5433", "pg8.example:5433", role.Observation{})
	never.Pending, never.Why, never.Monitor = true, "it has not been asked yet", monitor.Rejected
	never.MonitorCode, never.MonitorErr = "28P01", "password authentication failed"
	return []shard.HostRow{elected, standby, bare, readOnly, old, foreign, down, never}
}
