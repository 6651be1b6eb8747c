package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// markdown is the report for people.
func (r *report) markdown() string {
	var b strings.Builder
	r.heading(&b)
	r.mainTable(&b)
	r.pairTable(&b)
	r.countTable(&b)
	r.memoryTable(&b)
	if len(r.Verdicts) > 0 {
		b.WriteString("\n## Against the aims\n\n")
		for _, v := range r.Verdicts {
			fmt.Fprintf(&b, "- %s\n", v)
		}
	}
	return b.String()
}

func (r *report) heading(b *strings.Builder) {
	fmt.Fprintf(b, "\n# Benchmark of %s\n\n", r.Started.UTC().Format("2006-01-02 15:04 UTC"))
	m := r.Machine
	fmt.Fprintf(b, "- machine: %d CPUs, %s, Linux %s; before the run load %s, %.0f %% busy\n", m.CPUs, m.Model, m.Kernel, m.Load, m.Busy*100)
	for _, k := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(b, "- %s: %s\n", k, r.Versions[k])
	}
	fmt.Fprintf(b, "- %d rounds of %d s, pool of %d, pgbench -S scale %d with %d thread(s)%s\n", r.opts.rounds, r.opts.seconds,
		r.opts.pool, r.opts.scale, r.opts.threads, map[bool]string{true: ", poolers under SCHED_FIFO"}[r.opts.fifo])
	if n := r.opts.measurements(); len(r.Samples) < n {
		fmt.Fprintf(b, "- **cut short: %d of %d measurements**\n", len(r.Samples), n)
	}
	var steal float64
	for _, s := range r.Samples {
		steal = max(steal, s.Steal)
	}
	fmt.Fprintf(b, "- CPU time that the hypervisor took away, worst measurement: %.1f %%\n", steal*100)
}

func (r *report) mainTable(b *strings.Builder) {
	if len(r.Rows) == 0 {
		return
	}
	how := "smallest to largest"
	if r.opts.rounds >= bootstrapFrom {
		how = "95 % bootstrap interval"
	}
	fmt.Fprintf(b, "\nMedians over the rounds, in parentheses: %s. Ratios are to PgBouncer in the same round. "+
		"CPU time is the pooler process's; of a -C row it is for a connection and its one transaction.\n\n", how)
	b.WriteString("| load | arm | tps | p50 ms | p99 ms | CPU us/tx | user us | csw/tx | CPU ratio | tps ratio | p99 ratio | CPU, tps, p99 |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		var outcomes []string
		for _, v := range row.Verdicts {
			outcomes = append(outcomes, string(v.Outcome))
		}
		if row.Failed > 0 {
			outcomes = append(outcomes, fmt.Sprintf("%d of %d failed: %s", row.Failed, row.Failed+row.TPS.N, oneLine(row.LastFail)))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", row.cell, row.Arm,
			row.TPS.plain(0), row.P50.plain(2), row.P99.plain(2), row.CPU.full(1), row.User.plain(1), row.Switches.plain(2),
			row.CPURatio.full(2), row.TPSRatio.full(2), row.P99Ratio.full(2), strings.Join(outcomes, ", "))
	}
}

func (r *report) pairTable(b *strings.Builder) {
	if len(r.Pairs) == 0 {
		return
	}
	b.WriteString("\n## Pairs\n\n")
	if r.Resolution > 0 {
		fmt.Fprintf(b, "The same program twice differs by up to %.0f %% of its CPU time in this run (medians); less than that says nothing.\n\n", r.Resolution*100)
	}
	b.WriteString("| load | arm | over | CPU ratio | tps ratio | p99 ratio |\n|---|---|---|---|---|---|\n")
	for _, p := range r.Pairs {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", p.cell, p.Arm, p.Base, p.CPURatio.full(2), p.TPSRatio.full(2), p.P99Ratio.full(2))
	}
}

func (r *report) countTable(b *strings.Builder) {
	if len(r.Counts) == 0 {
		return
	}
	b.WriteString("\n## Per transaction in steady state\n\n| load | arm | syscalls | which | allocations | |\n|---|---|---|---|---|---|\n")
	for _, c := range r.Counts {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", c.cell, c.Arm, count(c.Syscalls, 1), c.composition(), count(c.Allocations, 3), oneLine(c.Why))
	}
}

func (r *report) memoryTable(b *strings.Builder) {
	if len(r.Memory) > 0 {
		b.WriteString("\n## Idle clients\n\n| arm | clients | resident before, KiB | with them, KiB | KiB per client | |\n|---|---|---|---|---|---|\n")
		for _, m := range r.Memory {
			if m.Error != "" {
				fmt.Fprintf(b, "| %s | %d | | | | %s |\n", m.Arm, m.Clients, oneLine(m.Error))
				continue
			}
			fmt.Fprintf(b, "| %s | %d | %d | %d | %.2f | |\n", m.Arm, m.Clients, m.Before/kb, m.With/kb, m.PerClient/kb)
		}
	}
	if len(r.Leaks) > 0 {
		b.WriteString("\n## What clients leave behind\n\n| arm | connections | | descriptors | goroutines | actors | |\n|---|---|---|---|---|---|---|\n")
		for _, l := range r.Leaks {
			fmt.Fprintf(b, "| %s | %d | before | %s | %s |\n", l.Arm, l.Connections, l.Before.columns(), oneLine(l.Error))
			fmt.Fprintf(b, "| | | after | %s | |\n", l.After.columns())
		}
	}
}

func (h held) columns() string {
	return strings.Join([]string{count(float64(h.Descriptors), 0), count(float64(h.Goroutines), 0), count(float64(h.Actors), 0)}, " | ")
}

// oneLine makes an error fit into a cell of a table.
func oneLine(s string) string {
	return strings.NewReplacer("|", "/", "\n", " ").Replace(s)
}

// plain is the median alone, full has the interval beside it; both are empty where nothing was measured.
func (iv interval) plain(digits int) string {
	if iv.N == 0 {
		return ""
	}
	return strconv.FormatFloat(iv.Median, 'f', digits, 64)
}

func (iv interval) full(digits int) string {
	if iv.N == 0 {
		return ""
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	return f(iv.Median) + " (" + f(iv.Low) + "-" + f(iv.High) + ")"
}

// count is a number that may be unknown.
func count(v float64, digits int) string {
	if v < 0 {
		return "n/a"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
