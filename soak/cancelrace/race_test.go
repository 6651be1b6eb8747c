package cancelrace

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/internal/relay"
)

// short is a run of some seconds.
func short(t *testing.T) Options {
	o := DefaultOptions()
	o.Out, o.OutDir = &bytes.Buffer{}, ""
	o.Pools, o.Delays, o.Late = []int{1}, []time.Duration{0}, false
	o.PerCell, o.Total, o.CellLimit, o.Progress = 100, 0, 30*time.Second, time.Second
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(o.Out)
		}
	})
	return o
}

// Promise P3, in short: no cancel hits a statement it was not meant for, none is without effect. The long run is
// make soak-cancel.
func TestNoCancelHitsAnother(t *testing.T) {
	t.Parallel()
	o := short(t)
	o.Pools, o.Delays, o.Late = []int{1, 2, 10}, []time.Duration{0, 5 * time.Millisecond}, true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems() {
		t.Error(p)
	}
	if len(r.Cells) != 7 || r.Sent < int64(7*o.PerCell) {
		t.Errorf("%d cells, %d cancels", len(r.Cells), r.Sent)
	}
}

// The same with a pool that is spread over two event loops.
func TestNoCancelHitsAnotherOnTwoLoops(t *testing.T) {
	t.Parallel()
	o := short(t)
	o.Pools, o.Loops = []int{10}, 2
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems() {
		t.Error(p)
	}
}

// The control: without leases the same clients see foreign hits.
func TestTheControlIsCaught(t *testing.T) {
	t.Parallel()
	o := short(t)
	o.Control = true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Problems(); len(p) > 0 || r.Foreign == 0 {
		t.Errorf("%d foreign hits in %d cancels: %q", r.Foreign, r.Sent, p)
	}
}

// A run that is interrupted stops in order, reports what there is and says so.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := short(t)
	o.PerCell, o.OutDir = 1_000_000, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &until{word: "cancels sent,", then: cancel}
	o.Out, o.Progress = out, 100*time.Millisecond
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || len(r.Cells) != 1 || !slices.Contains(r.Problems(), "interrupted") || len(r.Cells[0].Faults) > 0 {
		t.Errorf("%+v, %q", r, r.Problems())
	}
	b, err := os.ReadFile(filepath.Join(o.OutDir, "cancel-fencepost.json"))
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(b, &again); err != nil || !again.Interrupted || again.Sent != r.Sent {
		t.Errorf("%v in %s", err, b)
	}
}

// until calls then when word has been written.
type until struct {
	bytes.Buffer
	word string
	then func()
}

func (u *until) Write(p []byte) (int, error) {
	if strings.Contains(string(p), u.word) {
		u.then()
	}
	return u.Buffer.Write(p)
}

// What must be zero makes a run fail, and what a long link excuses does not.
func TestProblems(t *testing.T) {
	good := func() *Report {
		return &Report{Arm: fencepost, Total: 20, Sent: 20, Cells: []*Cell{{Pool: 1, DelayMS: 50, Target: 10, Sent: 10, Judged: 1}, {Pool: 2, Target: 10, Sent: 10, Judged: 1}}}
	}
	for _, c := range []struct {
		name   string
		change func(*Report)
		want   string // in the only problem; "" for none
	}{
		{"nothing", func(*Report) {}, ""},
		{"foreign hit", func(r *Report) { r.Cells[1].Foreign = 1 }, "1 foreign hits"},
		{"missed", func(r *Report) { r.Cells[0].Missed = 2 }, "2 cancels without effect"},
		{"fault", func(r *Report) { r.Cells[0].Faults = []string{"x"} }, "x"},
		{"short", func(r *Report) { r.Cells[1].Short = true }, "only 10 of 10"},
		{"short with an excuse", func(r *Report) { r.Cells[0].Short = true }, ""},
		{"nothing judged", func(r *Report) { r.Cells[0].Judged = 0 }, "no statement had to be"},
		{"total", func(r *Report) { r.Total = 21 }, "20 cancels in all, wanted 21"},
		{"control that is caught", func(r *Report) { r.Arm, r.Cells[0].Foreign, r.Cells[1].Foreign = control, 1, 1 }, ""},
		{"control that is not", func(r *Report) { r.Arm, r.Cells[0].Foreign = control, 1 }, "pool 2, 0s: no foreign hit"},
	} {
		r := good()
		c.change(r)
		p := r.Problems()
		if c.want == "" && len(p) > 0 || c.want != "" && (len(p) != 1 || !strings.Contains(p[0], c.want)) {
			t.Errorf("%s: %q", c.name, p)
		}
	}
}

