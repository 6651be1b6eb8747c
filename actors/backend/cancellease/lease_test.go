package cancellease

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Scripts: one event a line, an optional "+5s" first lets time pass. After each line: the effects, then the state.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var m Machine
			now := start
			var out strings.Builder
			for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				f := strings.Fields(line)
				if strings.HasPrefix(f[0], "+") {
					step, err := time.ParseDuration(f[0][1:])
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					now, f = now.Add(step), f[1:]
				}
				fmt.Fprintf(&out, "%s\n", strings.Join(f, " "))
				for _, e := range m.Step(now, parse(t, d, f)) {
					fmt.Fprintf(&out, "  %s\n", e)
				}
				fmt.Fprintf(&out, "  | in flight %d, handed on: %t\n", m.InFlight(), m.MayBeHandedOn())
			}
			return out.String()
		})
	})
}

func parse(t *testing.T, d *datadriven.TestData, f []string) Event {
	var id, holder uint64
	for _, a := range f[1:] {
		fmt.Sscanf(a, "id=%d", &id)
		fmt.Sscanf(a, "holder=%d", &holder)
	}
	has := func(w string) bool { return strings.Contains(strings.Join(f, " "), " "+w) }
	switch f[0] {
	case "take":
		return Take{ID: id, Holder: holder}
	case "closed":
		return Closed{ID: id}
	case "failed":
		return Failed{ID: id, Sent: has("sent"), Timeout: has("timeout")}
	case "held":
		return Held{Holder: holder}
	case "left":
		return Left{}
	}
	d.Fatalf(t, "unknown event %q", f[0])
	return nil
}

// A backend that is handed on only when MayBeHandedOn has no cancel in flight at that moment, none that may still arrive
// (uncertain or timed out), and every lease ends exactly once.
func TestNoCancelFollowsToTheNextHolder(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var m Machine
		now := start
		open := map[uint64]uint64{} // lease -> holder it was taken for
		var holder, next, id uint64
		mayArrive := false
		for step := range 200 {
			now = now.Add(time.Duration(r.IntN(50)) * time.Millisecond)
			var effects []Effect
			switch r.IntN(5) {
			case 0:
				if holder == 0 && m.MayBeHandedOn() {
					if len(open) > 0 || mayArrive {
						t.Fatalf("seed %d step %d: handed on with %v open", seed, step, open)
					}
					next++
					holder = next
					effects = m.Step(now, Held{holder})
				}
			case 1:
				if holder != 0 {
					holder = 0
					effects = m.Step(now, Left{})
				}
			case 2:
				id++
				want := max(next, 1)
				if r.IntN(3) == 0 {
					want = uint64(r.IntN(int(next) + 1))
				}
				effects = m.Step(now, Take{ID: id, Holder: want})
				sent := len(effects) == 1 && effects[0].Kind == Send
				if sent && want != holder {
					t.Fatalf("seed %d: sent for holder %d while %d holds", seed, want, holder)
				}
				if sent {
					open[id] = want
				}
			default:
				for l := range open {
					e := Event(Closed{l})
					if r.IntN(4) == 0 {
						f := Failed{ID: l, Sent: r.IntN(2) == 0, Timeout: r.IntN(2) == 0}
						mayArrive = mayArrive || f.Sent
						e = f
					}
					delete(open, l)
					effects = m.Step(now, e)
					break
				}
			}
			for _, e := range effects {
				if e.Kind == Bug {
					t.Fatalf("seed %d step %d: bug effect", seed, step)
				}
			}
			if m.InFlight() != len(open) {
				t.Fatalf("seed %d step %d: %d in flight, want %d", seed, step, m.InFlight(), len(open))
			}
			if m.Spoiled() != mayArrive {
				t.Fatalf("seed %d step %d: spoiled %t, want %t", seed, step, m.Spoiled(), mayArrive)
			}
		}
	}
}

func TestImpossibleEventsFailClosed(t *testing.T) {
	var m Machine
	m.Step(start, Held{1})
	m.Step(start, Take{ID: 1, Holder: 1})
	m.Step(start, Left{})
	if got := m.Step(start, Held{2}); len(got) != 1 || got[0].Kind != Bug {
		t.Fatalf("handed on with a cancel in flight: %v", got)
	}
	m.Step(start, Closed{1})
	m.Step(start, Left{})
	if m.MayBeHandedOn() {
		t.Error("handed on again after that")
	}
	if got := m.Step(start, Closed{7}); len(got) != 1 || got[0].Kind != Bug {
		t.Errorf("unknown lease: %v", got)
	}
}
