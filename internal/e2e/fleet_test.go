package e2e

import (
	"strings"
	"testing"

	"fencepost/soak/fleet"
)

// startFleet starts a fleet that is ended, and whose logs are looked at, when the test ends.
func startFleet(t *testing.T, c fleet.Config) *fleet.Lab {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	c.Program = path
	l, err := fleet.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range l.Members {
				t.Log(m.LogEnd())
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// The old primary is cut off, or frozen, so that one member alone reaches it, while the others have seen its successor: the
// fleet's word stops the writes there. Without a fleet they go on: the run sees it.
func TestFleetSplitBrain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		split fleet.Split
		alone bool
	}{"cut off": {}, "frozen": {split: fleet.Split{Freeze: true}}, "control": {alone: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startFleet(t, fleet.Config{Alone: c.alone, Lines: []string{`query_wait_timeout = "1s"`}})
			r, err := l.SplitBrain(t.Context(), c.split)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r)
			switch {
			case r.Before == 0:
				t.Error("nothing was written before")
			case c.alone && r.Later500 == 0:
				t.Error("the control was not caught: no write was acknowledged by the old primary")
			case c.alone:
				return
			case r.Later500 > 0:
				t.Errorf("%d writes were acknowledged by the old primary", r.Later500)
			}
			t.Logf("the member says: %s\nand shows: %s", r.Says, r.Shows)
			for _, part := range []string{"57P03", "member m", "on timeline 2", "Another member sees", "FORGET main"} {
				if !strings.Contains(r.Says, part) {
					t.Errorf("the member's error does not say %q", part)
				}
			}
			for _, part := range []string{"elected:NULL", "floor:2", "below the shard's floor, 2"} {
				if !strings.Contains(r.Shows, part) {
					t.Errorf("the member's console does not show %q", part)
				}
			}
		})
	}
}
