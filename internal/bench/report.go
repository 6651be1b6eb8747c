package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// report is everything a run found out; its JSON form is out/bench.json.
type report struct {
	Started  time.Time         `json:"started"`
	Finished time.Time         `json:"finished"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Settings map[string]any    `json:"settings"`

	Samples []sample       `json:"samples"`
	Counts  []countResult  `json:"counts"`
	Memory  []memoryResult `json:"memory"`
	Leaks   []leakResult   `json:"leaks"`

	Rows       []row     `json:"rows"`
	Pairs      []pair    `json:"pairs"`
	Resolution float64   `json:"resolution"`
	Verdicts   []verdict `json:"verdicts"`

	opts options
}

// machine says where the run took place, and how idle that was before it.
type machine struct {
	CPUs   int     `json:"cpus"`
	Model  string  `json:"model"`
	Kernel string  `json:"kernel"`
	Load   string  `json:"load_average_before"`
	Busy   float64 `json:"busy_before"` // share of the CPU time that others used in the second before the run
}

func newReport(opts options, begun time.Time) *report {
	r := &report{Started: begun, Versions: map[string]string{"go": runtime.Version()}, opts: opts}
	r.Settings = map[string]any{
		"rounds": opts.rounds, "seconds": opts.seconds, "pool": opts.pool, "scale": opts.scale, "sampling": opts.sampling,
		"pgbench_threads": opts.threads, "arms": opts.arms, "fifo": opts.fifo, "host_role": opts.hostRole,
	}
	r.Machine = machine{CPUs: runtime.NumCPU(), Model: cpuModel()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		r.Machine.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if l, err := proc.LoadAvg(); err == nil {
		r.Machine.Load = fmt.Sprintf("%.2f %.2f %.2f", l.Load1, l.Load5, l.Load15)
	}
	before := readMachineTime()
	time.Sleep(time.Second)
	after := readMachineTime()
	if total := after.total - before.total; total > 0 {
		r.Machine.Busy = (after.busy - before.busy) / total
	}
	if r.Machine.Busy > 0.1 {
		progress("others use %.0f %% of this machine: only ratios within a round mean anything, and those little", r.Machine.Busy*100)
	}
	return r
}

func cpuModel() string {
	if all, _ := proc.CPUInfo(); len(all) > 0 && all[0].ModelName != "" {
		return all[0].ModelName
	}
	return runtime.GOARCH
}

// summarize derives the rows and verdicts from what was measured.
func (r *report) summarize() {
	cells := r.opts.cells()
	if len(r.Samples) > 0 {
		r.Rows = summarizeRows(r.Samples, cells, r.opts.arms)
		r.Pairs = pairs(r.Samples, cells, r.opts.arms)
		r.Resolution = resolution(r.Pairs)
	}
	for _, row := range r.Rows {
		r.Verdicts = append(r.Verdicts, row.Verdicts...)
	}
	for _, c := range r.Counts {
		if judged(c.Arm) {
			r.Verdicts = append(r.Verdicts, judge(c.Arm, c.cell.String(), "allocations per transaction", single(c.Allocations), allocationBound, allocationBound))
		}
	}
	for _, m := range r.Memory {
		if judged(m.Arm) {
			value := single(m.PerClient / kb)
			if m.Error != "" {
				value = interval{}
			}
			r.Verdicts = append(r.Verdicts, judge(m.Arm, fmt.Sprintf("%d idle", m.Clients), "KiB per idle client", value, memoryBound/kb, memoryBound/kb))
		}
	}
	for _, l := range r.Leaks {
		r.Verdicts = append(r.Verdicts, l.verdict())
	}
}

// single is a figure that was taken once; a negative one was not taken.
func single(v float64) interval {
	if v < 0 {
		return interval{}
	}
	return interval{Median: v, Low: v, High: v, N: 1}
}

func (l leakResult) verdict() verdict {
	var left int
	for _, d := range [][2]int{{l.Before.Descriptors, l.After.Descriptors}, {l.Before.Goroutines, l.After.Goroutines}, {l.Before.Actors, l.After.Actors}} {
		left += max(0, d[1]-d[0])
	}
	value := single(float64(left))
	if l.Error != "" || l.Before.Goroutines < 0 || l.Before.Actors < 0 {
		value = interval{} // not counted, or the process does not tell
	}
	return judge(l.Arm, fmt.Sprintf("%d connections", l.Connections), "descriptors, goroutines and actors left", value, 0, 0)
}

func (r *report) missed() int {
	var n int
	for _, v := range r.Verdicts {
		if v.Outcome == missed {
			n++
		}
	}
	return n
}

// write prints the table and leaves it and the JSON in the output folder.
func (r *report) write() error {
	table := r.markdown()
	fmt.Print(table)
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.opts.out, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.opts.out, "bench.json"), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(r.opts.out, "bench.md"), []byte(table), 0o644))
}
