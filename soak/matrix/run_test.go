package matrix

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/world"
)

// TestRun plays two cells on real servers and looks at what is left of them.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	o := DefaultOptions()
	o.Events, o.Arms, o.PerEvent, o.Short = []string{world.KindSwitchover}, []string{arm.Fencepost, arm.Direct}, 1, true
	o.Clients, o.Before, o.After, o.OutDir, o.Out = 6, 500*time.Millisecond, time.Second, t.TempDir(), &out
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, p := range r.Problems(&o) {
		if !strings.Contains(p, "polled only") { // tests of other packages run at the same time
			t.Errorf("%s\n%s", p, out.String())
		}
	}
	for _, c := range r.Cells {
		res := c.Result
		if res == nil || res.Writes < 20 || !res.HasNew || len(res.Unavailable) != o.Clients || res.NoWriter <= 0 || c.Old == c.New || len(c.Steps) < 3 {
			t.Errorf("%s: %+v %+v", c.name(), c, res)
		}
	}
	if c := r.Cells[0]; c.Arm != arm.Fencepost || c.Elections == 0 {
		t.Errorf("Fencepost's console told of no election: %+v", c)
	}
	svg, err := os.ReadFile(filepath.Join(o.OutDir, "switchover.svg"))
	if err != nil || strings.Count(string(svg), "takes writes") != 2 {
		t.Errorf("picture: %v\n%s", err, svg)
	}
	before := out.Len()
	if again, err := Run(ctx, o); err != nil || len(again.Cells) != 2 || strings.Contains(out.String()[before:], "[1/") {
		t.Errorf("played again: %v\n%s", err, out.String()[before:])
	}
}
