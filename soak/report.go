package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the outcome of a run, as it is written to soak.json.
type Report struct {
	Seed       uint64  `json:"seed"`
	PostgreSQL string  `json:"postgresql"`
	Seconds    float64 `json:"seconds"`
	Clients    int     `json:"clients"`
	Loops      int     `json:"event_loops"`
	Race       bool    `json:"race_detector"`

	Activities  int             `json:"activities"`
	Connections int64           `json:"connections"`
	Logins      int64           `json:"logins"`
	Queries     int64           `json:"queries"` // ReadyForQuery that clients got
	ReadBytes   int64           `json:"read_bytes"`
	Written     int64           `json:"written_bytes"`
	Terminated  int64           `json:"backends_terminated"`
	Restarts    int64           `json:"postgresql_restarts"`
	Acts        map[string]*act `json:"by_activity"`
	Sabotage    map[string]int  `json:"sabotage"`

	Errors     map[string]*seen `json:"errors_that_may_happen"`
	Log        map[string]int   `json:"log_messages"`
	Present    int              `json:"transactions_committed"`
	Absent     int              `json:"transactions_not_committed"`
	Unknown    int              `json:"transactions_unknown"`
	Resolved   int              `json:"transactions_unknown_found_committed"`
	Before     sample           `json:"before"`
	After      sample           `json:"after"`
	Memory     []memoryResult   `json:"memory"`
	CPUPerAct  float64          `json:"cpu_us_per_query"`
	Foreign    int              `json:"foreign_answers"`
	Violations int              `json:"violations"`
	ByKind     map[kind]int     `json:"violations_by_kind"`
	Details    []violation      `json:"violation_details"`
	Samples    []sample         `json:"samples"`
}

// mostSamples is how many samples go into the report: of a longer run every nth.
const mostSamples = 600

func (r *run) report() *Report {
	rep := &Report{
		Seed: r.opts.Seed, PostgreSQL: cmp.Or(r.opts.PostgreSQL, "default"), Seconds: r.loadEnd, Clients: r.opts.Clients, Loops: r.opts.Loops, Race: r.opts.Race,
		Connections: r.meter.Dials.Load(), Logins: r.meter.Logins.Load(), Queries: r.meter.Ready.Load(), ReadBytes: r.meter.Read.Load(),
		Written: r.meter.Written.Load(), Terminated: r.causes.terminated.Load(), Restarts: r.causes.restarts.Load(),
		Log: r.log.messages(), Resolved: r.committed, Before: r.base, After: r.settled, Memory: r.memories, Foreign: r.foreign(), Violations: r.count(),
	}
	rep.Absent, rep.Unknown, rep.Present = r.book.Count()
	if r.watch != nil {
		all := r.watch.all()
		step := len(all)/mostSamples + 1
		for i := 0; i < len(all); i += step {
			rep.Samples = append(rep.Samples, all[i])
		}
	}
	if r.sab != nil {
		rep.Sabotage = r.sab.done
	}
	if n := r.settled.Queries - r.base.Queries; n > 0 {
		rep.CPUPerAct = (r.settled.CPU - r.base.CPU) / float64(n) * 1e6
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rep.Acts, rep.Errors, rep.ByKind, rep.Details = r.acts, r.codes, maps.Clone(r.tally.counts), r.violations
	for _, a := range r.acts {
		rep.Activities += a.Done
	}
	return rep
}

// write prints the table and writes soak.json and, after a failure, Fencepost's log.
func (r *run) write(rep *Report) error {
	r.say("%s", rep.Table())
	if r.opts.OutDir == "" {
		return nil
	}
	if err := os.MkdirAll(r.opts.OutDir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.opts.OutDir, "soak.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	if rep.Violations == 0 {
		return nil
	}
	r.say("the log of fencepost: %s; warnings and errors: %s", strings.TrimPrefix(r.attach("log", r.log.tail()), "see "),
		strings.TrimPrefix(r.attach("warnings", r.log.warnings()), "see "))
	return nil
}

// Table is the report for people.
func (rep *Report) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "activity\tdone\tdisturbed\tmean ms\tlongest ms\t")
	for _, name := range slices.Sorted(maps.Keys(rep.Acts)) {
		a := rep.Acts[name]
		mean := 0.0
		if a.Done > 0 {
			mean = float64(a.Total.Microseconds()) / float64(a.Done) / 1000
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.0f\t\n", name, a.Done, a.Disturbed, mean, float64(a.Longest.Microseconds())/1000)
	}
	w.Flush() //nolint:errcheck // of a strings.Builder
	fmt.Fprintln(&b)
	rep.counted(&b)
	rep.verdict(&b)
	return b.String()
}

