package election

import (
	"fmt"
	"slices"
	"time"

	"fencepost/role"
)

// Event is what happens to a shard: one of the types below. Where an event has At it is when that happened, at the latest
// now; zero means now.
type Event interface {
	event()
	fmt.Stringer
}

type (
	// Observed is an answer of a host to a probe or a fence, or what a login showed.
	Observed struct{ Observation role.Observation }
	// Late says that a probe has not been answered in time; its answer may still come.
	Late struct{ Host role.Host }
	// Lost says that a connection to the host was lost. Expected: we closed it, or the server for a reason that says
	// nothing about itself.
	Lost struct {
		Host     role.Host
		Expected bool
		At       time.Time
	}
	// Refused says that a connect was refused: with Code "" by the host itself (connection refused, reset or closed before
	// the first byte), else by the server with that SQLSTATE. AfterLoss: it was the reconnect right after a loss.
	Refused struct {
		Host      role.Host
		AfterLoss bool
		Code      string
		At        time.Time
	}
	// Failed says that a host could not be asked or gave no answer, for a reason that does not say it is down: a name that
	// does not resolve, a connect that timed out, a login that failed, a query that failed.
	Failed struct {
		Host role.Host
		Why  string
		At   time.Time
	}
	// Heard says that the host sent something on any connection.
	Heard struct {
		Host role.Host
		At   time.Time
	}
	// Hint puts a host in doubt: a write refused as read-only outside a transaction the client made so, or a word from
	// elsewhere.
	Hint struct {
		Host role.Host
		Why  string
		At   time.Time
	}
	// AddressGone says that the host's name no longer resolves to it.
	AddressGone struct{ Host role.Host }
	// AddressBack takes AddressGone back.
	AddressBack struct{ Host role.Host }
	// Hosts replaces the list. What is known of hosts that stay is kept.
	Hosts struct{ List []HostConfig }
	// Forget clears the identifier, unless it is set, the floor and all evidence. Generation is the new one, or 0 for the
	// present one + 1; one that is not higher than the present one was obeyed before.
	// At, if it is not zero, is when the order was given, at another member: what was seen since is not forgotten, and the
	// generation is taken over like TakeOver's.
	Forget struct {
		Generation uint64
		At         time.Time
	}
	// TakeOver counts on from a later generation, which another member is in. Identifier, floor and evidence stay: nobody has
	// ordered anything here.
	TakeOver struct{ Generation uint64 }
	// StoodStill says that this process did nothing for so long: all evidence is void, and the next election waits for the
	// hosts as the first one does. Identifier, floor and claims stay.
	StoodStill struct{ For time.Duration }
	// FloorKept says when the floor that New was given was seen last.
	FloorKept struct{ Seen time.Time }
	// FloorClaim is what the floor has to be at least by the word of other members, who saw the host out of recovery on a
	// timeline. It replaces the one before; with timeline 0 there is none any more. Why says who saw what.
	FloorClaim struct {
		Host  role.Host
		Floor role.Floor
		Why   string
	}
	// Seat is evidence.Seat: the first of the other members' primaries on the floor. It replaces the one before; with Host "" there is
	// none.
	Seat struct {
		Host     role.Host
		Timeline uint32
		Tag      uint64
		Started  time.Time
		At       time.Time
		Member   string
	}
	// Configure replaces the settings.
	Configure struct{ Config Config }
	// Tick lets time pass; see Machine.Next.
	Tick struct{}
)

func (Observed) event()    {}
func (Late) event()        {}
func (Lost) event()        {}
func (Refused) event()     {}
func (Failed) event()      {}
func (Heard) event()       {}
func (Hint) event()        {}
func (AddressGone) event() {}
func (AddressBack) event() {}
func (Hosts) event()       {}
func (Forget) event()      {}
func (TakeOver) event()    {}
func (FloorKept) event()   {}
func (StoodStill) event()  {}
func (FloorClaim) event()  {}
func (Seat) event()        {}
func (Configure) event()   {}
func (Tick) event()        {}

func (e Observed) String() string { return "observed " + e.Observation.String() }
func (e Late) String() string     { return fmt.Sprintf("late %s", e.Host) }
func (e Lost) String() string     { return fmt.Sprintf("lost %s expected=%t", e.Host, e.Expected) }
func (e Refused) String() string {
	return fmt.Sprintf("refused %s after-loss=%t %q", e.Host, e.AfterLoss, e.Code)
}
func (e Failed) String() string      { return fmt.Sprintf("failed %s: %s", e.Host, e.Why) }
func (e Heard) String() string       { return fmt.Sprintf("heard %s", e.Host) }
func (e Hint) String() string        { return fmt.Sprintf("hint %s: %s", e.Host, e.Why) }
func (e AddressGone) String() string { return fmt.Sprintf("address gone %s", e.Host) }
func (e AddressBack) String() string { return fmt.Sprintf("address back %s", e.Host) }
func (e Hosts) String() string       { return fmt.Sprintf("hosts %v", e.List) }
func (e Forget) String() string      { return fmt.Sprintf("forget %d", e.Generation) }
func (e TakeOver) String() string    { return fmt.Sprintf("take over %d", e.Generation) }
func (e StoodStill) String() string  { return fmt.Sprintf("stood still for %v", e.For) }
func (e FloorKept) String() string   { return "floor kept since " + e.Seen.UTC().Format(time.RFC3339) }
func (e FloorClaim) String() string  { return fmt.Sprintf("floor claim %s: %s", e.Host, e.Floor) }
func (e Seat) String() string {
	return fmt.Sprintf("seat %q on timeline %d since %d", e.Host, e.Timeline, e.Tag)
}
func (e Configure) String() string { return fmt.Sprintf("configure %+v", e.Config) }
func (e Tick) String() string      { return "tick" }

