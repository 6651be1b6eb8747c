// Package role says what is known about the role of a PostgreSQL server, and how strongly.
//
// An Observation is one look at a host: a probe, a fence, a login. A Record is what all of them, and the losses and
// refusals between them, add up to. It has a Strength:
//
//	None     nothing positive is known
//	Proven   the host answered as writable, was asked not longer than a TTL ago, and nothing has put that in question since
//	Doubted  it answered as writable, but that is too old, or something has put it in question since
//	Demoted  the host itself showed after its last positive answer that it cannot take writes
//
//	None    --Observe writable--> Proven              Proven  --TTL passes, Doubt, Lost, Late, Fail--> Doubted
//	Doubted --Observe writable, asked after--> Proven None, Proven, Doubted --Observe negative, Demote--> Demoted
//	Demoted --Observe writable, asked after, in time--> Proven
//
// Every fact carries the time from which it counts: a positive answer the moment it was asked, everything that speaks
// against the host the moment it was known. A strength follows from the latest of each kind, so that the order in which
// facts arrive does not matter: an answer asked before a loss says nothing about the time after it, however late it comes.
//
// A Floor is the highest timeline on which a host of the shard was seen out of recovery. The identity queries, which
// probes and fences share, and their parser are here too.
package role

import (
	"cmp"
	"fmt"
	"time"
)

// Host is one server by the address that is dialled, "ip:port", "[ip6]:port" or the path of a Unix socket; for a name that
// does not resolve the name and port stand in.
type Host string

// Verdict is what a server said it can do.
type Verdict uint8

// The verdicts.
const (
	Unknown    Verdict = iota // it answered nothing that makes sense
	Writable                  // out of recovery, and new transactions may write
	ReadOnly                  // out of recovery, but read-only by the server's own settings
	InRecovery                // a standby, or a server that is still recovering
)

func (v Verdict) String() string {
	return name(v, "unknown", "writable", "read only", "in recovery")
}

// OutOfRecovery reports whether the server writes WAL of its own, whether clients may write or not.
func (v Verdict) OutOfRecovery() bool { return v == Writable || v == ReadOnly }

// Source is how an Observation was made.
type Source uint8

// The sources.
const (
	Probe  Source = iota // the monitor's query
	Fence                // the identity query on a backend
	Login                // parameters a server reported at login: can speak against a host, never for it
	Gossip               // another member saw it: never evidence by itself
)

func (s Source) String() string { return name(s, "probe", "fence", "login", "gossip") }

// Observation is what one look at a host showed. It is immutable. It counts from Asked, since what the server looked at
// may have changed any time after that.
type Observation struct {
	Host     Host
	Verdict  Verdict
	SystemID uint64 // of the cluster; 0: not known
	// Timeline is the one written to, or in recovery the one received; 0: not known.
	Timeline uint32
	LSN      uint64 // 0: not known
	Lag      time.Duration
	LagKnown bool
	LagBytes uint64 // received and not yet replayed
	// NoTimelines: the server has no WAL functions (Aurora), so neither timeline nor floor mean anything.
	NoTimelines bool
	// Started is when the server was started, by its own clock; equal for two addresses of one server. Zero: not known.
	Started time.Time

	Source   Source
	Observer string // who looked: the member's boot identifier
	Seq      uint64 // grows with each observation of one observer
	// Dialled is when the connection it was asked on was begun to be opened; zero: not known. Behind one address, connections of
	// different ages may end at different servers.
	Dialled  time.Time
	Asked    time.Time
	Answered time.Time
}

// SameServer reports whether two observations were of one and the same running server, under two addresses.
func (o Observation) SameServer(p Observation) bool {
	return !o.Started.IsZero() && o.Started.Equal(p.Started) && o.SystemID == p.SystemID
}

// Contradicts reports whether two observations under one address were of different servers that are not in the same role: in
// recovery or not, on another timeline, of another cluster.
func (o Observation) Contradicts(p Observation) bool {
	switch {
	case o.SystemID != 0 && p.SystemID != 0 && o.SystemID != p.SystemID:
		return true
	case o.Started.IsZero(), p.Started.IsZero(), o.Started.Equal(p.Started):
		return false
	}
	return o.Verdict != p.Verdict || o.Verdict.OutOfRecovery() && o.Timeline != p.Timeline
}

// Lacks names what a writable answer must say to be checked against the shard's cluster and floor, and does not; "" if
// nothing. Without the right to call pg_control_system() the system identifier is missing.
func (o Observation) Lacks() string {
	switch {
	case o.Verdict != Writable || o.NoTimelines:
		return ""
	case o.SystemID == 0:
		return "system identifier"
	case o.Timeline == 0:
		return "timeline"
	}
	return ""
}

func (o Observation) String() string {
	s := fmt.Sprintf("%s %s", o.Host, o.Verdict)
	if o.Timeline != 0 {
		s += fmt.Sprintf(" on timeline %d", o.Timeline)
	}
	if o.SystemID != 0 {
		s += fmt.Sprintf(", system identifier %d", o.SystemID)
	}
	return s + fmt.Sprintf(" (%s)", o.Source)
}

// Observation makes one of the identity that a host gave between asked and answered.
func (id Identity) Observation(h Host, source Source, asked, answered time.Time) Observation {
	o := Observation{
		Host: h, Verdict: Writable, SystemID: id.SystemID, Timeline: id.Timeline, LSN: id.LSN, Lag: id.Lag, LagKnown: id.LagKnown,
		NoTimelines: id.NoTimelines, Started: id.Started, Source: source, Asked: asked, Answered: answered,
	}
	switch {
	case id.InRecovery:
		o.Verdict = InRecovery
	case id.ReadOnly:
		o.Verdict = ReadOnly
	}
	if id.Replayed != 0 && id.LSN > id.Replayed {
		o.LagBytes = id.LSN - id.Replayed
	}
	return o
}

// Floor is the lowest timeline a primary of the shard may be on, within one generation of one cluster.
type Floor struct {
	SystemID   uint64 // 0: not known
	Generation uint64 // one higher after each FORGET
	Timeline   uint32 // 0: none seen
}

// Merge is the higher of two floors: the later generation; within it, of two identifiers the known one, or else the
// greater number, which no more than settles it the same way everywhere; and then the higher timeline. Whether a floor
// with another identifier concerns a shard at all is not decided here.
func (f Floor) Merge(g Floor) Floor {
	if cmp.Or(cmp.Compare(f.Generation, g.Generation), cmp.Compare(f.SystemID, g.SystemID), cmp.Compare(f.Timeline, g.Timeline)) < 0 {
		return g
	}
	return f
}

func (f Floor) String() string {
	return fmt.Sprintf("timeline %d of system %d, generation %d", f.Timeline, f.SystemID, f.Generation)
}

// name of the n-th value of a closed set.
func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("invalid(%d)", uint8(v))
}
