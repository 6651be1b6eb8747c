package soak

import (
	"math/rand/v2"
	"time"
)

// pick chooses by weight.
func pick[T any](rng *rand.Rand, all []T, weight func(*T) int) *T {
	sum := 0
	for i := range all {
		sum += weight(&all[i])
	}
	if sum == 0 {
		return nil
	}
	n := rng.IntN(sum)
	for i := range all {
		if n -= weight(&all[i]); n < 0 {
			return &all[i]
		}
	}
	return nil
}

// think is a pause: short mostly, long sometimes.
func (r *run) think(rng *rand.Rand) time.Duration {
	return min(time.Duration(rng.ExpFloat64()*float64(r.opts.Think)), 20*r.opts.Think)
}

// source is the random numbers of one part of the run.
func (r *run) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(r.opts.Seed, part)) }
