package grant

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

// script weighs connections by text. Times are milliseconds of one clock. What is set stays until it is set again.
//
//	run                                one line each:
//	  view [floor=N] [system=N] [no-timelines] [static]
//	  mode auto|always|off
//	  doubt none | doubt since=N       doubt rose at N
//	  republished yes|no               the shard has another view by now
//	  stood-still yes|no               this process did not run, and the hosts have not been asked since
//	  weigh CONNECTION...              answered by the worth and the rule that decided
//	  after [elected] [waiting] [retiring] [paused] CONNECTION...   the answer to a fence: what comes next
//	  unanswered for=N [deadline=N] [waiting]                       a fence without an answer, N after it was begun
//
// A CONNECTION is elected unless it says other-host; "unknown" for one whose server was never asked, else what the server said:
// timeline=N (1), system=N (7), recovery, read-only, no-timelines, asked=N (0). void: it was made void since. pooled: another
// pooler is in between. for-this, under-other-view: what the answer was given for, earlier unless it says so.
type script struct {
	view  View
	mode  Mode
	doubt Doubt
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				d.Fatalf(t, "unknown command")
			}
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimRight(line, "\n")
				out.WriteString(line)
				if answer := s.line(t, newWords(t, line)); answer != "" {
					fmt.Fprintf(&out, "\n    %s", answer)
				}
				out.WriteString("\n")
			}
			return out.String()
		})
	})
}

func (s *script) line(t *testing.T, w *words) string {
	defer w.done()
	switch w.verb {
	case "view":
		s.view = View{Static: w.has("static"), Floor: uint32(w.number("floor", 0)), SystemID: uint64(w.number("system", 0)), NoTimelines: w.has("no-timelines")}
	case "mode":
		s.mode = map[bool]Mode{w.has("auto"): Auto, w.has("always"): Always, w.has("off"): Off}[true]
	case "doubt":
		s.doubt.Raised, s.doubt.Since = !w.has("none"), at(w.number("since", 0))
	case "republished":
		s.doubt.Republished = w.has("yes")
		w.has("no")
	case "stood-still":
		s.doubt.StoodStill = w.has("yes")
		w.has("no")
	case "weigh":
		worth, why := Weigh(s.view, s.mode, s.doubt, connection(w))
		return fmt.Sprintf("%s: %s", worth, why)
	case "after":
		f := Fenced{Elected: w.has("elected"), Waiting: w.has("waiting"), Retiring: w.has("retiring"), Paused: w.has("paused")}
		c := connection(w)
		c.Elected = f.Elected
		worth, why := Weigh(s.view, s.mode, s.doubt, c)
		f.Worth = worth
		return fmt.Sprintf("%s (%s: %s)", After(f), worth, why)
	case "unanswered":
		return Unanswered(at(w.number("for", 0)), at(0), at(w.number("deadline", int(Limit/time.Millisecond))), w.has("waiting")).String()
	default:
		t.Fatalf("unknown verb %q", w.verb)
	}
	return ""
}

func connection(w *words) Connection {
	c := Connection{Elected: !w.has("other-host"), Shadowed: w.has("pooled")}
	switch {
	case w.has("for-this"):
		c.Answer = ForThis
	case w.has("under-other-view"):
		c.Answer = UnderOtherView
	}
	if w.has("unknown") {
		return c
	}
	c.Known = &role.Proof{Asked: at(w.number("asked", 0)), Identity: role.Identity{
		Timeline: uint32(w.number("timeline", 1)), SystemID: uint64(w.number("system", 7)),
		InRecovery: w.has("recovery"), ReadOnly: w.has("read-only"), NoTimelines: w.has("no-timelines"),
	}}
	if !w.has("void") {
		c.Proof = c.Known
	}
	return c
}

func at(ms int) time.Time {
	return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// words are a line's; one that nothing asked for is a mistake in the script.
type words struct {
	t    *testing.T
	verb string
	rest map[string]string
}

func newWords(t *testing.T, line string) *words {
	f := strings.Fields(line)
	w := &words{t: t, verb: f[0], rest: map[string]string{}}
	for _, x := range f[1:] {
		key, value, _ := strings.Cut(x, "=")
		w.rest[key] = value
	}
	return w
}

func (w *words) has(key string) bool {
	_, ok := w.rest[key]
	delete(w.rest, key)
	return ok
}

func (w *words) number(key string, without int) int {
	text, ok := w.rest[key]
	delete(w.rest, key)
	if !ok {
		return without
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *words) done() {
	for key := range w.rest {
		w.t.Fatalf("%s: %q is not understood", w.verb, key)
	}
}
