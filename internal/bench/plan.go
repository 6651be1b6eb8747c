package main

import (
	"fmt"
	"slices"
	"time"
)

// cell is one kind of load.
type cell struct {
	Mode    string `json:"mode"`
	Clients int    `json:"clients"`
	Churn   bool   `json:"churn,omitempty"` // a new connection for every transaction
}

func (c cell) String() string {
	if c.Churn {
		return fmt.Sprintf("%s -C c=%d", c.Mode, c.Clients)
	}
	return fmt.Sprintf("%s c=%d", c.Mode, c.Clients)
}

func (o options) cells() []cell {
	var out []cell
	for _, m := range o.modes {
		for _, n := range o.clients {
			out = append(out, cell{Mode: m, Clients: n})
		}
	}
	if o.churn > 0 {
		out = append(out, cell{Mode: "simple", Clients: o.churn, Churn: true})
	}
	return out
}

// order is the sequence in which the arms of one cell run in one round. The start is rotated from round to round
// and from cell to cell, and every other round runs backwards, so that no arm is always first, and none always
// has the same predecessor: whatever a run leaves behind (warm caches, sockets in TIME_WAIT, a checkpoint)
// falls on each of them.
func order(arms []string, round, cellIndex int) []string {
	n := len(arms)
	if n == 0 {
		return nil
	}
	shift := (round + cellIndex) % n
	out := append(slices.Clone(arms[shift:]), arms[:shift]...)
	if round%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

// measurements is how many there are in a run that nothing cuts short.
func (o options) measurements() int {
	var n int
	for _, c := range o.cells() {
		for _, arm := range o.arms {
			if measures(arm, c) {
				n += o.rounds
			}
		}
	}
	return n
}

// estimate is how long the run will take, for the line that says so at the start.
func (o options) estimate() time.Duration {
	const (
		overhead = 350 * time.Millisecond // start and connections of one pgbench, reading its log
		setup    = 20 * time.Second       // building, initdb, filling the tables
		perConn  = 1200 * time.Microsecond
	)
	runs := o.measurements()
	d := setup + time.Duration(runs)*(time.Duration(o.seconds)*time.Second+overhead)
	for _, arm := range []string{armPgBouncer, armFencepost, armOther} {
		if !slices.Contains(o.arms, arm) {
			continue
		}
		d += time.Duration(o.idle) * perConn
		if arm != armPgBouncer {
			d += time.Duration(o.leak) * perConn
		}
		if o.counters > 0 && o.rounds > 0 {
			d += time.Duration(len(counterCells)*(o.counters+3)) * time.Second
		}
	}
	return d.Round(time.Second)
}
