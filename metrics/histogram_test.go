package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestBounds(t *testing.T) {
	if len(bounds) != 24 || bounds[0] != 50*time.Microsecond || bounds[len(bounds)-1] != 120*time.Second {
		t.Errorf("%d bounds from %v to %v", len(bounds), bounds[0], bounds[len(bounds)-1])
	}
	for i := range bounds[1:] {
		if ratio := float64(bounds[i+1]) / float64(bounds[i]); ratio < 1.5 || ratio > 3 {
			t.Errorf("%v follows %v", bounds[i+1], bounds[i])
		}
	}
	if size := unsafe.Sizeof(Histogram{}); size != 208 {
		t.Errorf("a Histogram is %d bytes; its documentation says 208", size)
	}
}

// bucketOf is what Observe must do, the slow way.
func bucketOf(d time.Duration) int {
	i := slices.IndexFunc(bounds[:], func(b time.Duration) bool { return d <= b })
	if i < 0 {
		return len(bounds)
	}
	return i
}

func TestObserve(t *testing.T) {
	durations := []time.Duration{math.MinInt64, -1, 0, 1, math.MaxInt64, math.MaxInt64 - 1}
	for _, b := range bounds {
		durations = append(durations, b-1, b, b+1)
	}
	for shift := range 63 {
		durations = append(durations, 1<<shift-1, 1<<shift, 1<<shift+1)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		durations = append(durations, time.Duration(r.Int64()>>r.IntN(64)))
	}
	for _, d := range durations {
		var h Histogram
		h.Observe(d)
		if i := slices.Index(h.buckets[:], 1); i != bucketOf(d) || h.Count() != 1 {
			t.Errorf("%d ns is in bucket %d, want %d", d, i, bucketOf(d))
		}
		if want := max(d, 0).Seconds(); math.Abs(h.SumSeconds()-want) > want*1e-15 {
			t.Errorf("sum of %v is %v s", d, h.SumSeconds())
		}
	}
}

func TestSumDoesNotOverflow(t *testing.T) {
	var h Histogram
	for range 1000 {
		h.Observe(math.MaxInt64)
	}
	if want := 1000 * time.Duration(math.MaxInt64).Seconds(); math.Abs(h.SumSeconds()/want-1) > 1e-9 {
		t.Errorf("sum %v s, want %v s", h.SumSeconds(), want)
	}
}

// TestMerge promises: merged histograms are what one would have counted alone,
// in any order.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	var parts [3]Histogram
	var all Histogram
	for range 3000 {
		d := time.Duration(r.Int64N(int64(200 * time.Second)))
		parts[r.IntN(len(parts))].Observe(d)
		all.Observe(d)
	}
	same := func(a, b *Histogram) bool {
		return a.buckets == b.buckets && math.Abs(a.sum/b.sum-1) < 1e-12
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		var sum Histogram
		for _, i := range order {
			sum.Merge(&parts[i])
		}
		if !same(&sum, &all) {
			t.Errorf("merged in order %v: %v, want %v", order, sum, all)
		}
	}
	nested, outer := parts[1].Snapshot(), parts[0].Snapshot()
	nested.Merge(&parts[2])
	outer.Merge(&nested)
	if !same(&outer, &all) {
		t.Error("merging is not associative")
	}
	before := all.Snapshot()
	all.Merge(nil)
	all.Merge(&Histogram{})
	if before != all {
		t.Error("merging nothing counts something")
	}
}

func TestSnapshotIsACopy(t *testing.T) {
	var h Histogram
	h.Observe(time.Second)
	s := h.Snapshot()
	h.Observe(time.Second)
	if s.Count() != 1 || h.Count() != 2 {
		t.Errorf("snapshot counts %d, the histogram %d", s.Count(), h.Count())
	}
}

func TestBuckets(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{0, 50 * time.Microsecond, time.Second, time.Second + 1, time.Hour} {
		h.Observe(d)
	}
	got := h.Buckets()
	if len(got) != len(bounds) {
		t.Errorf("%d buckets", len(got))
	}
	for le, want := range map[float64]uint64{0.00005: 2, 0.0001: 2, 0.5: 2, 1: 3, 2: 4, 120: 4} {
		if got[le] != want {
			t.Errorf("le=%v: %d, want %d", le, got[le], want)
		}
	}
	if h.Count() != 5 {
		t.Errorf("count %d", h.Count())
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	var h, o Histogram
	if n := testing.AllocsPerRun(100, func() {
		h.Observe(1234567)
		s := h.Snapshot()
		o.Merge(&s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	d := time.Duration(1)
	for b.Loop() {
		h.Observe(d)
		d = d*5%(1<<37) + 1
	}
}
