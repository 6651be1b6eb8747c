// Package placement decides where in a lane a checkout waits, and what moves when the shard's view changes. It is pure: views and
// what the lane holds in, places and effects out.
//
// A lane has a pool of connections for each host, and one without a host, "unplaced", where checkouts wait for a host to be
// known. A checkout stays where it is as long as that pool can serve it under the view: one that would do as well is no reason
// to move.
package placement

import (
	"slices"

	"fencepost/actors/lane/grant"
)

// Target is what a checkout is for; libpq's words.
type Target uint8

// The targets. On a static shard each is served by its one host.
const (
	ReadWrite Target = iota
	Standby
	PreferStandby
	Any
)

var targetNames = [...]string{"read-write", "standby", "prefer-standby", "any"}

func (t Target) String() string { return targetNames[t] }

// View is what the placing needs of the shard's decision.
type View struct {
	Elected  string   // the host that gets the writes, "" for none
	Standbys []string // hosts that serve reads
	Failover bool     // the shard has given up on the elected host, or the last one
	// Promoted are hosts that are out of recovery, elected or not; Silent are standbys of which nothing was heard for so long that what is
	// unanswered there is ended.
	Promoted, Silent []string
	// Late: no host of Standbys answers its monitor in time, while the elected one does: it serves what need not go to a standby.
	Late     bool
	ReadOnly string // the host that was elected until it became read-only by its own settings, "" for none
	Refuse   bool   // writes do not wait for a primary (failover_policy = "refuse")
	Grants   grant.View
}

// Place is where a checkout may wait.
type Place struct {
	Unplaced bool // for a host to be known
	Standbys int  // at one of as many of View.Standbys, the first ones …
	Primary  bool // … or at the elected host
}

// Place is where a checkout with a target may wait under the view. Reads are spread over the standbys; with target any the
// primary takes its part.
func (v *View) Place(t Target) Place {
	standbys := len(v.Standbys)
	switch {
	case t == ReadWrite, v.Grants.Static, standbys == 0 && t != Standby:
		return Place{Unplaced: v.Elected == "", Primary: v.Elected != ""}
	case standbys == 0:
		return Place{Unplaced: true}
	case v.avoids(t):
		return Place{Primary: true}
	}
	return Place{Standbys: standbys, Primary: t == Any && v.Elected != ""}
}

// avoids reports whether the standbys are left alone although there are some.
func (v *View) avoids(t Target) bool { return v.Late && t != Standby && v.Elected != "" }

// Serves reports whether a checkout may stay at a host, "" for unplaced.
func (v *View) Serves(host string, t Target) bool {
	switch {
	case v.Grants.Static || t == ReadWrite:
		return host == v.Elected
	case host == "":
		return len(v.Standbys) == 0 && (t == Standby || v.Elected == "")
	case host == v.Elected:
		return t == Any || t == PreferStandby && (len(v.Standbys) == 0 || v.Late)
	}
	return slices.Contains(v.Standbys, host) && !v.avoids(t)
}

// Refuses reports whether a checkout is answered at once because it would have to wait for a primary.
func (v *View) Refuses(t Target) bool {
	return v.Refuse && t == ReadWrite && !v.Grants.Static && (v.Elected == "" || v.Failover)
}