func (rep *Report) counted(b *strings.Builder) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-28s "+format+"\n", append([]any{name}, args...)...)
	}
	line("load", "%.0f s, %d clients, %d loops, PostgreSQL %s, seed %d", rep.Seconds, rep.Clients, rep.Loops, rep.PostgreSQL, rep.Seed)
	line("activities", "%d (%.0f/s)", rep.Activities, float64(rep.Activities)/max(rep.Seconds, 1))
	line("connections", "%d, %d of them logged in", rep.Connections, rep.Logins)
	line("queries answered", "%d, %s read, %s written, %.0f us of Fencepost's CPU each", rep.Queries, mib(rep.ReadBytes), mib(rep.Written), rep.CPUPerAct)
	line("transactions", "%d committed, %d not, %d unknown (%d of them found committed)", rep.Present, rep.Absent, rep.Unknown, rep.Resolved)
	line("backends terminated", "%d, PostgreSQL restarted %d times", rep.Terminated, rep.Restarts)
	for _, name := range slices.Sorted(maps.Keys(rep.Sabotage)) {
		line("  "+name, "%d", rep.Sabotage[name])
	}
	for _, code := range slices.Sorted(maps.Keys(rep.Errors)) {
		line("error "+code, "%d (%s)", rep.Errors[code].Count, short(rep.Errors[code].Text, 110))
	}
	for _, text := range slices.Sorted(maps.Keys(rep.Log)) {
		line("logged", "%d × %s", rep.Log[text], short(text, 140))
	}
	line("at rest before, after", "descriptors %d, %d; actors %d, %d; goroutines %d, %d; resident %s, %s", rep.Before.FDs, rep.After.FDs,
		rep.Before.Actors, rep.After.Actors, rep.Before.Goroutines, rep.After.Goroutines, mib(rep.Before.RSS), mib(rep.After.RSS))
	for _, m := range rep.Memory {
		line("memory, begin and end", "%s", m)
	}
}

func (rep *Report) verdict(b *strings.Builder) {
	fmt.Fprintf(b, "%-28s %d\n", "foreign answers", rep.Foreign)
	fmt.Fprintf(b, "%-28s %d\n", "violations", rep.Violations)
	for _, k := range slices.Sorted(maps.Keys(rep.ByKind)) {
		fmt.Fprintf(b, "  %-26s %d\n", k, rep.ByKind[k])
	}
	for _, v := range rep.Details {
		fmt.Fprintf(b, "%.1f s %s: %s\n", v.At, v.Kind, v.Text)
	}
}

// progress prints a line now and then.
func (r *run) progress(ctx context.Context) {
	last := time.Now()
	for sleep(ctx, r.opts.Progress) {
		now := time.Now()
		s := r.watch.last()
		r.say("%5.0f s  %4.0f activities/s, %d connections, %d server connections; errors: %s; terminated %d, restarts %d; %s resident, %s heap, %d goroutines, %d actors, %d descriptors; foreign %d, violations %d",
			now.Sub(r.began).Seconds(), float64(r.recent())/now.Sub(last).Seconds(), r.meter.Open.Load(), s.Servers, r.counted(),
			r.causes.terminated.Load(), r.causes.restarts.Load(), mib(s.RSS), mib(s.Heap), s.Goroutines, s.Actors, s.FDs, r.foreign(), r.count())
		last = now
	}
}
