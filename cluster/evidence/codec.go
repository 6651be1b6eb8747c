package evidence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"fencepost/role"
)

// A message is the version byte and any number of records: kind, length of what follows, age in milliseconds, body. All
// numbers are big-endian. Each kind has one length in this version; a longer one is a later version's, whose further
// fields are passed over, and a kind that is not known is passed over as a whole.
const (
	version   = 1
	ageLength = 4

	shardLength  = 16
	keyLength    = shardLength + 16 + 2 + 16
	seenLength   = keyLength + 8 + 1 + 1 + 1 + 8 + 4 + 8 + 4 + 8 + 8
	seatLength   = 8 // behind an Observed, from members that know of seats
	claimLength  = keyLength + 8 + 8 + 8 + 4
	forgetLength = shardLength + 8
	orderLength  = forgetLength + 16

	// MaxRecordLength is the length of the longest encoded record, age and header included.
	MaxRecordLength = 2 + ageLength + seenLength + seatLength
)

// Limits of what is believed. Nothing honest comes near them.
const (
	maxGeneration = 1 << 48
	maxSeq        = 1 << 62
)

const (
	flagLagKnown = 1 << iota
	flagNoTimelines
	knownFlags = flagLagKnown | flagNoTimelines
)

// Header begins a message of records; Append appends the records.
func Header() []byte { return []byte{version} }

// Append appends a record to a message, with its age as of now.
func Append(b []byte, now time.Time, r Record) []byte {
	b = append(b, byte(r.Kind), 0)
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, ageOf(now, r.At))
	b = encodeBody(b, r)
	b[start-1] = byte(len(b) - start)
	return b
}

// Length is how many bytes Append appends.
func Length(k Kind) int {
	n := 2 + ageLength + bodyLength(k)
	if k == Observed {
		n += seatLength
	}
	return n
}

// bodyLength is the least length of a body.
func bodyLength(k Kind) int {
	switch k {
	case Observed:
		return seenLength
	case Claimed:
		return claimLength
	case Ordered:
		return orderLength
	}
	return forgetLength
}

func ageOf(now, at time.Time) uint32 {
	if at.IsZero() {
		return 0
	}
	return uint32(min(max(now.Sub(at).Milliseconds(), 0), math.MaxUint32))
}

func encodeBody(b []byte, r Record) []byte {
	b = append(b, r.Shard[:]...)
	switch r.Kind {
	case Generation:
		return binary.BigEndian.AppendUint64(b, r.Floor.Generation)
	case Ordered:
		return append(binary.BigEndian.AppendUint64(b, r.Floor.Generation), r.Order[:]...)
	}
	ip := r.Host.Addr().As16()
	b = append(b, ip[:]...)
	b = binary.BigEndian.AppendUint16(b, r.Host.Port())
	b = append(b, r.Observer[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Seq)
	if r.Kind == Claimed {
		b = binary.BigEndian.AppendUint64(b, r.Floor.SystemID)
		b = binary.BigEndian.AppendUint64(b, r.Floor.Generation)
		return binary.BigEndian.AppendUint32(b, r.Floor.Timeline)
	}
	o := r.Observation
	var flags byte
	if o.LagKnown {
		flags |= flagLagKnown
	}
	if o.NoTimelines {
		flags |= flagNoTimelines
	}
	b = append(b, byte(o.Verdict), byte(o.Source), flags)
	b = binary.BigEndian.AppendUint64(b, o.SystemID)
	b = binary.BigEndian.AppendUint32(b, o.Timeline)
	b = binary.BigEndian.AppendUint64(b, o.LSN)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(o.Lag.Milliseconds(), 0), math.MaxUint32)))
	b = binary.BigEndian.AppendUint64(b, o.LagBytes)
	var started int64
	if !o.Started.IsZero() {
		started = o.Started.UnixMicro()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(started))
	return binary.BigEndian.AppendUint64(b, r.Seat)
}

