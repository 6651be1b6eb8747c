package fleet

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// wholeLimit is how soon a fleet has to be whole after a partition.
const wholeLimit = 15 * time.Second

// Problems is what may not be.
func (r *Report) Problems() []string {
	problems := slices.Clone(r.unfinished)
	note := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	control, caught := 0, 0
	for _, s := range r.Splits {
		if s.Alone {
			control++
			if s.Later500 > 0 {
				caught++
			}
			continue
		}
		note(s.Later500 > 0, "%d writes were acknowledged by the old primary later than %s after the fleet saw its successor", s.Later500, seenLimit)
		note(s.Before == 0, "a split brain in which nothing was written before")
	}
	note(control > caught, "%d of %d controls were not caught", control-caught, control)
	note(r.Cancels.Missed > 0, "%d cancels had no effect", r.Cancels.Missed)
	note(r.Cancels.Foreign > 0, "%d statements were hit by a foreign cancel", r.Cancels.Foreign)
	note(len(r.Cancels.Errors) > 0, "errors of cancelling clients: %v", r.Cancels.Errors)
	note(r.Partition.Whole > wholeLimit, "the fleet was whole only %s after a partition", r.Partition.Whole)
	for _, s := range r.Switches {
		note(len(s.Errors) > 0, "%d clients saw an error in a switchover", len(s.Errors))
	}
	for _, s := range r.Rollings {
		note(len(s.Failed) > 0, "%d transactions failed in a rolling restart: %+v", len(s.Failed), s.Failed[:min(len(s.Failed), 1)])
	}
	return problems
}

// table prints the figures.
func (r *Report) table(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer t.Flush() //nolint:errcheck // as with everything that is printed
	row := func(what string, n int, figures string, args ...any) {
		fmt.Fprintf(t, "%s\t%d\t%s\n", what, n, fmt.Sprintf(figures, args...))
	}
	fmt.Fprintln(t, "\nwhat\truns\tfigures")
	for _, kind := range []struct {
		name          string
		alone, freeze bool
	}{{"split brain, cut off", false, false}, {"split brain, frozen", false, true}, {"control, without a fleet", true, false}} {
		n, before, late, later := 0, 0, 0, 0
		var last time.Duration
		var seen []time.Duration
		for _, s := range r.Splits {
			if s.Alone == kind.alone && s.Freeze == kind.freeze {
				n, before, late, later, last = n+1, before+s.Before, late+s.Late, later+s.Later500, max(last, s.Last)
				seen = append(seen, s.Seen.Sub(s.Promoted))
			}
		}
		if n > 0 {
			slices.Sort(seen)
			row(kind.name, n, "%d writes acknowledged by the old primary later than %s after the fleet saw the new one (%d at all after that, the last after %s; %d before); seen after p50 %s max %s",
				later, seenLimit, late, last.Round(time.Millisecond), before, quantile(seen, 0.5), quantile(seen, 1))
		}
	}
	if c := r.Cancels; c.Sent > 0 {
		row("cancels at random members", c.Sent, "%d took effect, after p50 %s p99 %s; %d to another member; %d without effect, %d foreign", len(c.Took), quantile(c.Took, 0.5),
			quantile(c.Took, 0.99), c.Far, c.Missed, c.Foreign)
	}
	if p := r.Partition; p.Lasted > 0 {
		row("partition of "+p.Lasted.Round(time.Second).String(), 1, "noticed after %s; whole again after %s", p.Noticed.Round(100*time.Millisecond), p.Whole.Round(10*time.Millisecond))
	}
	if len(r.Switches) > 0 {
		r.switches(row)
	}
	acks, reconnects, failed := 0, 0, 0
	for _, s := range r.Rollings {
		acks, reconnects, failed = acks+s.Acks, reconnects+s.Reconnects, failed+len(s.Failed)
	}
	if len(r.Rollings) > 0 {
		row("rolling restarts", len(r.Rollings), "%d writes, %d reconnects, %d failed transactions", acks, reconnects, failed)
	}
	for _, p := range r.Problems() {
		fmt.Fprintln(t, "PROBLEM\t\t"+p)
	}
}

func (r *Report) switches(row func(string, int, string, ...any)) {
	errors, acks := 0, 0
	var paused, beyond []time.Duration
	for _, s := range r.Switches {
		errors, acks = errors+len(s.Errors), acks+s.Acks
		paused, beyond = append(paused, s.Paused), append(beyond, s.Paused-s.Switched)
	}
	slices.Sort(paused)
	slices.Sort(beyond)
	row("switchovers under load", len(r.Switches), "%d errors of clients, %d writes; no write for p50 %s max %s; longer than the switch itself by p50 %s max %s", errors, acks,
		quantile(paused, 0.5), quantile(paused, 1), quantile(beyond, 0.5), quantile(beyond, 1))
}
