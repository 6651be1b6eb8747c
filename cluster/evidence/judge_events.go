package evidence

import (
	"fmt"
	"time"

	"fencepost/role"
)

// Event is what a Judge hears: one of the types below.
type Event interface {
	fmt.Stringer
	event()
}

// Effect is what the shard has to do: one of the types below, in the order in which they are to be executed.
type Effect interface {
	fmt.Stringer
	effect()
}

type (
	// Hosts are the shard's hosts that take part in the election, and those that do not: claims about them count for nothing. It
	// replaces both lists.
	Hosts struct{ List, Voteless []role.Host }
	// Decided is the shard's view: who is elected, and the floor with identifier and generation. The floor's timeline may
	// have come from here.
	Decided struct {
		Elected role.Host
		Floor   role.Floor
	}
	// OwnObserved is an observation of the shard's own.
	OwnObserved struct{ Observation role.Observation }
	// PeerObserved is another member's observation. Member is its name, for people.
	PeerObserved struct {
		Record Record
		Member string
	}
	// FloorClaim is another member's claim. Kept: an earlier process has adopted it, and its host may have left the list since.
	FloorClaim struct {
		Record Record
		Member string
		Kept   bool
	}
	// GenerationKnown says that somebody is in this generation.
	GenerationKnown struct{ Generation uint64 }
	// ForgetOrdered is a FORGET, given here or at another member: it began this generation.
	ForgetOrdered struct {
		Generation uint64
		Order      Order
		At         time.Time
	}
	// OrderKept says when the last FORGET was given that an earlier process has obeyed.
	OrderKept struct{ At time.Time }
)

func (Hosts) event()           {}
func (Decided) event()         {}
func (OwnObserved) event()     {}
func (PeerObserved) event()    {}
func (FloorClaim) event()      {}
func (GenerationKnown) event() {}
func (ForgetOrdered) event()   {}
func (OrderKept) event()       {}

func (e Hosts) String() string           { return fmt.Sprintf("hosts %v", e.List) }
func (e Decided) String() string         { return fmt.Sprintf("decided %q on %s", e.Elected, e.Floor) }
func (e OwnObserved) String() string     { return fmt.Sprintf("own observation: %s", e.Observation) }
func (e PeerObserved) String() string    { return fmt.Sprintf("observed by %s: %s", e.Member, e.Record) }
func (e FloorClaim) String() string      { return fmt.Sprintf("claim by %s: %s", e.Member, e.Record) }
func (e GenerationKnown) String() string { return fmt.Sprintf("generation %d", e.Generation) }
func (e OrderKept) String() string       { return "order kept" }
func (e ForgetOrdered) String() string {
	return fmt.Sprintf("forget ordered: generation %d", e.Generation)
}

type (
	// Floor is what the floor has to be at least by the word of others. It replaces the one before. With timeline 0 there is
	// none any more: the floor is what the shard saw itself. Host is who was seen on it, Why the reason.
	Floor struct {
		Host  role.Host
		Floor role.Floor
		Why   string
	}
	// Doubt puts the host in doubt.
	Doubt struct {
		Host role.Host
		Why  string
	}
	// Probe asks for a probe of the host as soon as possible.
	Probe struct {
		Host role.Host
		Why  string
	}
	// Reconnect asks for a connection to the host that is dialled after Since: what was seen on an older one does not refute a
	// claim, because it may end at another server behind the same address.
	Reconnect struct {
		Host  role.Host
		Since time.Time
		Why   string
	}
	// Seat says which host another member has as the primary, on the floor, since before any other such member: where
	// several servers are writable on one timeline, all members are to have this one, or none. It replaces the one before; with Host
	// "" there is none. Tag is when the host became the first member's primary, in microseconds by that member's clock: no more than
	// a number by which all members order seats in the same way. It stays the same for members that follow.
	Seat struct {
		Host     role.Host
		Timeline uint32
		Tag      uint64
		Started  time.Time // of the server; zero: not known
		At       time.Time // when the member saw the host last
		Member   string
	}
	// TakeOver brings the shard to a later generation. Identifier and floor stay.
	TakeOver struct{ Generation uint64 }
	// Forget begins a generation: what was seen before At is void.
	Forget struct {
		Generation uint64
		At         time.Time
	}
	// Refused says that a claim was not followed, or not any more. Once per claim and reason.
	Refused struct {
		Host     role.Host
		Observer Boot
		Member   string
		Why      string
	}
)

func (Floor) effect()     {}
func (Doubt) effect()     {}
func (Probe) effect()     {}
func (Reconnect) effect() {}
func (Seat) effect()      {}
func (TakeOver) effect()  {}
func (Forget) effect()    {}
func (Refused) effect()   {}

func (e Floor) String() string     { return fmt.Sprintf("floor %s on %s: %s", e.Host, e.Floor, e.Why) }
func (e Doubt) String() string     { return fmt.Sprintf("doubt %s: %s", e.Host, e.Why) }
func (e Probe) String() string     { return fmt.Sprintf("probe %s: %s", e.Host, e.Why) }
func (e Reconnect) String() string { return fmt.Sprintf("reconnect %s: %s", e.Host, e.Why) }
func (e Seat) String() string {
	if e.Host == "" {
		return "seat nobody"
	}
	return fmt.Sprintf("seat %s on timeline %d since %d: member %s", e.Host, e.Timeline, e.Tag, e.Member)
}
func (e TakeOver) String() string { return fmt.Sprintf("take over generation %d", e.Generation) }
func (e Forget) String() string   { return fmt.Sprintf("forget: generation %d", e.Generation) }
func (e Refused) String() string  { return fmt.Sprintf("refused %s of %s: %s", e.Host, e.Member, e.Why) }

// Bounds of a Judge.
const (
	// MuteFor is how long an observer is not believed about a host that contradicted it.
	MuteFor = time.Minute
	// Pace is the least time between two doubts, and between two probes, of one host.
	Pace = time.Second
	// MaxClaims is how many claims a Judge keeps, adopted or not.
	MaxClaims = 1024
	// MaxClaimsPerObserver is how many of them may be of one observer.
	MaxClaimsPerObserver = 128
)
