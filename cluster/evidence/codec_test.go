package evidence

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"fencepost/role"
)

func TestEncodingIsFixedWidthAndExact(t *testing.T) {
	o := role.Observation{Host: "10.0.0.1:5432", Verdict: role.InRecovery, Source: role.Fence, SystemID: 1 << 63, Timeline: 3, LSN: 1<<40 + 7,
		Lag: 1234 * time.Millisecond, LagKnown: true, LagBytes: 99, Started: epoch, Asked: epoch}
	r, ok := NewObserved(ShardOf("main"), boot("me"), 5, o, 1<<63+9)
	if !ok {
		t.Fatal("not told")
	}
	want := o
	want.Source, want.Observer, want.Seq, want.Answered = role.Gossip, boot("me").String(), 5, epoch
	want.Started = time.UnixMicro(epoch.UnixMicro())
	if got := r.Observed(""); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if r.Observation.Source != role.Fence || r.Seat != 1<<63+9 {
		t.Errorf("source %s, seat %d", r.Observation.Source, r.Seat)
	}
	b := Append(Header(), epoch.Add(time.Second), r)
	if len(b) != 1+Length(Observed) || Length(Observed) != MaxRecordLength {
		t.Errorf("%d bytes", len(b))
	}
	// A later version's kinds and further fields are passed over.
	b = append(b, 77, 3, 1, 2, 3)
	longer := Append(nil, epoch, r)
	longer[1] += 2
	b = append(append(b, longer...), 8, 9)
	// An earlier version's Observed has no seat.
	earlier := Append(nil, epoch.Add(time.Second), r)
	earlier = earlier[:len(earlier)-seatLength]
	earlier[1] -= seatLength
	b = append(b, earlier...)
	var got []Record
	if skipped := Decode(b, epoch.Add(time.Second), func(r Record) { got = append(got, r) }); skipped != 1 || len(got) != 3 || got[0] != r || got[2].Seat != 0 || got[2].Observation != r.Observation {
		t.Errorf("%d skipped, %v", skipped, got)
	}
}

func TestWhatNobodyWritesIsSkipped(t *testing.T) {
	good := claimOf(t, "m", 1, 1)
	seen, _ := NewObserved(ShardOf("main"), boot("m"), 1, role.Observation{Host: "10.0.0.1:1", Asked: epoch}, 0)
	bad := func(r Record, change func(*Record)) []byte {
		change(&r)
		return Append(Header(), epoch, r)
	}
	for name, b := range map[string][]byte{
		"nothing": {}, "version": {9}, "cut": Append(Header(), epoch, good)[:20], "one byte": {1, 2}, "short": {1, 2, 1, 0},
		"no observer": bad(good, func(r *Record) { r.Observer = Boot{} }), "no number": bad(good, func(r *Record) { r.Seq = 0 }),
		"all numbers": bad(good, func(r *Record) { r.Seq = 1 << 63 }), "no timeline": bad(good, func(r *Record) { r.Floor.Timeline = 0 }),
		"no system": bad(good, func(r *Record) { r.Floor.SystemID = 0 }), "generation": bad(good, func(r *Record) { r.Floor.Generation = 1 << 60 }),
		"verdict": bad(seen, func(r *Record) { r.Observation.Verdict = 9 }), "gossip": bad(seen, func(r *Record) { r.Observation.Source = role.Gossip }),
		"aurora": bad(seen, func(r *Record) { r.Observation.NoTimelines, r.Observation.Timeline = true, 1 }),
	} {
		if skipped := Decode(b, epoch, func(r Record) { t.Errorf("%s: %s", name, r) }); skipped != 1 {
			t.Errorf("%s: %d skipped", name, skipped)
		}
	}
}

// FuzzDecode: whatever arrives, nothing panics, and what is taken is written again in the same way.
func FuzzDecode(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 4))
	for range 5 {
		b := Header()
		for _, r := range randomRecords(rnd, 5) {
			b = Append(b, epoch, r)
		}
		f.Add(b)
		b[rnd.IntN(len(b))] ^= 0x55
		f.Add(b)
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		table := NewTable(Limits{})
		j := &Judge{}
		j.Step(epoch, Hosts{List: []role.Host{"10.0.0.1:5432"}})
		Decode(b, epoch, func(r Record) {
			var again []Record
			one := Append(Header(), epoch, r)
			if Decode(one, epoch, func(r Record) { again = append(again, r) }) != 0 || len(again) != 1 || again[0] != r {
				t.Fatalf("%+v is not read as it was written: %+v", r, again)
			}
			if second := Append(Header(), epoch, again[0]); !bytes.Equal(one, second) {
				t.Fatalf("%x and %x", one, second)
			}
			table.Merge(epoch, r)
			j.Step(epoch, PeerObserved{r, "m"})
			j.Step(epoch, FloorClaim{Record: r, Member: "m"})
		})
		table.Expire(epoch.Add(time.Hour))
	})
}
