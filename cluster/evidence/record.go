// Package evidence is what the members of a fleet tell each other about the hosts of their shards, and what a member may
// make of it. It is pure.
//
// A Record is a register that only one process writes: the latest observation it made of a host (Observed), or the highest
// timeline on which it saw a host out of recovery (Claimed). Two kinds anybody may write, and the highest wins: how often
// FORGET was given for a shard (Generation), and the last FORGET itself (Ordered), which voids what was seen before it was
// given. A generation that arrives without its order, from a member that has it in a state file, voids nothing. A Table is
// the join of all records; the order and the number of times in which they arrive make no difference. Records carry ages,
// never times: no clock is compared with another. A claim outlives the process that made it: see Table.
//
// A Judge is the part of a shard that hears the fleet:
//
//	a claim    --names a host and the identifier of the shard--> adopted: raises the floor
//	           --identifier or host not known yet, or of a later generation--> kept
//	adopted    --that very host, asked on a connection dialled after the claim arrived, contradicts--> refuted: dropped for good, its observer not believed about that host for a while
//	           --it contradicts on an older connection--> its monitor connects anew
//	           --FORGET given after it was seen--> dropped
//	           --another identifier--> kept
//	generation --a later one than the shard's--> taken over; the floor stays
//	an order   --not obeyed yet--> forget what was seen before it was given
//	a sighting --contradicts what the shard believes of the elected host, or shows another one writable--> doubt, once per host and second
//	           --of a host that was not looked at yet, or writable--> a probe, likewise
//	           --"could not reach it"--> nothing
//
// Nothing here grants anything.
package evidence

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"fencepost/role"
)

// Shard names a shard to other members: the digest of its name, which has a fixed length and tells nothing.
type Shard [16]byte

// ShardOf is the Shard of a name in the settings.
func ShardOf(name string) Shard {
	sum := sha256.Sum256([]byte("shard\x00" + name))
	return Shard(sum[:16])
}

// String is the digest in hexadecimal.
func (s Shard) String() string { return hex.EncodeToString(s[:]) }

// Boot identifies one run of one process. It is drawn at random at its start.
type Boot [16]byte

// String is hexadecimal, as role.Observation.Observer has it.
func (b Boot) String() string { return hex.EncodeToString(b[:]) }

// ParseBoot reads what String wrote.
func ParseBoot(text string) (b Boot, err error) {
	n, err := hex.Decode(b[:], []byte(text[:min(len(text), 2*len(b))]))
	if err == nil && (n != len(b) || len(text) != 2*len(b)) {
		err = fmt.Errorf("%q is no boot identifier", text)
	}
	return b, err
}

// Address is the address of a host in the one form in which all members have it. Only an IP address with a port can be
// told to others: a Unix socket, and an address with a zone, is another server on every machine. ok is false for those.
func Address(h role.Host) (a netip.AddrPort, ok bool) {
	a, err := netip.ParseAddrPort(string(h))
	if err != nil || a.Addr().Zone() != "" {
		return netip.AddrPort{}, false
	}
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	return a, valid(a)
}

func valid(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// Kind is what a Record says.
type Kind uint8

// The kinds.
const (
	Observed   Kind = iota + 1 // what a look at a host showed
	Claimed                    // the highest timeline on which the host was seen out of recovery, in one generation
	Generation                 // how often FORGET was given for the shard
	Ordered                    // the last FORGET given
)

func (k Kind) String() string {
	switch k {
	case Observed:
		return "observed"
	case Claimed:
		return "claimed"
	case Generation:
		return "generation"
	case Ordered:
		return "ordered"
	}
	return fmt.Sprintf("invalid(%d)", uint8(k))
}

// Order names one FORGET. It is drawn at random where that is given.
type Order [16]byte

// String is hexadecimal.
func (o Order) String() string { return hex.EncodeToString(o[:]) }

// Key is which register a Record belongs to. A Generation and an Ordered have only Kind and Shard.
type Key struct {
	Kind     Kind
	Shard    Shard
	Host     netip.AddrPort
	Observer Boot
}

func (k Key) compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Kind, l.Kind), bytes.Compare(k.Shard[:], l.Shard[:]), k.Host.Compare(l.Host),
		bytes.Compare(k.Observer[:], l.Observer[:]))
}

