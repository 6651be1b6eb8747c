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
	for _, c := range []struct {
		CancelResult
		when string
	}{{r.Cancels, ""}, {r.Loss.Cancels, " while members lost what they sent"}} {
		note(c.Missed > 0, "%d cancels had no effect%s", c.Missed, c.when)
		note(c.Foreign > 0, "%d statements were hit by a foreign cancel%s", c.Foreign, c.when)
		note(len(c.Errors) > 0, "errors of cancelling clients%s: %v", c.when, c.Errors)
	}
	note(r.Loss.Untold > 0, "%d members had not heard of a new primary, with loss between members", r.Loss.Untold)
	for _, w := range r.OneWays {
		note(w.Split.Later500 > 0, "%d writes were acknowledged by the old primary later than %s after the fleet saw its successor, heard one way (deaf %t, failover after %s)", w.Split.Later500, seenLimit, w.Deaf, w.After.Round(time.Millisecond))
		note(w.Split.Before == 0, "a one-way network in which nothing was written before")
		note(w.Whole > wholeLimit, "the fleet was whole only %s after members were heard one way", w.Whole)
	}
	note(r.Partition.Whole > wholeLimit, "the fleet was whole only %s after a partition", r.Partition.Whole)
	for _, s := range slices.Concat(r.Switches, r.Slows) {
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
	r.lossy(row)
	if p := r.Partition; p.Lasted > 0 {
		row("partition of "+p.Lasted.Round(time.Second).String(), 1, "%s; whole again after %s", p.noticed(), p.Whole.Round(10*time.Millisecond))
	}
	switches(row, "switchovers under load", r.Switches)
	switches(row, "switchovers, servers far away", r.Slows)
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

// printer prints a row of the table.
type printer func(what string, runs int, figures string, args ...any)

func switches(row printer, what string, all []SwitchoverResult) {
	if len(all) == 0 {
		return
	}
	errors, acks := 0, 0
	var paused, beyond []time.Duration
	for _, s := range all {
		errors, acks = errors+len(s.Errors), acks+s.Acks
		paused, beyond = append(paused, s.Paused), append(beyond, s.Paused-s.Switched)
	}
	slices.Sort(paused)
	slices.Sort(beyond)
	row(what, len(all), "%d errors of clients, %d writes; no write for p50 %s max %s; longer than the switch itself by p50 %s max %s", errors, acks,
		quantile(paused, 0.5), quantile(paused, 1), quantile(beyond, 0.5), quantile(beyond, 1))
}

// lossy prints what came of members that do not hear all of each other.
func (r *Report) lossy(row printer) {
	if l := r.Loss; l.Percent > 0 {
		row(fmt.Sprintf("%d %% loss between members", l.Percent), 2*l.Rounds, "all had elected the new primary p50 %s max %s after the first one; those left behind heard of it p50 %s max %s after it was seen, %d did not; %d cancels took effect, after p50 %s p99 %s, %d without effect, %d foreign; %d times a member was taken for dead",
			quantile(l.Knew, 0.5), quantile(l.Knew, 1), quantile(l.Told, 0.5), quantile(l.Told, 1), l.Untold, len(l.Cancels.Took), quantile(l.Cancels.Took, 0.5),
			quantile(l.Cancels.Took, 0.99), l.Cancels.Missed, l.Cancels.Foreign, l.Gone)
	}
	for _, kind := range []struct {
		name string
		deaf bool
	}{{"heard by nobody", false}, {"hears nobody", true}} {
		n, before, later := 0, 0, 0
		var whole, told []time.Duration
		for _, w := range r.OneWays {
			if w.Deaf == kind.deaf {
				n, before, later = n+1, before+w.Split.Before, later+w.Split.Later500
				whole, told = append(whole, w.Whole), append(told, w.Split.Told...)
			}
		}
		if n == 0 {
			continue
		}
		slices.Sort(whole)
		slices.Sort(told)
		row(kind.name, n, "%d writes acknowledged by the old primary later than %s after the fleet saw the new one (%d before), of which those left behind heard after p50 %s max %s; whole again after p50 %s max %s",
			later, seenLimit, before, quantile(told, 0.5), quantile(told, 1), quantile(whole, 0.5), quantile(whole, 1))
	}
}
