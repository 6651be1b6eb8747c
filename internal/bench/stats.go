package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// interval is a median with the range it is believed to lie in.
type interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"` // rounds behind it; 0: nothing was measured
}

// bootstrapFrom is the number of rounds from which the interval is a bootstrap one. With fewer there is nothing
// to resample, and the interval is from the smallest to the largest value seen.
const bootstrapFrom = 6

// summarize gives the median of values and its interval: the middle 95 % of the medians of resampled values, by a
// fixed seed, so that one set of figures has one result.
func summarize(values []float64) interval {
	if len(values) == 0 {
		return interval{}
	}
	iv := interval{Median: median(values), Low: slices.Min(values), High: slices.Max(values), N: len(values)}
	if len(values) < bootstrapFrom {
		return iv
	}
	const resamples = 4000
	rng := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, resamples)
	sample := make([]float64, len(values))
	for i := range medians {
		for j := range sample {
			sample[j] = values[rng.IntN(len(values))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	iv.Low, iv.High = medians[resamples*25/1000], medians[resamples*975/1000-1]
	return iv
}

// median does not change values; it is NaN for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// quantile of values sorted ascending, by the nearest rank: q = 0.99 of 100 values is the 99th. Zero for none.
func quantile[T any](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
