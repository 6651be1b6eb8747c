package cancelrace

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Options say what a run does. DefaultOptions has what is left zero here.
type Options struct {
	Control bool   // run the control, which has to show foreign hits, instead of Fencepost
	Binary  string // of Fencepost, or of the control; "" builds it

	PostgreSQL string          // major version; "" is pgcluster's default
	Pools      []int           // sizes of the pool: a cell for each and each delay
	Delays     []time.Duration // between Fencepost and the server, each way
	Late       bool            // one cell more, where cancels fail half-way or come after cancel_ack_timeout

	PerCell   int           // cancels to be sent to the server in each cell
	Total     int           // … and in all; the last cells go on until it is reached
	CellLimit time.Duration // of a cell; one that has not had its cancels by then is short

	Victims, Cancellers int
	Loops               int    // event loops
	Seed                uint64 // of every choice; the order in which things happen is not repeatable

	OutDir   string        // where cancel.json goes; "" for nowhere
	Out      io.Writer     // progress and the final table
	Progress time.Duration // between two lines of progress
}

// DefaultOptions are those of a full run: 9 cells of at least 5 000 cancels, 100 000 in all.
func DefaultOptions() Options {
	return Options{
		PostgreSQL: "18", Pools: []int{1, 2, 10}, Delays: []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond}, Late: true,
		PerCell: 5000, Total: 100_000, CellLimit: 20 * time.Minute, Victims: 40, Cancellers: 20, Loops: 1, Seed: 1,
		OutDir: "out", Out: io.Discard, Progress: 10 * time.Second,
	}
}

func (o *Options) check() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(len(o.Pools) > 0 && len(o.Delays) > 0, "no cells: name pools and delays")
	for _, n := range o.Pools {
		require(n >= 1 && n <= 50, "pool %d: from 1 to 50", n)
	}
	for _, d := range o.Delays {
		require(d >= 0 && d <= time.Second, "delay %v: from 0 to 1s", d)
	}
	require(o.PerCell >= 1 && o.Total >= 0, "per cell %d, total %d: at least 1 and 0", o.PerCell, o.Total)
	require(o.CellLimit > 0 && o.Progress > 0, "cell limit %v, progress %v: above 0", o.CellLimit, o.Progress)
	require(o.Victims >= 1 && o.Cancellers >= 1 && o.Victims+o.Cancellers <= 500, "from 1 victim and 1 canceller to 500 together")
	require(o.Loops >= 1 && o.Loops <= 64, "loops %d: from 1 to 64", o.Loops)
	return errors.Join(errs...)
}

// setting is what one cell does.
type setting struct {
	pool  int
	delay time.Duration
	late  bool
}

func (s setting) String() string {
	if s.late {
		return fmt.Sprintf("pool %d, late cancels", s.pool)
	}
	return fmt.Sprintf("pool %d, %v", s.pool, s.delay)
}

// extra is the most by which a cancel is slower than what else goes over the link. Half of them are not slower; the
// others take anything between, so that some arrive in the middle of what the server does next.
func (s setting) extra() time.Duration { return 4*time.Millisecond + s.delay/2 }

// target is the most that a victim's statement runs: one that is over at once is easily missed. Over a long link they are
// sparse, so they are longer.
func (s setting) target() time.Duration { return 2*time.Millisecond + s.delay }

// pause is the most that a victim waits between two statements. Over a long link all of them would leave the cancellers
// little of a small pool; so they take two fifths of it.
func (s setting) pause(victims int) time.Duration {
	if s.delay == 0 {
		return 0
	}
	holds := 2*s.delay + s.target()/2 // a connection, for a statement
	mean := time.Duration(victims) * holds * 5 / 2 / time.Duration(s.pool)
	return 2 * mean
}

// mostCancels is how many a round sends at most.
const mostCancels = 4

// leastCancels is how many it sends at least. Over a long link all are under way before the first one takes effect.
func (s setting) leastCancels() int {
	if s.delay >= 50*time.Millisecond {
		return 3
	}
	return 1
}

// rest is the most that a canceller waits between two rounds. Each cancel costs the server a process: more than a few
// hundred a second would say how slow a busy machine is, and nothing else.
func (s setting) rest() time.Duration { return time.Duration(s.pool) * 40 * time.Millisecond }

// In a cell with late cancels.
const (
	lateAckTimeout = 250 * time.Millisecond // cancel_ack_timeout
	lateMost       = 2 * lateAckTimeout     // how long a late cancel is held
)

// cells returns the settings, the slow ones first: the quick ones make up for what they leave of the total.
func (o *Options) cells() []setting {
	var all []setting
	for i := len(o.Delays) - 1; i >= 0; i-- {
		for _, p := range o.Pools {
			all = append(all, setting{pool: p, delay: o.Delays[i]})
		}
	}
	if o.Late {
		all = append([]setting{{pool: o.Pools[len(o.Pools)/2], late: true}}, all...)
	}
	return all
}
