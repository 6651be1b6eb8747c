package matrix

import (
	"slices"
	"strings"
	"testing"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/verdict"
	"fencepost/soak/matrix/world"
)

// small is a run of two cells.
func small() Options {
	o := DefaultOptions()
	o.Events, o.Arms, o.PerEvent, o.Others = []string{world.KindCrash}, []string{arm.Fencepost, arm.Control}, 1, 1
	return o
}

// played is a report on a small run that passed.
func played() *Report {
	o := small()
	return &Report{Settings: o.settings(), Versions: map[string]string{}, Cells: []*Cell{
		{Arm: arm.Fencepost, Event: world.KindCrash, Repeat: 1, Rate: 80, Result: &verdict.Result{Writes: 10, HasNew: true, Unavailable: []float64{4, 1, 3, 2}, Waited: []float64{0, 1, 2, 0}}},
		{Arm: arm.Control, Event: world.KindCrash, Repeat: 1, Rate: 80, Result: &verdict.Result{WrongBinds: 3}},
	}}
}

func TestProblems(t *testing.T) {
	mine := func(change func(*Cell)) func(*Report) { return func(r *Report) { change(r.Cells[0]) } }
	result := func(change func(*verdict.Result)) func(*Report) {
		return mine(func(c *Cell) { change(c.Result) })
	}
	for _, c := range []struct {
		name   string
		change func(*Report)
		want   string // part of the one problem; "" for none
	}{
		{"passed", func(*Report) {}, ""},
		{"wrong bind", result(func(r *verdict.Result) { r.WrongBinds = 1 }), "1 wrong binds"},
		{"wrong by the observer only", result(func(r *verdict.Result) { r.ObserverOnly = 1 }), ""},
		{"25006", result(func(r *verdict.Result) { r.ReadOnlyErrors = 2 }), "2 errors 25006"},
		{"wedged", result(func(r *verdict.Result) { r.Wedged = 1 }), "1 clients wedged"},
		{"astray", result(func(r *verdict.Result) { r.Unbound = 1 }), "1 clients not on the writer"},
		{"never served", result(func(r *verdict.Result) { r.Never = 1 }), "1 clients never served"},
		{"lost", result(func(r *verdict.Result) { r.Lost = 1 }), "1 acknowledged writes lost"},
		{"lost, asynchronous", func(r *Report) { r.Settings.Synchronous, r.Cells[0].Result.Lost = false, 1 }, ""},
		{"doubled", result(func(r *verdict.Result) { r.Doubled = 1 }), "1 writes doubled"},
		{"without COMMIT", result(func(r *verdict.Result) { r.Unasked = 1 }), "1 transactions committed without"},
		{"old primary", result(func(r *verdict.Result) { r.OldAcks = 1 }), ""},
		{"did not wait for a standby", result(func(r *verdict.Result) { r.SyncCancelled, r.SyncCancelledLost = 1, 1 }), ""},
		{"errors", result(func(r *verdict.Result) { r.Errors = map[string]int{"57P01": 4} }), ""},
		{"observer too slow", mine(func(c *Cell) { c.Rate = 39 }), "the observer polled only 39 times"},
		{"not played", func(r *Report) { r.Cells = r.Cells[1:] }, "not played"},
		{"failed to play", mine(func(c *Cell) { c.Result, c.Error = nil, "no disk" }), "no result: no disk"},
		{"control not caught", func(r *Report) { r.Cells[1].Result.WrongBinds = 0 }, "the control shows no wrong binds"},
		{"control wedged", func(r *Report) { r.Cells[1].Result.Wedged = 9 }, ""},
	} {
		r, o := played(), small()
		c.change(r)
		problems := r.Problems(&o)
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.name, problems, c.want)
		}
	}
}

// What an event brings about by its nature is no problem, and a slow primary is not to bring about anything.
func TestProblemsOfEvents(t *testing.T) {
	for _, c := range []struct {
		event string
		cell  Cell
		want  bool
	}{
		{world.KindPromoteCopy, Cell{Result: &verdict.Result{Lost: 5}}, false},
		{world.KindPromoteCopy, Cell{Result: &verdict.Result{WrongBinds: 5}}, true},
		{world.KindSlow, Cell{Result: &verdict.Result{}}, false},
		{world.KindSlow, Cell{Result: &verdict.Result{Errors: map[string]int{"57P03": 1}}}, true},
		{world.KindSlow, Cell{Result: &verdict.Result{}, Elections: 1}, true},
		{world.KindCrash, Cell{Result: &verdict.Result{}, Elections: 2}, false},
	} {
		c.cell.Arm, c.cell.Event, c.cell.Repeat = arm.Fencepost, c.event, 1
		if got := c.cell.suspicious(true); got != c.want {
			t.Errorf("%s, %+v: %v", c.event, c.cell.Result, got)
		}
	}
	o := small()
	o.Events, o.Arms = []string{world.KindSlow, world.KindRestart}, []string{arm.Control}
	r := &Report{Cells: []*Cell{{Arm: arm.Control, Event: world.KindSlow, Repeat: 1, Rate: 80, Result: &verdict.Result{}},
		{Arm: arm.Control, Event: world.KindRestart, Repeat: 1, Rate: 80, Result: &verdict.Result{}}}}
	if problems := r.Problems(&o); len(problems) > 0 {
		t.Errorf("a control that nothing could mislead: %q", problems)
	}
}

func TestSummary(t *testing.T) {
	r := played()
	r.Cells = append(r.Cells, &Cell{Arm: arm.Fencepost, Event: world.KindSwitchover, Repeat: 1, Rate: 50,
		Result: &verdict.Result{Writes: 5, NoWriter: 100, Longest: 7, Errors: map[string]int{"57P01": 2}, Samples: map[string]string{"57P01": "text"}}})
	s := r.sum(arm.Fencepost)
	if s.cells != 2 || s.Writes != 15 || s.rate != 50 || s.measured != 1 || s.NoWriter != 100 || s.Longest != 7 || s.Errors["57P01"] != 2 || s.Samples["57P01"] != "text" {
		t.Errorf("%+v", s)
	}
	if got := []float64{percentile(s.Unavailable, 50), percentile(s.Unavailable, 99), percentile(s.Unavailable, 100)}; !slices.Equal(got, []float64{3, 4, 4}) {
		t.Errorf("percentiles %v", got)
	}
	if s := r.sum(arm.Fencepost, world.KindSwitchover); s.cells != 1 || s.Writes != 5 {
		t.Errorf("of one event: %+v", s)
	}
	var b strings.Builder
	o := small()
	played().Table(&b, &o)
	for _, want := range []string{"fencepost", "control", "crash", "3 ms (median; p99 4 ms, most 4 ms)", "1 ms (median; p99 2 ms, most 2 ms)", "passed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
