package soak

import (
	"fmt"
	"slices"
)

// The rule for memory that is flat: after a warm-up of a quarter of the load (two minutes at most) the samples are cut
// into a first and a last third. The median of the last may be above that of the first by a tenth and 8 MiB. It is
// applied to the resident memory and to the heap's floor, the tenth percentile of the heap, which what is not yet
// collected does not raise. Sharper is the comparison of what is left of the heap at rest: see restSlack.
const (
	warmUpShare   = 4
	warmUpMost    = 120.0 // seconds
	growthShare   = 10
	growthSlack   = 8 << 20
	fewestInThird = 3 // samples in a third: with fewer nothing is said
)

// How much more the heap may hold at rest after the load than before, both after a collection: each loop keeps up to
// 3.5 MiB of buffers for the next time.
const (
	restSlack     = 2 << 20
	restLoopSlack = 4 << 20
)

func restingHeap(before, after int64, loops int) memoryResult {
	limit := before + restSlack + int64(loops)*restLoopSlack
	return memoryResult{What: "live heap at rest", First: before, Last: after, Limit: limit, Flat: after <= limit}
}

// memoryResult is what the rule found.
type memoryResult struct {
	What  string `json:"what"`
	First int64  `json:"first_bytes"`
	Last  int64  `json:"last_bytes"`
	Limit int64  `json:"limit_bytes"`
	Flat  bool   `json:"flat"`
}

func (m memoryResult) String() string {
	return fmt.Sprintf("%s %s -> %s (limit %s)", m.What, mib(m.First), mib(m.Last), mib(m.Limit))
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// judgeMemory applies the rule to the samples of the load; nil if there are too few.
func judgeMemory(all []sample, began, ended float64) []memoryResult {
	from := began + min((ended-began)/warmUpShare, warmUpMost)
	var kept []sample
	for _, s := range all {
		if s.At >= from && s.At <= ended {
			kept = append(kept, s)
		}
	}
	third := len(kept) / 3
	if third < fewestInThird {
		return nil
	}
	first, last := kept[:third], kept[len(kept)-third:]
	return []memoryResult{
		compareMemory("resident", first, last, 50, func(s sample) int64 { return s.RSS }),
		compareMemory("heap floor", first, last, 10, func(s sample) int64 { return s.Heap }),
	}
}

func compareMemory(what string, first, last []sample, percentile int, value func(sample) int64) memoryResult {
	m := memoryResult{What: what, First: rank(first, percentile, value), Last: rank(last, percentile, value)}
	m.Limit = m.First + m.First/growthShare + growthSlack
	m.Flat = m.Last <= m.Limit
	return m
}

// rank is a percentile.
func rank(all []sample, percentile int, value func(sample) int64) int64 {
	values := make([]int64, len(all))
	for i, s := range all {
		values[i] = value(s)
	}
	slices.Sort(values)
	return values[(len(values)-1)*percentile/100]
}
