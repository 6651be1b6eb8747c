// Package standstill notices when the process did not run: frozen (SIGSTOP, a container's freezer, a paused virtual machine),
// asleep with its machine, without a CPU, or held up in Go's runtime.
//
// A Watch beats at an interval and compares the time that passed with the time it asked for. It is a goroutine on a Go
// timer, which is part of the purpose: an armed timer bounds the stop-the-world that can otherwise last 60 s
// (docs/decisions/0009-stop-the-world.md).
//
// After a freeze the watch is not the first to run: what must not be done on old knowledge is guarded where it is done
// (shard.Current for grants of writes).
package standstill

import (
	"sync/atomic"
	"time"
)

// Gap is one standstill.
type Gap struct {
	// Length is how long the process did not run, as far as can be known: the time by which a beat came late.
	Length time.Duration
	// Asleep is the part of it during which the whole machine slept. Go's clock does not count that time.
	Asleep time.Duration
}

// Options configure a Watch. The zero value is ready.
type Options struct {
	Interval time.Duration // between beats; 0: Interval
	Limit    time.Duration // a beat later than this ends a Gap; 0: Limit
	// Noticed is told of each gap, on the watch's goroutine. It must not block: what it takes
	// longer than Limit is a gap of its own. May be nil.
	Noticed func(Gap)
	// Beat is called at each beat that is not the end of a gap, on the watch's goroutine. It must not block either. May be nil.
	Beat func(now time.Time)
	// Asleep is how long the machine has slept since some moment; nil: the difference of CLOCK_BOOTTIME and CLOCK_MONOTONIC on
	// Linux, elsewhere always 0.
	Asleep func() time.Duration
}

// The defaults of Options.
const (
	Interval = time.Second
	Limit    = time.Second
)

// Watch is the watch over one process. All methods may be called from any goroutine.
type Watch struct {
	opt  Options
	done chan struct{}
	over chan struct{}

	gaps   atomic.Uint64
	length atomic.Int64 // of all gaps
}

// Start begins to watch. Stop ends it.
func Start(opt Options) *Watch {
	if opt.Interval <= 0 {
		opt.Interval = Interval
	}
	if opt.Limit <= 0 {
		opt.Limit = Limit
	}
	if opt.Asleep == nil {
		opt.Asleep = asleep
	}
	w := &Watch{opt: opt, done: make(chan struct{}), over: make(chan struct{})}
	go w.run(opt.Asleep())
	return w
}

// run is the watch's goroutine, ended by Stop.
func (w *Watch) run(slept time.Duration) {
	defer close(w.over)
	t := time.NewTimer(w.opt.Interval)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case <-w.done:
			return
		case <-t.C:
		}
		now, nowSlept := time.Now(), w.opt.Asleep()
		gap := Gap{Asleep: max(nowSlept-slept, 0)}
		gap.Length = now.Sub(last) - w.opt.Interval + gap.Asleep
		slept = nowSlept
		if gap.Length > w.opt.Limit {
			w.gaps.Add(1)
			w.length.Add(int64(gap.Length))
			if w.opt.Noticed != nil {
				w.opt.Noticed(gap)
			}
		} else if w.opt.Beat != nil {
			w.opt.Beat(now)
		}
		last = now // not the time it is by now: the process may have been frozen since
		t.Reset(w.opt.Interval)
	}
}

// Gaps is how many gaps there were, and how long all of them together.
func (w *Watch) Gaps() (n uint64, length time.Duration) {
	return w.gaps.Load(), time.Duration(w.length.Load())
}

// Stop ends the watch and waits for its goroutine. To be called once, not from Noticed or Beat.
func (w *Watch) Stop() {
	close(w.done)
	<-w.over
}