// Effect is what the shard has to do or to tell: one of the types below. Each is a transition to be logged and counted
// once, ProbeNow and Stale aside. They come in the order in which they are to be executed.
type Effect interface {
	effect()
	fmt.Stringer
}

type (
	// ViewChanged carries a new view to publish; its epoch is higher than any before. Reason says in a sentence what
	// brought it about.
	ViewChanged struct {
		View, Previous View
		Reason         string
	}
	// Doubt says that the elected host is in doubt: every write grant needs a fence asked for after this. Again: it was in
	// doubt already, and is for one more reason. It ends with DoubtOver or a ViewChanged that elects somebody else.
	Doubt struct {
		Host  role.Host
		Why   string
		Again bool
	}
	// DoubtOver says that the elected host is proven.
	DoubtOver struct{ Host role.Host }
	// Demoted says that a host with evidence showed that it cannot take writes.
	Demoted struct {
		Host  role.Host
		Cause role.Cause
		Why   string
	}
	// Conflict says that several servers are proven writable on one timeline (0: they have none). Elected is who gets the
	// writes all the same, "" for nobody.
	Conflict struct {
		Hosts    []role.Host
		Timeline uint32
		Elected  role.Host
	}
	// Outranked says that the host, elected here, gave way to the one that another member has had for longer on the same timeline.
	Outranked struct {
		Host role.Host
		Why  string
	}
	// ConflictOver ends Conflict.
	ConflictOver struct{}
	// Foreign names a host that belongs to another cluster than the shard: it is refused for writes and reads.
	Foreign struct {
		Host           role.Host
		SystemID, Want uint64
	}
	// Disagreement says that hosts belong to different clusters while the shard's is not known: nobody is elected. Which names
	// two of them.
	Disagreement struct{ Which string }
	// ClaimRefused says that another member's word was not followed.
	ClaimRefused struct {
		Host role.Host
		Why  string
	}
	// Outrun says that the host's monitor has an older connection, which ends at another server than the one on which Newer was
	// seen. The monitor is to connect anew.
	Outrun struct {
		Host  role.Host
		Newer role.Observation
	}
	// ProbeNow asks for a probe of the host as soon as its connection is free.
	ProbeNow struct{ Host role.Host }
	// Stale says that an event was dropped because it belongs to a time, a host or a generation that is over.
	Stale struct {
		Host role.Host
		Why  string
	}
	// Bug says that something came that cannot happen. It was taken for the worse.
	Bug struct{ What string }
)

func (ViewChanged) effect()  {}
func (Doubt) effect()        {}
func (DoubtOver) effect()    {}
func (Demoted) effect()      {}
func (Conflict) effect()     {}
func (Outranked) effect()    {}
func (ConflictOver) effect() {}
func (Foreign) effect()      {}
func (Disagreement) effect() {}
func (ClaimRefused) effect() {}
func (Outrun) effect()       {}
func (ProbeNow) effect()     {}
func (Stale) effect()        {}
func (Bug) effect()          {}

func (e ViewChanged) String() string { return fmt.Sprintf("view %s: %s", e.View, e.Reason) }
func (e Doubt) String() string {
	if e.Again {
		return fmt.Sprintf("doubt %s again: %s", e.Host, e.Why)
	}
	return fmt.Sprintf("doubt %s: %s", e.Host, e.Why)
}
func (e DoubtOver) String() string { return fmt.Sprintf("doubt over %s", e.Host) }
func (e Demoted) String() string   { return fmt.Sprintf("demoted %s (%s): %s", e.Host, e.Cause, e.Why) }
func (e Conflict) String() string {
	return fmt.Sprintf("conflict %v on timeline %d, elected %q", e.Hosts, e.Timeline, e.Elected)
}
func (e Outranked) String() string    { return fmt.Sprintf("outranked %s: %s", e.Host, e.Why) }
func (e ConflictOver) String() string { return "conflict over" }
func (e Foreign) String() string {
	return fmt.Sprintf("foreign %s: system identifier %d instead of %d", e.Host, e.SystemID, e.Want)
}
func (e Disagreement) String() string { return "disagreement: " + e.Which }
func (e ClaimRefused) String() string { return fmt.Sprintf("claim refused %s: %s", e.Host, e.Why) }
func (e Outrun) String() string {
	return fmt.Sprintf("outrun %s: a newer connection shows %s", e.Host, e.Newer)
}
func (e ProbeNow) String() string { return fmt.Sprintf("probe now %s", e.Host) }
func (e Stale) String() string    { return fmt.Sprintf("stale %s: %s", e.Host, e.Why) }
func (e Bug) String() string      { return "bug: " + e.What }

func (e Conflict) same(hosts []role.Host, timeline uint32, elected role.Host) bool {
	return slices.Equal(e.Hosts, hosts) && e.Timeline == timeline && e.Elected == elected
}
