package role

import (
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Unknown.String(), "unknown"}, {Writable.String(), "writable"}, {ReadOnly.String(), "read only"}, {InRecovery.String(), "in recovery"},
		{Verdict(9).String(), "invalid(9)"}, {Probe.String(), "probe"}, {Fence.String(), "fence"}, {Login.String(), "login"},
		{Gossip.String(), "gossip"}, {None.String(), "none"}, {Doubted.String(), "doubted"}, {Proven.String(), "proven"},
		{Demoted.String(), "demoted"}, {NoCause.String(), ""}, {CauseInRecovery.String(), "in recovery"},
		{CauseReadOnly.String(), "read only"}, {CauseForeign.String(), "another cluster"}, {CauseRefused.String(), "refused after a loss"},
		{Floor{7, 2, 3}.String(), "timeline 3 of system 7, generation 2"},
		{Observation{Host: "a", Verdict: Writable, Timeline: 3, SystemID: 7, Source: Fence}.String(), "a writable on timeline 3, system identifier 7 (fence)"},
		{Observation{Host: "a", Verdict: InRecovery}.String(), "a in recovery (probe)"},
	} {
		if c.got != c.want {
			t.Errorf("%q instead of %q", c.got, c.want)
		}
	}
}

func TestObservationOfIdentity(t *testing.T) {
	id := Identity{SystemID: 7, Timeline: 3, LSN: 100, Replayed: 90, Lag: time.Second, LagKnown: true, Started: at(0)}
	o := id.Observation("a", Fence, at(1), at(2))
	want := Observation{Host: "a", Verdict: Writable, SystemID: 7, Timeline: 3, LSN: 100, Lag: time.Second, LagKnown: true,
		LagBytes: 10, Started: at(0), Source: Fence, Asked: at(1), Answered: at(2)}
	if o != want {
		t.Errorf("%+v instead of %+v", o, want)
	}
	for _, c := range []struct {
		id   Identity
		want Verdict
	}{
		{Identity{ReadOnly: true}, ReadOnly}, {Identity{InRecovery: true}, InRecovery}, {Identity{InRecovery: true, ReadOnly: true}, InRecovery},
	} {
		if o := c.id.Observation("a", Probe, at(1), at(2)); o.Verdict != c.want {
			t.Errorf("%+v is %v instead of %v", c.id, o.Verdict, c.want)
		}
	}
	if !ReadOnly.OutOfRecovery() || !Writable.OutOfRecovery() || InRecovery.OutOfRecovery() || Unknown.OutOfRecovery() {
		t.Error("out of recovery are the writable and the read-only")
	}
}

func TestLacks(t *testing.T) {
	for _, c := range []struct {
		o    Observation
		want string
	}{
		{Observation{Verdict: Writable, SystemID: 1, Timeline: 1}, ""},
		{Observation{Verdict: Writable, Timeline: 1}, "system identifier"},
		{Observation{Verdict: Writable, SystemID: 1}, "timeline"},
		{Observation{Verdict: Writable, NoTimelines: true}, ""},
		{Observation{Verdict: InRecovery}, ""},
		{Observation{Verdict: ReadOnly}, ""},
	} {
		if got := c.o.Lacks(); got != c.want {
			t.Errorf("%+v lacks %q instead of %q", c.o, got, c.want)
		}
	}
}

func TestSameServer(t *testing.T) {
	a := Observation{Host: "a", SystemID: 1, Started: at(5)}
	for _, c := range []struct {
		o    Observation
		want bool
	}{
		{Observation{Host: "b", SystemID: 1, Started: at(5).In(time.FixedZone("x", 60))}, true},
		{Observation{Host: "b", SystemID: 1, Started: at(6)}, false},
		{Observation{Host: "b", SystemID: 2, Started: at(5)}, false},
	} {
		if got := a.SameServer(c.o); got != c.want {
			t.Errorf("same server as %+v: %t", c.o, got)
		}
	}
	if (Observation{}).SameServer(Observation{}) {
		t.Error("two servers that do not say when they started are not known to be one")
	}
}

func randomFloor(r *rand.Rand) Floor {
	return Floor{uint64(r.IntN(3)), uint64(r.IntN(3)), uint32(r.IntN(4))}
}

// merges reports what is wrong with a merge that ought to be idempotent, commutative and associative.
func merges[T comparable](t *testing.T, merge func(a, b T) T, random func(*rand.Rand) T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		a, b, c := random(r), random(r), random(r)
		switch {
		case merge(a, a) != a:
			t.Fatalf("not idempotent: %v", a)
		case merge(a, b) != merge(b, a):
			t.Fatalf("not commutative: %+v %+v", a, b)
		case merge(merge(a, b), c) != merge(a, merge(b, c)):
			t.Fatalf("not associative: %+v %+v %+v", a, b, c)
		}
	}
}

func TestMergesOfFloors(t *testing.T) { merges(t, Floor.Merge, randomFloor) }

func TestFloorMerge(t *testing.T) {
	for _, c := range []struct {
		why        string
		a, b, want Floor
	}{
		{"the higher timeline", Floor{1, 1, 3}, Floor{1, 1, 4}, Floor{1, 1, 4}},
		{"the later generation, lower as it is", Floor{1, 1, 3}, Floor{1, 2, 1}, Floor{1, 2, 1}},
		{"the later generation, forgotten as it is", Floor{1, 1, 3}, Floor{0, 2, 0}, Floor{0, 2, 0}},
		{"a known identifier", Floor{0, 2, 0}, Floor{1, 2, 1}, Floor{1, 2, 1}},
	} {
		if got := c.a.Merge(c.b); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}
