package world

import (
	"time"
)

// NoWriterLeast is the shortest time without an acknowledged write that counts as one without a writer.
const NoWriterLeast = 150 * time.Millisecond

// Writes returns the observer's writes that were acknowledged from from to to, in that order. A zero to means until now.
func (o *Observer) Writes(from, to time.Time) []Write {
	o.mu.Lock()
	defer o.mu.Unlock()
	var some []Write
	for _, w := range o.writes {
		if !w.Acked.Before(from) && (to.IsZero() || !w.Acked.After(to)) {
			some = append(some, w)
		}
	}
	return some
}

// FirstWrite returns the observer's first acknowledged write on a server (any for "") that was asked for after a time, and
// where clients could have written too. False if there is none so far.
func (o *Observer) FirstWrite(server string, after time.Time) (Write, bool) {
	for _, w := range o.Writes(after, time.Time{}) {
		if (server == "" || w.Server == server) && !w.CutOff && w.Asked.After(after) {
			return w, true
		}
	}
	return Write{}, false
}

// NoWriterIntervals returns the times between from and to in which the observer got no write acknowledged by any server
// that clients could reach, each from an acknowledgement to the next, as far as they are not shorter than NoWriterLeast: the
// observer writes some dozens of times a second, and a busy machine delays one now and then.
func (o *Observer) NoWriterIntervals(from, to time.Time) []Interval {
	var all []Interval
	last := from
	add := func(until time.Time) {
		if i := (Interval{last, until}); i.Length() >= NoWriterLeast {
			all = append(all, i)
		}
		last = until
	}
	for _, w := range o.Writes(from, to) {
		if !w.CutOff {
			add(w.Acked)
		}
	}
	if to.IsZero() {
		to = time.Now()
	}
	add(to)
	return all
}