func TestOptions(t *testing.T) {
	o := DefaultOptions()
	if err := o.check(); err != nil {
		t.Error(err)
	}
	o.Pools, o.PerCell = []int{0}, 0
	err := o.check()
	if err == nil || !strings.Contains(err.Error(), "pool 0") || !strings.Contains(err.Error(), "per cell 0") {
		t.Error(err)
	}
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("run with them")
	}
}

// The quick cells come last, to make up for the slow ones.
func TestCells(t *testing.T) {
	o := DefaultOptions()
	all := o.cells()
	if len(all) != 10 || !all[0].late || all[1].delay != 50*time.Millisecond || all[9] != (setting{pool: 10}) {
		t.Errorf("%v", all)
	}
}

// Half of the cancels of a cell are not slower than anything else, no more than a twentieth is reset in a late one.
func TestTreatments(t *testing.T) {
	const n = 4000
	count := func(s setting) (slow, late, odd int) {
		treat := treatments(s, 1)
		for range n {
			switch got := treat(); {
			case got.Fate != relay.Pass:
				odd++
			case got.Wait > s.extra():
				late++
			case got.Wait > 0:
				slow++
			}
		}
		return slow, late, odd
	}
	slow, late, odd := count(setting{pool: 1, delay: time.Millisecond})
	if slow < n*4/10 || slow > n*6/10 || late > 0 || odd > 0 {
		t.Errorf("%d slow, %d late, %d odd of %d", slow, late, odd, n)
	}
	if slow, late, odd = count(setting{pool: 1, late: true}); late < n/20 || odd < n/10 {
		t.Errorf("%d slow, %d late, %d odd of %d", slow, late, odd, n)
	}
}

// A statement's 57014 is its own client's cancel, a late one of the same client, or foreign.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name         string
		open         int  // requests under way from before
		sent         bool // one of this round was sent
		code         string
		runs         time.Duration // since it has started
		hit, foreign int64
		late, missed int64
	}{
		{name: "own", sent: true, code: queryCanceled, hit: 1},
		{name: "older", open: 1, code: queryCanceled, late: 1},
		{name: "foreign", code: queryCanceled, foreign: 1},
		{name: "without effect", sent: true, runs: time.Second, missed: 1},
		{name: "too late to ask", sent: true, runs: 50 * time.Millisecond},
	} {
		k := &canceller{c: &cell{}}
		for range c.open {
			k.open = append(k.open, &request{ended: make(chan struct{})})
		}
		q := &request{round: 1, ended: make(chan struct{})}
		now := time.Now()
		if c.sent {
			q.sent.Store(now.UnixNano())
		}
		k.open = append(k.open, q)
		k.judge(plan{kind: long, runs: c.runs}, outcome{started: true, start: now, code: c.code, at: now}, c.open)
		got := [4]int64{k.c.hit.Load(), k.c.foreign.Load(), k.c.late.Load(), k.c.missed.Load()}
		if want := [4]int64{c.hit, c.foreign, c.late, c.missed}; got != want {
			t.Errorf("%s: hit, foreign, late, missed are %v, want %v", c.name, got, want)
		}
	}
}
