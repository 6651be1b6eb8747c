package hasim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

var (
	seedFlag      = flag.Int64("seed", -1, "play this history alone and print its trace")
	historiesFlag = flag.Int("histories", 200, "how many histories to play")
	firstFlag     = flag.Uint64("first", 0, "seed of the first")
	stopFlag      = flag.Int("stop", 10, "stop after so many that failed")
	progressFlag  = flag.Bool("progress", false, "show how far it is")
)

// pass lets time pass in the bubble.
func pass(d time.Duration) { time.Sleep(d) }

// Random histories of a cluster: nothing is granted that must not be, and service comes back by itself.
//
//	go test ./internal/hasim -seed 17 -v      plays one again, with its trace
//	make sim                                  plays 10 000
func TestHistories(t *testing.T) {
	if *seedFlag >= 0 {
		r := play(t, uint64(*seedFlag), true)
		t.Logf("%s", strings.Join(r.trace, "\n"))
		r.report(t)
		return
	}
	all := &tally{start: time.Now(), total: *historiesFlag}
	var next atomic.Uint64
	for worker := range 2 {
		t.Run(fmt.Sprintf("worker%d", worker), func(t *testing.T) {
			t.Parallel()
			for {
				n := next.Add(1) - 1
				if n >= uint64(*historiesFlag) || all.failed() >= *stopFlag {
					return
				}
				r := play(t, *firstFlag+n, false)
				r.report(t)
				all.add(r)
			}
		})
	}
	t.Cleanup(func() { t.Logf("%s", all) })
}

// The same seed gives the same history, to the nanosecond: what failed once can be looked at.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := range uint64(12) {
		first, again := history(t, seed), history(t, seed)
		if n := prefix(first, again); n < max(len(first), len(again)) {
			t.Errorf("seed %d: the same up to line %d, then\n%s\nand\n%s", seed, n, lineAt(first, n), lineAt(again, n))
		}
		if len(first) < 100 {
			t.Errorf("seed %d: a trace of %d lines", seed, len(first))
		}
	}
	if slices.Equal(history(t, 1), history(t, 2)) {
		t.Error("another seed gives the same history")
	}
}

// history is the trace of a seed; what happens in one instant is told in any order.
func history(t *testing.T, seed uint64) []string {
	trace := play(t, seed, true).trace
	when := func(line string) string { return strings.Fields(line + " .")[0] }
	for from := 0; from < len(trace); {
		to := from + 1
		for to < len(trace) && when(trace[to]) == when(trace[from]) {
			to++
		}
		slices.Sort(trace[from:to])
		from = to
	}
	return trace
}

// prefix is how many lines two traces have in common at their beginning.
func prefix(a, b []string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// lineAt is a line of a trace.
func lineAt(trace []string, n int) string {
	if n < len(trace) {
		return trace[n]
	}
	return "the end"
}

// result is what came of a history.
type result struct {
	seed      uint64
	problems  []string
	trace     []string
	counts    counts
	took      time.Duration
	forgotten bool
}

func (r *result) report(t *testing.T) {
	t.Helper()
	if len(r.problems) > 0 {
		t.Errorf("seed %d (go test ./internal/hasim -run TestHistories -v -seed %d):\n\t%s", r.seed, r.seed, strings.Join(r.problems, "\n\t"))
	}
}

// play plays one history.
func play(t *testing.T, seed uint64, verbose bool) (r result) {
	t.Helper()
	watch := time.AfterFunc(2*time.Minute, func() { fmt.Fprintf(os.Stderr, "seed %d takes more than two minutes\n", seed) })
	defer watch.Stop()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "seed %d: %v\n", seed, p)
			panic(p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		w.quiet = !verbose
		w.trace("plan", "%s", w.plan.String())
		w.start(t)
		w.play()
		w.stop()
		r = result{seed: seed, problems: w.problems, counts: w.oracle.counts, took: w.took, forgotten: w.forgotten}
		for _, l := range w.lines {
			r.trace = append(r.trace, fmt.Sprintf("%14v %-14s %s", l.at, l.who, l.text))
		}
	})
	return r
}

// tally counts.
type tally struct {
	start time.Time
	total int

	mu        sync.Mutex // guards what follows
	played    int
	bad       []uint64
	counts    counts
	forgotten int
	took      []time.Duration
	shown     time.Time
}

func (a *tally) failed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.bad)
}

func (a *tally) add(r result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.played++
	a.counts.add(r.counts)
	if len(r.problems) > 0 {
		a.bad = append(a.bad, r.seed)
	} else {
		a.took = append(a.took, r.took)
	}
	if r.forgotten {
		a.forgotten++
	}
	if *progressFlag && time.Since(a.shown) > 5*time.Second {
		a.shown = time.Now()
		fmt.Fprintf(os.Stderr, "%6d of %d histories, %v, failed: %v\n", a.played, a.total, time.Since(a.start).Round(time.Second), a.bad)
	}
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.took)
	at := func(p float64) time.Duration {
		if len(a.took) == 0 {
			return 0
		}
		return a.took[min(len(a.took)-1, int(p*float64(len(a.took))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d histories in %v: %+v, %d needed FORGET; service was back after %v (median), %v (99 of 100), %v (longest); failed seeds: %v",
		a.played, time.Since(a.start).Round(time.Second), a.counts, a.forgotten, at(0.5), at(0.99), at(1), a.bad)
}

// counts say what the histories have come by.
type counts struct {
	grants     int // of writes
	fences     int // asked
	elections  int // of another host than before
	losses     int // of connections, unexpected
	hints      int
	superseded int // leases
	refused    int // checkouts
	restarts   int // of the shard's actor
}

func (c *counts) add(d counts) {
	c.grants += d.grants
	c.fences += d.fences
	c.elections += d.elections
	c.losses += d.losses
	c.hints += d.hints
	c.superseded += d.superseded
	c.refused += d.refused
	c.restarts += d.restarts
}

func (w *world) stopActor(p *actor.PID) {
	if err := w.system.Root.StopFuture(p).Wait(); err != nil {
		w.problem("stop %s: %v", p.Id, err)
	}
}
