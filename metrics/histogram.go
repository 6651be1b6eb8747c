package metrics

import (
	"math/bits"
	"time"
)

// bounds are the upper bounds of a Histogram's buckets, inclusive as in
// Prometheus: steps of 1.5 to 2.5 from what a local SELECT takes to the default
// of query_wait_timeout, in numbers a person reads.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 300 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second, 120 * time.Second,
}

// firstBucket holds, by the bit length of a duration in nanoseconds, the first
// bucket that any duration of that length can fall into. At most two bounds
// share a bit length, so that the search from there is short.
var firstBucket = func() (first [65]uint8) {
	for length := 1; length < len(first); length++ {
		shortest := uint64(1) << (length - 1)
		i := 0
		for i < len(bounds) && uint64(bounds[i]) < shortest {
			i++
		}
		first[length] = uint8(i)
	}
	return first
}()

// Histogram counts durations in fixed buckets from 50 µs to 120 s and one for
// all that is longer. The zero value is empty and ready. It is 208 bytes, holds
// no pointers, and belongs to one goroutine or event loop at a time: others get
// a Snapshot by message.
type Histogram struct {
	buckets [len(bounds) + 1]uint64 // not cumulative; the last is +Inf
	sum     float64                 // nanoseconds; an int64 of all waiting clients' time would overflow within weeks
}

// Observe counts d; a negative d counts as zero. It costs a few nanoseconds and
// allocates nothing.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i := int(firstBucket[bits.Len64(uint64(d))])
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i]++
	h.sum += float64(d)
}

// Snapshot returns a copy, which the caller owns.
func (h *Histogram) Snapshot() Histogram { return *h }

// Merge adds what o has counted to h. A nil o counts nothing.
func (h *Histogram) Merge(o *Histogram) {
	if o == nil {
		return
	}
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.sum += o.sum
}

// Count returns how many durations were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, b := range h.buckets {
		n += b
	}
	return n
}

// SumSeconds returns the sum of all observed durations in seconds.
func (h *Histogram) SumSeconds() float64 { return h.sum / float64(time.Second) }

// Buckets returns the cumulative counts by upper bound in seconds, as
// Prometheus wants them; +Inf is left to Count.
func (h *Histogram) Buckets() map[float64]uint64 {
	cumulative := make(map[float64]uint64, len(bounds))
	var n uint64
	for i, b := range bounds {
		n += h.buckets[i]
		cumulative[b.Seconds()] = n
	}
	return cumulative
}