// Record is the value of a register. It is immutable.
type Record struct {
	Key
	Seq uint64 // grows with every value the observer writes; 0 in a Generation and in an Ordered
	// At is when what it says was asked for, or ordered, by the local clock. It is known from the age that came with the
	// record, to which nobody added the time on the network; so the truth may be a little earlier. Zero in a Generation.
	At time.Time
	// Observation of an Observed; its Host, Observer, Seq and times are those of the Record.
	Observation role.Observation
	// Seat of an Observed is not 0 if the observer has the host as the shard's primary: see Seat.
	Seat uint64
	// Floor of a Claimed. Of a Generation and an Ordered, only Floor.Generation means something.
	Floor role.Floor
	Order Order // of an Ordered
}

// NewObserved makes a Record of an observation, and of the host's seat with the observer; false if it cannot be told to others.
func NewObserved(shard Shard, observer Boot, seq uint64, o role.Observation, seat uint64) (Record, bool) {
	host, ok := Address(o.Host)
	r, sound := made(Record{Key: Key{Observed, shard, host, observer}, Seq: seq, At: o.Asked, Observation: o, Seat: seat})
	return r, ok && sound
}

// NewClaimed makes a Record of the highest timeline on which a host was seen; false if it cannot be told to others.
func NewClaimed(shard Shard, observer Boot, seq uint64, h role.Host, f role.Floor, at time.Time) (Record, bool) {
	host, ok := Address(h)
	r, sound := made(Record{Key: Key{Claimed, shard, host, observer}, Seq: seq, At: at, Floor: f})
	return r, ok && sound
}

// NewGeneration makes a Record of a shard's generation; false if that is out of range.
func NewGeneration(shard Shard, generation uint64) (Record, bool) {
	return made(Record{Key: Key{Kind: Generation, Shard: shard}, Floor: role.Floor{Generation: generation}})
}

// NewOrdered makes a Record of the FORGET that began a generation; false if that is out of range.
func NewOrdered(shard Shard, generation uint64, order Order, at time.Time) (Record, bool) {
	return made(Record{Key: Key{Kind: Ordered, Shard: shard}, At: at, Floor: role.Floor{Generation: generation}, Order: order})
}

// made is the record as its encoding has it, so that a process's own copy is the same as everybody else's.
func made(r Record) (Record, bool) {
	d, err := decodeBody(r.Kind, encodeBody(nil, r), r.At, 0)
	return d, err == nil
}

// Observed is the observation of an Observed with source Gossip, as it may be shown to a shard: as h if that is not "".
func (r Record) Observed(h role.Host) role.Observation {
	o := r.Observation
	if o.Source, o.Host = role.Gossip, h; h == "" {
		o.Host = role.Host(r.Host.String())
	}
	o.Observer, o.Seq, o.Asked, o.Answered = r.Observer.String(), r.Seq, r.At, r.At
	return o
}

// later is the order of the values of one register. The payload settles what a process that is not ours may have written
// twice under one number. Of two copies of one value the older one is the better one: ages leave out the time on the network.
func later(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), bytes.Compare(encodeBody(nil, a), encodeBody(nil, b)), b.At.Compare(a.At))
}

func (r Record) String() string {
	switch r.Kind {
	case Observed:
		return fmt.Sprintf("%d of %s: %s", r.Seq, r.Observer, r.Observed(""))
	case Claimed:
		return fmt.Sprintf("%d of %s: %s was on %s", r.Seq, r.Observer, r.Host, r.Floor)
	}
	if r.Kind == Ordered {
		return fmt.Sprintf("order %s began generation %d", r.Order, r.Floor.Generation)
	}
	return fmt.Sprintf("%s %d", r.Kind, r.Floor.Generation)
}
