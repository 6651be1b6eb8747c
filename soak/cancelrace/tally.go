package cancelrace

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what the clients of one cell have seen. Safe for concurrent use.
type tally struct {
	statements atomic.Int64 // answered to victims
	rounds     atomic.Int64 // statements of cancellers
	requests   atomic.Int64 // cancel requests sent to Fencepost
	hit        atomic.Int64 // statements that ended with 57014 after their start
	unstarted  atomic.Int64 // … before: in the queue, or at the very beginning
	untouched  atomic.Int64 // statements that were over before their cancel came
	late       atomic.Int64 // cancels that hit a later statement of the client that asked for them
	judged     atomic.Int64 // statements that had to be cancelled
	missed     atomic.Int64 // … and were not
	foreign    atomic.Int64 // 57014 nobody had asked for

	mu      sync.Mutex // guards what follows
	faults  map[string]int
	effects []time.Duration // from a cancel's leaving to its 57014, of statements that had to be cancelled
}

// keptFaults bounds the different texts that are kept.
const keptFaults = 20

// fault notes what should not happen and is no foreign hit.
func (t *tally) fault(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults == nil {
		t.faults = map[string]int{}
	}
	text := fmt.Sprintf(format, args...)
	if _, known := t.faults[text]; known || len(t.faults) < keptFaults {
		t.faults[text]++
	} else {
		t.faults["others"]++
	}
}

func (t *tally) effect(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.effects = append(t.effects, d)
}

// percentile returns the p-th of the effects' durations, 0 if there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*p/100), len(sorted)-1)]
}

// into copies the counts to a cell's report.
func (t *tally) into(c *Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Statements, c.Rounds, c.Requests = t.statements.Load(), t.rounds.Load(), t.requests.Load()
	c.Hit, c.Unstarted, c.Untouched, c.OwnLater = t.hit.Load(), t.unstarted.Load(), t.untouched.Load(), t.late.Load()
	c.Judged, c.Missed, c.Foreign = t.judged.Load(), t.missed.Load(), t.foreign.Load()
	slices.Sort(t.effects)
	c.EffectP50, c.EffectP99 = milliseconds(percentile(t.effects, 50)), milliseconds(percentile(t.effects, 99))
	c.EffectMax = milliseconds(percentile(t.effects, 100))
	for text, n := range t.faults {
		c.Faults = append(c.Faults, fmt.Sprintf("%d x %s", n, text))
	}
	slices.Sort(c.Faults)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
