package cluster

import (
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/cluster/evidence"
	"fencepost/metrics"
	"fencepost/role"
)

// Messages to the fleet, from shards.
type (
	// Subscribe asks for what other members say of a shard: PeerObserved, PeerFloorClaim, Generation and ForgetOrdered, all that
	// is known at once, then Ready, if that is so or as soon as it is; and for Members. Generation is the one the shard is in.
	// Claims are those of others that it has accepted: members that come later hear of them, whoever is gone. Members are where
	// others were reached before a restart. A second one of the same subscriber has everything sent again. It ends when the
	// subscriber ends.
	Subscribe struct {
		Shard      string
		To         *actor.PID
		Generation uint64
		Claims     []evidence.Record
		Members    []netip.AddrPort
	}
	// Publish tells the others what a look at a host showed. Send every one: what differs from the last goes out at once, the
	// rest now and then. Observer and Seq are set here. Nothing answers.
	Publish struct {
		Shard       string
		Observation role.Observation
		Seat        uint64 // of the host, if it is the shard's primary here: see evidence.Seat
	}
	// PublishFloorClaim tells the others that this process itself, or the one before it, saw a host out of recovery on a timeline;
	// never what it has from others, or no lie would ever end. At is when the host was asked.
	PublishFloorClaim struct {
		Shard string
		Host  role.Host
		Floor role.Floor
		At    time.Time
	}
)

// ForgetOrdered is a FORGET: to the fleet from the shard where it was given, and from the fleet to subscribers.
type ForgetOrdered struct {
	Shard         string
	ForgetOrdered evidence.ForgetOrdered
}

// Messages from the fleet to shards.
type (
	// PeerObserved is what another member saw: for the shard's evidence.Judge.
	PeerObserved struct {
		Shard        string
		PeerObserved evidence.PeerObserved
	}
	// PeerFloorClaim is another member's claim: likewise.
	PeerFloorClaim struct {
		Shard      string
		FloorClaim evidence.FloorClaim
	}
	// Generation says that somebody is in a later generation than the shard said. Nobody has ordered anything.
	Generation struct {
		Shard      string
		Generation uint64
	}
	// Members are where the other members that are alive are reached: for the state file. It is sent when that has changed.
	Members struct{ Addrs []netip.AddrPort }
	// Ready says that the shard may grant writes, as far as the fleet is concerned. It is sent once to each subscriber, after
	// what was known by then. Joined: some other member was heard; else JoinWait is over, or there is nobody to join.
	Ready struct{ Joined bool }
)

// Messages to and from the other actors of the process.
type (
	// Attach says who serves what arrives; nil fields stay as they are.
	Attach struct {
		Cancels    *actor.PID // gets CancelFor
		Operations *actor.PID // gets Operation
	}
	// CancelFor asks for a cancel to be passed on to the member with that PeerID, and is what that member's Cancels gets.
	// One for nobody, for two members with one PeerID, or for a member that has too many to deal with already, is dropped
	// and counted. It is never passed on twice. Key is what the client sent.
	CancelFor struct {
		PeerID uint32
		Key    []byte
		// Done is called, at least once and from any goroutine, when it has been dealt with by the member it is for: when
		// nothing more will be sent on its behalf. In what is sent to the fleet it may be nil; it is called there, too, when
		// the cancel is dropped, or no answer comes within CancelWait. It does not block.
		Done func()
	}
	// Operate has every member that is alive, this one included, carry out an operation. Reply gets one OperationResult when
	// all have answered or Timeout (default 10 s) is over; it must have room for it.
	Operate struct {
		Verb    string
		Args    []string
		Timeout time.Duration
		Reply   chan<- OperationResult
	}
	// Operation asks this member's Operations to do something. To be answered once, by OperationDone to Reply with the same
	// ID, before Deadline.
	Operation struct {
		ID       uint64
		Verb     string
		Args     []string
		From     string // the member that asks
		FromBoot evidence.Boot
		Deadline time.Time
		Reply    *actor.PID
	}
	// OperationDone answers Operation. Err is "" if it was done.
	OperationDone struct {
		ID   uint64
		Err  string
		Rows [][]string
	}
	// OperationResult has the answer of every member that was asked, in the order of their names.
	OperationResult struct{ Answers []Answer }
	// Answer is one member's. Err says also that there was none in time, or that the member left.
	Answer struct {
		Member  string
		Boot    evidence.Boot
		Address string
		Err     string
		Rows    [][]string
	}

	// SetDraining says whether this member takes no new clients any more.
	SetDraining struct{ Draining bool }
	// SetLoad says how many clients and servers are connected. The others hear of it now and then.
	SetLoad struct{ Clients, Servers uint32 }
	// SetSettings gives the settings that members should have in common, as text by key; no secrets.
	SetSettings struct{ Settings map[string]string }
	// Configure replaces what a reload may change.
	Configure struct {
		Join []string
		Keys [][]byte
		Size int
	}
	// Describe asks for a Description. Reply must have room for it.
	Describe struct{ Reply chan<- *Description }
	// Scrape asks for metrics. Reply must have room for them.
	Scrape struct{ Reply chan<- []metrics.Family }
	// Close leaves the fleet, within three times leaveTimeout, and ends the actor: await its end. An actor that is stopped without it
	// leaves behind its back.
	Close struct{}
)

// Messages of the actor to itself.
type (
	opened struct { // the outcome of an attempt to open
		by  *opening
		err error
	}
	received struct { // a user message
		bytes []byte
		at    time.Time
	}
	receivedState struct { // of a push/pull
		bytes []byte
		at    time.Time
	}
	nodeSeen struct { // joined, updated
		node node
		meta []byte
	}
	nodeGone struct{ name string }
	pinged   struct {
		name             string
		trip             time.Duration
		clients, servers uint32
	}
	joined      struct{ tried, reached int } // a round of attempts to join is over
	tick        struct{ generation uint64 }
	undelivered struct { // a message that could not be written
		to      evidence.Boot
		request uint64 // that waits for it; 0: none
		err     error
	}
	closed struct{}
)

// IgnoreDeadLetterLogging: what arrives while the actor ends is not wanted any more.
func (*received) IgnoreDeadLetterLogging()      {}
func (*receivedState) IgnoreDeadLetterLogging() {}
func (*nodeSeen) IgnoreDeadLetterLogging()      {}
func (*nodeGone) IgnoreDeadLetterLogging()      {}
func (*pinged) IgnoreDeadLetterLogging()        {}
func (*joined) IgnoreDeadLetterLogging()        {}
func (*tick) IgnoreDeadLetterLogging()          {}
func (*undelivered) IgnoreDeadLetterLogging()   {}
func (*closed) IgnoreDeadLetterLogging()        {}