// Decode reads a message and calls take for each record that makes sense. skipped is how many did not, a message cut off
// in the middle or of another version counting as one. now is when the message arrived. It keeps nothing of b.
func Decode(b []byte, now time.Time, take func(Record)) (skipped int) {
	if len(b) == 0 || b[0] != version {
		return 1
	}
	for b = b[1:]; len(b) > 0; {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return skipped + 1
		}
		kind, body := Kind(b[0]), b[2:2+int(b[1])]
		b = b[2+int(b[1]):]
		r, err := decodeRecord(kind, body, now)
		if err != nil {
			skipped++
			continue
		}
		take(r)
	}
	return skipped
}

func decodeRecord(kind Kind, b []byte, now time.Time) (Record, error) {
	if kind < Observed || kind > Ordered {
		return Record{}, fmt.Errorf("record of an unknown kind %d", kind)
	}
	if len(b) < ageLength+bodyLength(kind) {
		return Record{}, errors.New("record is too short")
	}
	return decodeBody(kind, b[ageLength:], now, binary.BigEndian.Uint32(b))
}

// reader takes fields off the front; the length was checked before.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	f := r.b[:n]
	r.b = r.b[n:]
	return f
}
func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func decodeBody(kind Kind, b []byte, now time.Time, age uint32) (Record, error) {
	in := &reader{b}
	r := Record{Key: Key{Kind: kind, Shard: Shard(in.take(shardLength))}}
	if kind == Generation {
		r.Floor.Generation = in.u64()
		return r, check(r)
	}
	r.At = now.Add(-time.Duration(age) * time.Millisecond)
	if kind == Ordered {
		r.Floor.Generation, r.Order = in.u64(), Order(in.take(16))
		return r, check(r)
	}
	ip := netip.AddrFrom16([16]byte(in.take(16))).Unmap()
	r.Host = netip.AddrPortFrom(ip, in.u16())
	r.Observer, r.Seq = Boot(in.take(16)), in.u64()
	if kind == Claimed {
		r.Floor = role.Floor{SystemID: in.u64(), Generation: in.u64(), Timeline: in.u32()}
		return r, check(r)
	}
	o := role.Observation{Verdict: role.Verdict(in.u8()), Source: role.Source(in.u8())}
	flags := in.u8()
	o.LagKnown, o.NoTimelines = flags&flagLagKnown != 0, flags&flagNoTimelines != 0
	o.SystemID, o.Timeline, o.LSN = in.u64(), in.u32(), in.u64()
	o.Lag, o.LagBytes = time.Duration(in.u32())*time.Millisecond, in.u64()
	if started := int64(in.u64()); started != 0 {
		o.Started = time.UnixMicro(started)
	}
	r.Observation = o
	if len(in.b) >= seatLength {
		r.Seat = in.u64()
	}
	if flags&^knownFlags != 0 {
		return r, errors.New("flags that are not known")
	}
	return r, check(r)
}

// check refuses what no member writes.
func check(r Record) error {
	switch {
	case r.Floor.Generation > maxGeneration:
		return errors.New("generation out of range")
	case r.Kind == Ordered && (r.Order == Order{} || r.Floor.Generation == 0):
		return errors.New("an order without an identifier or a generation")
	case r.Kind == Generation, r.Kind == Ordered:
		return nil
	case !valid(r.Host):
		return errors.New("not the address of a host")
	case r.Observer == Boot{}, r.Seq == 0, r.Seq > maxSeq:
		return errors.New("no observer, or a number out of range")
	case r.Kind == Claimed && (r.Floor.SystemID == 0 || r.Floor.Timeline == 0):
		return errors.New("a claim without an identifier or a timeline")
	case r.Kind == Observed && (r.Observation.Verdict > role.InRecovery || r.Observation.Source >= role.Gossip):
		return errors.New("verdict or source not known")
	case r.Kind == Observed && r.Observation.NoTimelines && r.Observation.Timeline != 0:
		return errors.New("a timeline where there are none")
	}
	return nil
}
