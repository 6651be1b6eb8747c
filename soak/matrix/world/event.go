package world

import (
	"context"
	"slices"
	"time"
)

// Event is something that befalls the cluster.
type Event interface {
	// Name is one of the Kind constants.
	Name() string
	// Run brings the event about and returns when the world is whole again: one primary and as many streaming standbys as
	// there were, caught up, every relay open. An error leaves the world in a state that only Close is of use for. It is
	// bounded: two minutes on top of what Timing says.
	Run(ctx context.Context, w *World) (Occurrence, error)
}

// The kinds of events.
const (
	KindSwitchover  = "switchover"      // the primary is stopped in order, its standby promoted, it comes back as a standby
	KindCrash       = "crash"           // every process of the primary is killed, a standby promoted, later the dead one rebuilt
	KindDemote      = "demote-in-place" // the primary comes back as a standby within a second, before another is promoted
	KindFreeze      = "freeze"          // the primary's processes are stopped by signal, go on after another was promoted
	KindRestart     = "restart"         // the primary is restarted
	KindPartition   = "partition"       // nothing reaches the primary, another is promoted, then the network is back
	KindReadOnly    = "read-only"       // the new primary has default_transaction_read_only = on for a while
	KindPromoteCopy = "promote-copy"    // a standby is promoted beside the living primary, later withdrawn
	KindSlow        = "slow"            // replies of the primary come late for a while
)

// Occurrence is an event that happened.
type Occurrence struct {
	Name  string
	Began time.Time // nothing was done before
	Lost  time.Time // from here on the old primary took no writes of those who reach it by its relay; zero if it never ceased to
	Old   string    // the primary before
	New   string    // the primary after; Old if nobody was promoted for good
	Copy  string    // promote-copy: the standby that was promoted and withdrawn
	Steps []Step    // in order
	Ended time.Time // the world was whole again
}

// Step is one thing that was done or waited for.
type Step struct {
	At     time.Time // it had been done, and what it brings about may have begun some milliseconds before
	Server string    // whom it was done to, "" for all
	What   string    // one of the Did constants
}

// What is done to servers.
const (
	DidStop     = "stopped"
	DidKill     = "killed"
	DidFreeze   = "frozen"
	DidThaw     = "thawed"
	DidCut      = "cut off"
	DidHeal     = "reachable"
	DidSlow     = "slow"
	DidQuicken  = "quick"
	DidStart    = "started"
	DidStandby  = "started as a standby"
	DidPromote  = "promoted"
	DidReadOnly = "read only"
	DidWritable = "writable"
	DidFollow   = "follows"
	DidRebuild  = "rebuilt"
	DidWithdraw = "withdrawn"
	DidWhole    = "whole"
)

// Timing is how long the parts of events take that are waited for on purpose.
type Timing struct {
	Detect   time.Duration // from the loss of a primary that nobody stopped on purpose to the promotion of another
	Demoted  time.Duration // demote-in-place: from the old primary's answer as a standby to the promotion
	Frozen   time.Duration // freeze: from SIGSTOP to SIGCONT
	Cut      time.Duration // partition: until it is healed
	Believes time.Duration // freeze, partition: from when the old primary can be reached again until it is stopped
	ReadOnly time.Duration // read-only: from the promotion until the setting goes
	Copy     time.Duration // promote-copy: from the promotion until it is withdrawn
	Dead     time.Duration // crash: from the promotion until the dead server is rebuilt
	Slow     time.Duration // slow: how long
	SlowMin  time.Duration // slow: each reply is late by SlowMin to SlowMax
	SlowMax  time.Duration
}

// DefaultTiming is that of long runs.
func DefaultTiming() Timing {
	return Timing{
		Detect: time.Second, Demoted: 700 * time.Millisecond, Frozen: 5 * time.Second, Cut: 5 * time.Second, Believes: 4 * time.Second,
		ReadOnly: 2 * time.Second, Copy: 3 * time.Second, Dead: 2 * time.Second,
		Slow: time.Minute, SlowMin: 1500 * time.Millisecond, SlowMax: 3 * time.Second,
	}
}

// ShortTiming is that of short runs: a slow primary for 10 s, the rest as in DefaultTiming or a little less.
func ShortTiming() Timing {
	t := DefaultTiming()
	t.Detect, t.Frozen, t.Cut, t.Believes, t.Dead = 300*time.Millisecond, 3*time.Second, 3*time.Second, 2*time.Second, time.Second
	t.Slow = 10 * time.Second
	return t
}

// kinds are all of them with what brings them about.
var kinds = []struct {
	name string
	run  func(*course) error
}{
	{KindSwitchover, (*course).switchover},
	{KindCrash, (*course).crash},
	{KindDemote, (*course).demote},
	{KindFreeze, (*course).freeze},
	{KindRestart, (*course).restart},
	{KindPartition, (*course).partition},
	{KindReadOnly, (*course).readOnly},
	{KindPromoteCopy, (*course).promoteCopy},
	{KindSlow, (*course).slow},
}

// Events are all kinds of events, in the order of the Kind constants.
func Events(t Timing) []Event {
	var all []Event
	for _, k := range kinds {
		all = append(all, event{name: k.name, timing: t, run: k.run})
	}
	return all
}

// EventNamed is the one of Events that has the name, nil if there is none.
func EventNamed(name string, t Timing) Event {
	all := Events(t)
	if i := slices.IndexFunc(all, func(e Event) bool { return e.Name() == name }); i >= 0 {
		return all[i]
	}
	return nil
}
