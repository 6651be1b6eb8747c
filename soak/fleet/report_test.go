package fleet

import (
	"strings"
	"testing"
	"time"
)

// A report of what went well, each of whose parts can be bad on its own.
func good() *Report {
	return &Report{
		Splits:    []SplitResult{{Before: 1}, {Split: Split{Freeze: true}, Before: 1}, {Alone: true, Before: 1, Later500: 1}},
		Cancels:   CancelResult{Sent: 2, Took: []time.Duration{1, 2}},
		Partition: PartitionResult{Lasted: time.Minute, Whole: wholeLimit},
		Switches:  []SwitchoverResult{{Clients: 1}}, Slows: []SwitchoverResult{{Clients: 1}}, Rollings: []RollingResult{{Clients: 1}},
		Loss:    LossResult{Loss: Loss{Percent: 30, Rounds: 1}},
		OneWays: []OneWayResult{{Split: SplitResult{Before: 1}, Whole: wholeLimit}},
	}
}

func TestProblems(t *testing.T) {
	if p := good().Problems(); len(p) > 0 {
		t.Errorf("a good report has problems: %q", p)
	}
	for what, spoil := range map[string]func(*Report){
		"acknowledged by the old primary later": func(r *Report) { r.Splits[1].Later500 = 1 },
		"split brain in which nothing":          func(r *Report) { r.Splits[0].Before = 0 },
		"controls were not caught":              func(r *Report) { r.Splits[2].Later500 = 0 },
		"2 cancels had no effect":               func(r *Report) { r.Cancels.Missed = 2 },
		"no effect while members lost":          func(r *Report) { r.Loss.Cancels.Missed = 1 },
		"foreign cancel while members lost":     func(r *Report) { r.Loss.Cancels.Foreign = 1 },
		"clients while members lost":            func(r *Report) { r.Loss.Cancels.Errors = []string{"x"} },
		"had not heard of a new primary":        func(r *Report) { r.Loss.Untold = 1 },
		"heard one way":                         func(r *Report) { r.OneWays[0].Split.Later500 = 1 },
		"one-way network in which nothing":      func(r *Report) { r.OneWays[0].Split.Before = 0 },
		"after members were heard one way":      func(r *Report) { r.OneWays[0].Whole++ },
		"whole only 15.000000001s after a part": func(r *Report) { r.Partition.Whole++ },
		"saw an error in a switchover":          func(r *Report) { r.Slows[0].Errors = make([]Failure, 1) },
		"failed in a rolling restart":           func(r *Report) { r.Rollings[0].Failed = make([]Failure, 1) },
	} {
		r := good()
		spoil(r)
		if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0], what) {
			t.Errorf("%q instead of one that says %q", p, what)
		}
	}
	var table strings.Builder
	good().table(&table)
	for _, row := range []string{"split brain, cut off", "control", "cancels at random", "switchovers, servers far away", "30 % loss", "heard by nobody", "partition of 1m0s"} {
		if !strings.Contains(table.String(), row) {
			t.Errorf("no row %q in\n%s", row, table.String())
		}
	}
}

// What a failover does to a session is told from what it may not see.
func TestBroken(t *testing.T) {
	for err, want := range map[error]bool{
		&stateError{"a cancelled statement", "08007", ""}: true,
		&stateError{"before it began", "57P03", "no"}:     true,
		&stateError{"a cancelled statement", "25006", ""}: false,
		nil: false,
	} {
		if got := broken(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
