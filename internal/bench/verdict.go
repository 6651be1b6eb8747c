package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is one arm in one cell, over all rounds.
type row struct {
	cell
	Arm      string   `json:"arm"`
	TPS      interval `json:"tps"`
	P50      interval `json:"p50_ms"`
	P99      interval `json:"p99_ms"`
	CPU      interval `json:"cpu_us_per_tx"`
	User     interval `json:"user_us_per_tx"`
	Switches interval `json:"context_switches_per_tx"`
	// Ratios to PgBouncer, each the summary of the ratios within single rounds.
	CPURatio interval `json:"cpu_to_pgbouncer"`
	TPSRatio interval `json:"tps_to_pgbouncer"`
	P99Ratio interval `json:"p99_to_pgbouncer"`
	Failed   int      `json:"failed"` // measurements that gave no figures
	LastFail string   `json:"last_failure,omitempty"`

	Verdicts []verdict `json:"verdicts,omitempty"`
}

// verdict compares a figure with what the project aims at.
type verdict struct {
	Cell    string   `json:"cell,omitempty"`
	Arm     string   `json:"arm"`
	Figure  string   `json:"figure"`
	Value   interval `json:"value"`
	Aim     float64  `json:"aim"`   // met: the median is at most this
	Limit   float64  `json:"limit"` // missed: the whole interval lies above this
	Outcome outcome  `json:"outcome"`
}

type outcome string

const (
	met     outcome = "met"
	between outcome = "between" // above the aim, but not by the whole interval above the limit
	missed  outcome = "missed"
	absent  outcome = "not measured"
	few     outcome = "too few rounds"
)

func (v verdict) String() string {
	if v.Outcome == absent {
		return fmt.Sprintf("%s %s, %s: %s", v.Arm, v.Cell, v.Figure, v.Outcome)
	}
	return fmt.Sprintf("%s %s, %s: %.2f (%.2f-%.2f), aim %.4g, missed above %.4g: %s",
		v.Arm, v.Cell, v.Figure, v.Value.Median, v.Value.Low, v.Value.High, v.Aim, v.Limit, v.Outcome)
}

// judge is for figures of which less is better.
func judge(arm, cell, figure string, value interval, aim, limit float64) verdict {
	v := verdict{Arm: arm, Cell: cell, Figure: figure, Value: value, Aim: aim, Limit: limit}
	switch {
	case value.N == 0:
		v.Outcome = absent
	case value.Median <= aim:
		v.Outcome = met
	case value.Low > limit:
		v.Outcome = missed
	default:
		v.Outcome = between
	}
	return v
}

// The bounds, all but the last two as ratios to PgBouncer. For other client counts there is no aim of CPU time:
// with one client the figure says more about the machine's wake-ups than about the pooler.
var cpuBounds = map[int]struct{ aim, limit float64 }{16: {1.0, 1.1}, 64: {0.9, 1.0}, 500: {0.9, 1.0}}

const (
	churnAim, churnLimit = 1.2, 1.4
	slowdownBound        = 1.1      // of p99, and of PgBouncer's tps over ours
	allocationBound      = 0.05     // per transaction: less than this is the process's housekeeping
	memoryBound          = 2.5 * kb // per idle client
	kb                   = 1024
)

// judged tells the arms that the bounds are for. Two loops are reported only.
func judged(arm string) bool { return slices.Contains([]string{armFencepost, armOther}, arm) }

// summarizeRows makes the table's rows, in the order of cells and arms.
func summarizeRows(samples []sample, cells []cell, arms []string) []row {
	var rows []row
	for _, c := range cells {
		for _, arm := range arms {
			if !measures(arm, c) {
				continue
			}
			rows = append(rows, summarizeRow(samples, c, arm))
		}
	}
	return rows
}

func summarizeRow(samples []sample, c cell, arm string) row {
	r := row{cell: c, Arm: arm}
	for _, s := range samples {
		if s.cell == c && s.Arm == arm && s.Error != "" {
			r.Failed++
			r.LastFail = s.Error
		}
	}
	of := func(f func(sample) float64) interval { return summarize(collect(samples, c, arm, f)) }
	r.TPS, r.P50, r.P99 = of(tpsOf), of(func(s sample) float64 { return s.P50 }), of(p99Of)
	if arm != armDirect {
		r.CPU, r.User = of(cpuOf), of(func(s sample) float64 { return s.User })
		r.Switches = of(func(s sample) float64 { return s.Switches })
		r.CPURatio = summarize(ratios(samples, c, arm, armPgBouncer, cpuOf))
	}
	r.TPSRatio = summarize(ratios(samples, c, arm, armPgBouncer, tpsOf))
	r.P99Ratio = summarize(ratios(samples, c, arm, armPgBouncer, p99Of))
	if judged(arm) {
		r.Verdicts = r.judge(samples)
	}
	return r
}

