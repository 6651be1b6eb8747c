package main

import (
	"math"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value interval
		want  outcome
	}{
		{"at the aim", interval{Median: 1.0, Low: 0.8, High: 1.3, N: 5}, met},
		{"above the aim, some of it below the limit", interval{Median: 1.3, Low: 1.1, High: 1.5, N: 5}, between},
		{"all of it above the limit", interval{Median: 1.3, Low: 1.11, High: 1.5, N: 5}, missed},
		{"no value", interval{}, absent},
	} {
		if got := judge("a", "c", "f", tt.value, 1.0, 1.1).Outcome; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// rounds makes the samples of one cell: for each round PgBouncer's and Fencepost's CPU time, tps and p99.
func rounds(c cell, pgb, fence [][3]float64) []sample {
	var out []sample
	for i := range pgb {
		out = append(out,
			sample{cell: c, Arm: armPgBouncer, Round: i, CPU: pgb[i][0], TPS: pgb[i][1], P99: pgb[i][2]},
			sample{cell: c, Arm: armFencepost, Round: i, CPU: fence[i][0], TPS: fence[i][1], P99: fence[i][2]})
	}
	return out
}

// Ratios are taken within a round, so that a round in which everything was slow counts like any other.
func TestRatiosArePairedByRound(t *testing.T) {
	c := cell{Mode: "simple", Clients: 64}
	samples := rounds(c, [][3]float64{{50, 1000, 10}, {500, 100, 100}, {60, 900, 11}},
		[][3]float64{{40, 1000, 10}, {400, 100, 100}, {48, 900, 11}})
	got := summarizeRow(samples, c, armFencepost)
	if near(got.CPURatio.Low, 0.8) && near(got.CPURatio.High, 0.8) && got.CPURatio.N == 3 {
		return
	}
	t.Errorf("CPU ratio %+v, want 0.8 in all three rounds", got.CPURatio)
}

func TestFailedMeasurementsLeaveTheirRoundOut(t *testing.T) {
	c := cell{Mode: "simple", Clients: 64}
	samples := rounds(c, [][3]float64{{50, 1000, 10}, {50, 1000, 10}}, [][3]float64{{40, 1000, 10}, {99, 1, 999}})
	samples[2].Error = "pgbench: no" // PgBouncer's second round
	r := summarizeRow(samples, c, armFencepost)
	if r.CPURatio.N != 1 || !near(r.CPURatio.Median, 0.8) {
		t.Errorf("CPU ratio %+v, want the first round's 0.8 alone", r.CPURatio)
	}
	if b := summarizeRow(samples, c, armPgBouncer); b.Failed != 1 || b.TPS.N != 1 || b.LastFail == "" {
		t.Errorf("PgBouncer's row %+v, want one failure and one figure", b)
	}
}

func TestBoundsOfEachCell(t *testing.T) {
	for _, tt := range []struct {
		c                cell
		cpu, tps, p99    float64 // Fencepost's, PgBouncer's being 100 each
		wantCPU, wantTPS outcome
		wantP99          outcome
	}{
		{cell{"simple", 16, false}, 100, 100, 100, met, met, met},
		{cell{"simple", 16, false}, 105, 95, 109, between, met, met},
		{cell{"simple", 16, false}, 111, 85, 120, missed, missed, missed},
		{cell{"extended", 64, false}, 89, 130, 90, met, met, met},
		{cell{"extended", 500, false}, 101, 100, 100, missed, met, met},
		{cell{"simple", 8, true}, 130, 100, 100, between, met, met},
		{cell{"simple", 8, true}, 145, 100, 100, missed, met, met},
	} {
		hundred, ours := [3]float64{100, 100, 100}, [3]float64{tt.cpu, tt.tps, tt.p99}
		r := summarizeRow(rounds(tt.c, [][3]float64{hundred, hundred, hundred}, [][3]float64{ours, ours, ours}), tt.c, armFencepost)
		var got []outcome
		for _, v := range r.Verdicts {
			got = append(got, v.Outcome)
		}
		if len(got) != 3 || got[0] != tt.wantCPU || got[1] != tt.wantTPS || got[2] != tt.wantP99 {
			t.Errorf("%s with %v: CPU, tps, p99 %v, want %s %s %s", tt.c, ours, got, tt.wantCPU, tt.wantTPS, tt.wantP99)
		}
	}
	two := summarizeRow(rounds(cell{"simple", 16, false}, [][3]float64{{1, 1, 1}, {1, 1, 1}}, [][3]float64{{9, 9, 9}, {9, 9, 9}}),
		cell{"simple", 16, false}, armFencepost)
	for _, v := range two.Verdicts {
		if v.Outcome != few {
			t.Errorf("after two rounds: %s", v)
		}
	}
	one := cell{Mode: "simple", Clients: 1}
	r := summarizeRow(rounds(one, [][3]float64{{1, 1, 1}}, [][3]float64{{9, 1, 1}}), one, armFencepost)
	if len(r.Verdicts) != 2 {
		t.Errorf("one client has no aim of CPU time: %v", r.Verdicts)
	}
}

func TestResolutionIsTheWorstSelfComparison(t *testing.T) {
	ps := []pair{
		{Arm: armFencepostAA, CPURatio: interval{Median: 1.04, N: 3}},
		{Arm: armPgBouncerAA, CPURatio: interval{Median: 0.93, N: 3}},
		{Arm: armFencepost, CPURatio: interval{Median: 0.5, N: 3}}, // another program
		{Arm: armFencepostAA}, // not measured
	}
	if got := resolution(ps); !near(got, 0.07) {
		t.Errorf("resolution %v, want 0.07", got)
	}
}

func TestLeakVerdict(t *testing.T) {
	before := held{Descriptors: 30, Goroutines: 12, Actors: 20}
	for _, tt := range []struct {
		name  string
		b, a  held
		want  outcome
		label string
	}{
		{name: "equal", b: before, a: before, want: met},
		{name: "one actor left", b: before, a: held{30, 12, 21}, want: missed},
		{name: "one less of one does not pay for one more of another", b: before, a: held{31, 11, 20}, want: missed},
		{name: "the process does not tell its actors", b: held{30, 12, -1}, a: held{30, 12, -1}, want: absent},
	} {
		if got := (leakResult{Before: tt.b, After: tt.a}).verdict().Outcome; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
