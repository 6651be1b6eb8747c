// Package grant decides whether a connection may be leased for writes: what the server said of itself on it (its proof), under
// the shard's view, the database's fence mode and the doubt of the moment. It is pure; the rules for users are in
// docs/failover.md, its scripts in testdata have an example of each.
//
// A connection that is to be granted is weighed once with the proof it has. Where that is not enough it is fenced: the server is
// asked on that very connection, and the answer is weighed again:
//
//	Weigh -- Grant --> leased
//	   |---- Nothing -> closed, the checkout keeps its turn
//	   +---- Ask -----> fence -- answer --> Weigh, Next --> Lease | AskAgain | PutBack | Close
//	                      |------ Overdue --> Release: the checkout may take another connection, the fence goes on
//	                      +------ Overdue --> GiveUp: the deadline is over
package grant

import (
	"time"

	"fencepost/role"
)

// View is what the rules need of the shard's decision.
type View struct {
	Static      bool   // the one host has no role: it serves everything
	Floor       uint32 // the timeline below which no server gets a write; 0: none is known
	SystemID    uint64 // of the cluster; 0: not known
	NoTimelines bool   // the elected host has none
}

// Mode is when a write checkout is fenced (the setting fence).
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // when there is no proof that holds under the view
	Always             // at every checkout
	Off                // never, where election and floor suffice
)

// Doubt is the shard's at the moment of the grant.
type Doubt struct {
	Raised bool
	Since  time.Time // a proof that was asked for after this is worth its full value
	// Republished: the shard has published another view than the one that is acted on. What it was in doubt about may be
	// settled by that view and by nothing else.
	Republished bool
	// StoodStill: this process did not run for so long that the shard's view is void until its hosts have been asked again.
	StoodStill bool
}

// Answer says what the proof was given for.
type Answer uint8

// The answers.
const (
	Earlier        Answer = iota // at login, or for an earlier grant
	ForThis                      // for the very grant it is weighed for, under the view of this moment
	UnderOtherView               // for the very grant, but the view has changed since
)

// Connection is what there is to say for a connection.
type Connection struct {
	// Elected: it leads to the elected host of the shard.
	Elected bool
	// Known is what the server said last, Proof the same unless it was made void since (a change of its parameters).
	Known, Proof *role.Proof
	// Shadowed: another pooler is in between, what one query is told says nothing about the next.
	Shadowed bool
	Answer   Answer
}

// Worth is what a connection is worth for a write.
type Worth uint8

// The worths.
const (
	Nothing Worth = iota // not to be leased for writes: it is closed
	Ask                  // a fence has to say
	Grant                // it can take writes
)

var worthNames = [...]string{"nothing", "ask", "grant"}

func (w Worth) String() string { return worthNames[w] }

// Reason is the rule that decided.
type Reason uint8

// The reasons.
const (
	NoRoles         Reason = iota // the shard is static
	AfterStandstill               // the process stood still, and its hosts have not been asked since
	NotElected                    // the host is not the elected one
	BelowFloor                    // the server's timeline is below the floor
	OtherCluster                  // the server is of another cluster
	NotFenced                     // fence = off, and nothing speaks against the server
	NoProof                       // the server has not said what it is, or what it said is void
	SaidNo                        // asked for this grant, it is in recovery or read-only
	OnceSaidNo                    // so it was, but that was before
	InDoubt                       // the proof was asked for before the doubt rose
	ViewChanged                   // another view was published, or the answer was given under another one
	AlwaysFenced                  // fence = always
	WithoutTimeline               // a host without timelines cannot prove itself for longer than a moment
	Pooled                        // another pooler is in between
	Proven                        // the proof holds
)

var reasonNames = [...]string{"no roles", "after a standstill", "not elected", "below the floor", "other cluster", "not fenced", "no proof", "said no",
	"once said no", "in doubt", "view changed", "always fenced", "without timelines", "another pooler in between", "proven"}

func (r Reason) String() string { return reasonNames[r] }

// Weigh applies the rule for write grants: the host is elected, the server's timeline is not below the floor, it is of the
// shard's cluster, it has proved that it can take writes, and while there is doubt it was asked after that rose. The first
// rule that has something to say decides.
func Weigh(v View, m Mode, d Doubt, c Connection) (Worth, Reason) {
	if v.Static {
		return Grant, NoRoles
	}
	if d.StoodStill { // no connection is closed by what was known before
		return Ask, AfterStandstill
	}
	if !c.Elected {
		return Nothing, NotElected
	}
	if why, outdated := Outdates(v, c.Known); outdated {
		return Nothing, why
	}
	p := c.Proof
	switch {
	case m == Off && (p == nil || p.Timeline == 0 || p.Timeline >= v.Floor):
		return Grant, NotFenced
	case p == nil:
		return Ask, NoProof
	case (p.InRecovery || p.ReadOnly) && c.Answer != Earlier:
		return Nothing, SaidNo
	case p.InRecovery || p.ReadOnly: // it may have been promoted, or made writable, since
		return Ask, OnceSaidNo
	case d.Raised && !p.Asked.After(d.Since):
		return Ask, InDoubt
	case d.Republished, c.Answer == UnderOtherView:
		return Ask, ViewChanged
	case c.Answer == ForThis: // asked just now, the rules below have what they ask for
		return Grant, Proven
	case m == Always:
		return Ask, AlwaysFenced
	case v.NoTimelines:
		return Ask, WithoutTimeline
	case c.Shadowed:
		return Ask, Pooled
	}
	return Grant, Proven
}

// Outdates reports whether what a server said of itself rules out that this connection takes writes under the view, now and
// later: its timeline is below the floor, or it is of another cluster. A server in recovery is on no timeline of its own: it may
// be promoted to one above the floor.
func Outdates(v View, p *role.Proof) (Reason, bool) {
	switch {
	case p == nil:
	case !p.NoTimelines && !p.InRecovery && p.Timeline < v.Floor:
		return BelowFloor, true
	case v.SystemID != 0 && p.SystemID != 0 && p.SystemID != v.SystemID:
		return OtherCluster, true
	}
	return Proven, false
}