// fewestRounds is how many rounds it takes to say anything of a ratio: an interval of one or two is no interval.
const fewestRounds = 3

func (r row) judge(samples []sample) []verdict {
	var out []verdict
	if r.Churn {
		out = append(out, judge(r.Arm, r.cell.String(), "CPU per connection", r.CPURatio, churnAim, churnLimit))
	} else if b, ok := cpuBounds[r.Clients]; ok {
		out = append(out, judge(r.Arm, r.cell.String(), "CPU per transaction", r.CPURatio, b.aim, b.limit))
	}
	slower := summarize(ratios(samples, r.cell, armPgBouncer, r.Arm, tpsOf)) // the other way round: less is better
	out = append(out,
		judge(r.Arm, r.cell.String(), "slower by tps", slower, slowdownBound, slowdownBound),
		judge(r.Arm, r.cell.String(), "p99 latency", r.P99Ratio, slowdownBound, slowdownBound))
	for i := range out {
		if n := out[i].Value.N; n > 0 && n < fewestRounds {
			out[i].Outcome = few
		}
	}
	return out
}

func tpsOf(s sample) float64 { return s.TPS }
func p99Of(s sample) float64 { return s.P99 }
func cpuOf(s sample) float64 { return s.CPU }

func collect(samples []sample, c cell, arm string, f func(sample) float64) []float64 {
	var out []float64
	for _, s := range samples {
		if s.cell == c && s.Arm == arm && s.Error == "" {
			out = append(out, f(s))
		}
	}
	return out
}

// ratios of two arms within each round that has figures of both.
func ratios(samples []sample, c cell, arm, base string, f func(sample) float64) []float64 {
	var out []float64
	for _, s := range samples {
		if s.cell != c || s.Arm != arm || s.Error != "" {
			continue
		}
		for _, b := range samples {
			if b.cell == c && b.Arm == base && b.Round == s.Round && b.Error == "" && f(b) > 0 {
				out = append(out, f(s)/f(b))
			}
		}
	}
	return out
}

// pair is a comparison of two arms beside that with PgBouncer.
type pair struct {
	cell
	Arm      string   `json:"arm"`
	Base     string   `json:"base"`
	CPURatio interval `json:"cpu_ratio"`
	TPSRatio interval `json:"tps_ratio"`
	P99Ratio interval `json:"p99_ratio"`
}

// pairs: the same program twice, whose ratio is 1 but for what the run cannot resolve, and this tree against
// another binary.
func pairs(samples []sample, cells []cell, arms []string) []pair {
	var out []pair
	for _, p := range [][2]string{{armFencepostAA, armFencepost}, {armPgBouncerAA, armPgBouncer}, {armFencepost, armOther}, {armLoops2, armFencepost}, {armAuto, armFencepost}, {armAlways, armFencepost}} {
		if !slices.Contains(arms, p[0]) || !slices.Contains(arms, p[1]) {
			continue
		}
		for _, c := range cells {
			out = append(out, pair{cell: c, Arm: p[0], Base: p[1],
				CPURatio: summarize(ratios(samples, c, p[0], p[1], cpuOf)),
				TPSRatio: summarize(ratios(samples, c, p[0], p[1], tpsOf)),
				P99Ratio: summarize(ratios(samples, c, p[0], p[1], p99Of))})
		}
	}
	return out
}

// resolution is the largest distance from 1 that the medians of the A/A pairs reach: a difference of CPU time below
// it means nothing. It is 0 without such a pair.
func resolution(ps []pair) float64 {
	var r float64
	for _, p := range ps {
		if strings.HasSuffix(p.Arm, "-aa") && p.CPURatio.N > 0 {
			r = max(r, p.CPURatio.Median-1, 1-p.CPURatio.Median)
		}
	}
	return r
}
