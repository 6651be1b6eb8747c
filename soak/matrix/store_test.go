package matrix

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/picture"
	"fencepost/soak/matrix/world"
)

// A run goes on where an earlier one with the same settings ended; cells without a result are played again.
func TestResume(t *testing.T) {
	o := small()
	s := store{filepath.Join(t.TempDir(), "out")}
	r, err := s.load(o.settings(), false)
	if err != nil || len(r.Cells) != 0 {
		t.Fatal(r, err)
	}
	r.put(played().Cells[0])
	r.put(&Cell{Arm: arm.Control, Event: world.KindCrash, Repeat: 1, Error: "no disk"})
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	r, err = s.load(o.settings(), false)
	if err != nil || len(r.Cells) != 2 || !reflect.DeepEqual(r.Cells[0], played().Cells[0]) {
		t.Fatalf("%+v %v", r, err)
	}
	again := &run{o: &o, report: r}
	if todo := again.repeats(arm.Fencepost, world.KindCrash); len(todo) != 0 {
		t.Errorf("played again: %v", todo)
	}
	if todo := again.repeats(arm.Control, world.KindCrash); !reflect.DeepEqual(todo, []int{1}) || again.missing() != 1 {
		t.Errorf("the cell without a result: %v", todo)
	}
	r.put(played().Cells[1])
	if len(r.Cells) != 2 || r.Cells[1].Error != "" {
		t.Errorf("the new cell is not in the place of the old one: %+v", r.Cells)
	}
}

func TestOtherSettings(t *testing.T) {
	o := small()
	s := store{t.TempDir()}
	if err := s.save(played()); err != nil {
		t.Fatal(err)
	}
	o.Synchronous = false
	if _, err := s.load(o.settings(), false); !errors.Is(err, errOtherSettings) {
		t.Error(err)
	}
	if r, err := s.load(o.settings(), true); err != nil || len(r.Cells) != 0 {
		t.Error("anew:", r, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, reportFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.load(o.settings(), false); err == nil || !strings.Contains(err.Error(), reportFile) {
		t.Error(err)
	}
}

func TestHistoryIsKept(t *testing.T) {
	s := store{t.TempDir()}
	c := played().Cells[0]
	if h, err := s.loadHistory(c); h != nil || err != nil {
		t.Error(h, err)
	}
	row := &picture.Row{Title: "t", Clients: 2, Zero: time.Second, End: 3 * time.Second, Tries: []picture.Try{{Client: 1, From: 1, To: 2, Outcome: picture.Wrong}},
		Marks: []picture.Mark{{At: 5, Text: "x"}}, NoWriter: []picture.Span{{From: 1, To: 2}}}
	if err := s.saveHistory(c, row); err != nil {
		t.Fatal(err)
	}
	if h, err := s.loadHistory(c); err != nil || !reflect.DeepEqual(h, row) {
		t.Errorf("%+v %v", h, err)
	}
}

func TestOptions(t *testing.T) {
	if o := DefaultOptions(); o.check() != nil || o.warm() != 0 || o.pool() != 20 || o.repeats(arm.Control) != 5 || o.repeats(arm.Direct) != 2 {
		t.Errorf("%+v %v", o, o.check())
	}
	o := DefaultOptions()
	o.Mode, o.Others = Session, 0
	if o.warm() != 60 || o.pool() != 60 || o.repeats(arm.Direct) != 5 {
		t.Errorf("session mode: %d %d %d", o.warm(), o.pool(), o.repeats(arm.Direct))
	}
	if o.limit(world.KindSlow) != time.Minute || o.limit(world.KindCrash) != 10*time.Second {
		t.Error("limits")
	}
	for name, change := range map[string]func(*Options){
		"no event": func(o *Options) { o.Events = []string{"earthquake"} }, "no arm": func(o *Options) { o.Arms = []string{"third"} },
		"mode": func(o *Options) { o.Mode = "statement" }, "clients": func(o *Options) { o.Clients = 0 }, "PostgreSQL": func(o *Options) { o.PostgreSQL = "9.6" },
		"nothing to do": func(o *Options) { o.Arms = nil }, "per event": func(o *Options) { o.PerEvent = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
