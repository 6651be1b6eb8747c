package shard

import (
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// Settings of a shard with roles, as its actor needs them.
type Settings struct {
	Hosts []HostSetting
	// Monitor login.
	User, Database string
	Password       string
	// Interval is role_check_interval.
	Interval time.Duration
	Election election.Config
	Health   health.Config
	// Refuse is failover_policy = refuse.
	Refuse  bool
	Warm    int
	Balance Balance
	// A standby that lags more serves no reads; zero: no limit.
	MaxLagTime  time.Duration
	MaxLagBytes uint64
	// StateFile keeps identifier, floor and generation over a restart; "" for none.
	StateFile string
}

// HostSetting is a host as configured.
type HostSetting struct {
	Addr string // "name:port", "ip:port" or "/directory:port"
	Role election.Role
}

// Row describes a shard; a copy.
type Row struct {
	Name   string
	Static bool
	View   View
	Floor  role.Floor
	// State of health, its reason and since when.
	State       health.State
	StateReason string
	StateSince  time.Time
	// Doubt is why every write grant on the elected host needs a fence, "" for no reason.
	Doubt      string
	DoubtSince time.Time
	// Connections to the elected host that are open.
	Connections int
	Hosts       []HostRow
	// Transitions are the last ones, oldest first, at most 100.
	Transitions []Transition
	Counts      Counts
}

// HostRow describes a host of a shard.
type HostRow struct {
	election.HostRow
	Monitor     monitor.Kind // how it is reached
	MonitorCode string
	MonitorErr  string
	Reads       bool   // serves reads now
	ReadsWhy    string // why not
	BannedUntil time.Time
}

// Transition is one line of SHOW ELECTIONS.
type Transition struct {
	At      time.Time
	Epoch   uint64
	Kind    string // fleet, switchover, view, state, doubt, doubt over, demoted, conflict, conflict over, foreign, disagreement, outranked, outrun, silent, forget, hosts
	Host    string
	Elected string
	State   health.State
	Reason  string
}

// Counts are counters since the process started.
type Counts struct {
	Elections uint64 // views with another elected host than before, "" included
	Demotions uint64
	Doubts    uint64
	States    [3]uint64 // entered, by health.State
	Forgets   uint64
	Restarts  uint64 // of the actor
}
