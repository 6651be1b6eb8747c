package pool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// script drives one machine by text. Backends are called s1, s2 ... in the order in which they were dialled, waiters by
// the name their checkout gave them.
//
//	new min=1 idle=10s lifetime=1h retry=15s concurrency=8 round-robin size=4   a machine, and the time is 0 again
//	run                        one event a line, answered by the effects it had:
//	  +100ms                   time passes (no event)
//	  checkout NAME [LIMIT]    abandon NAME       spoiled SLOT NAME
//	  checkin SLOT clean|dirty|broken             opened SLOT    failed SLOT    cleaned SLOT    lost SLOT
//	  permits N   tick   warm N   pause   resume   reconnect   drain   give-up SHARE   configure key=value...
//	  withdraw NAME...         rejoin NAME        kick   abort   setback              retire SLOT
//	state                      waiters and backends
//
// After every event the invariants are checked.
type script struct {
	m       *Machine
	base    time.Time
	now     time.Time
	cfg     Config
	slots   map[string]*Slot
	names   map[*Slot]string
	waiters map[string]*Waiter
	turn    uint64
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s.start(parseConfig(t, Config{Concurrency: 8}, d.CmdArgs))
				return ""
			case "run":
				var out strings.Builder
				for _, line := range strings.Split(d.Input, "\n") {
					s.line(t, &out, line)
				}
				return out.String()
			case "state":
				return s.state()
			}
			d.Fatalf(t, "unknown command")
			return ""
		})
	})
}

func parseConfig(t *testing.T, cfg Config, args []datadriven.CmdArg) Config {
	t.Helper()
	for _, a := range args {
		number := func() int {
			n, err := strconv.Atoi(a.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		duration := func() time.Duration {
			d, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		switch a.Key {
		case "no-host":
			cfg.NoHost = a.Vals[0] == "yes"
		case "min":
			cfg.MinSize = number()
		case "idle":
			cfg.IdleTimeout = duration()
		case "lifetime":
			cfg.Lifetime = duration()
		case "retry":
			cfg.RetryMax = duration()
		case "concurrency":
			cfg.Concurrency = number()
		case "size":
			cfg.PoolSize = number()
		case "round-robin":
			cfg.RoundRobin = true
		default:
			t.Fatalf("unknown limit %s", a.Key)
		}
	}
	return cfg
}

func (s *script) start(cfg Config) {
	s.base = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	*s = script{m: New(cfg), cfg: cfg, base: s.base, now: s.base,
		slots: map[string]*Slot{}, names: map[*Slot]string{}, waiters: map[string]*Waiter{}}
}

func (s *script) line(t *testing.T, out *strings.Builder, line string) {
	t.Helper()
	f := strings.Fields(line)
	if f[0][0] == '+' {
		d, err := time.ParseDuration(f[0][1:])
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(d)
		fmt.Fprintf(out, "%-26s t=%s\n", line, s.now.Sub(s.base))
		return
	}
	var effects []string
	for _, e := range s.step(t, f) {
		effects = append(effects, s.effect(e))
	}
	if effects == nil {
		effects = []string{"-"}
	}
	fmt.Fprintf(out, "%-26s %s\n", line, strings.Join(effects, ", "))
	if err := s.m.Check(s.now); err != nil {
		fmt.Fprintf(out, "INVARIANT: %v\n", err)
	}
}

func (s *script) step(t *testing.T, f []string) []Effect {
	t.Helper()
	number := func() int {
		n, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	slot := func() *Slot {
		sl := s.slots[f[1]]
		if sl == nil {
			t.Fatalf("no backend %s", f[1])
		}
		return sl
	}
	switch f[0] {
	case "checkout":
		w := s.waiters[f[1]]
		if w == nil {
			w = &Waiter{Owner: f[1]}
			s.waiters[f[1]] = w
		}
		w.Enqueued = s.now
		s.turn++
		w.Turn = s.turn
		if len(f) > 2 {
			d, err := time.ParseDuration(f[2])
			if err != nil {
				t.Fatal(err)
			}
			w.Deadline = s.now.Add(d)
		}
		return s.m.Checkout(s.now, w)
	case "checkin":
		c := map[string]Condition{"clean": Clean, "dirty": Dirty, "broken": Broken}
		return s.m.Checkin(s.now, slot(), c[f[2]])
	case "configure":
		var args []datadriven.CmdArg
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			args = append(args, datadriven.CmdArg{Key: k, Vals: []string{v}})
		}
		s.cfg = parseConfig(t, s.cfg, args)
		return s.m.Step(s.now, Configure{s.cfg})
	case "abandon":
		return s.m.Step(s.now, Abandon{s.waiters[f[1]]})
	case "spoiled":
		return s.m.Step(s.now, Spoiled{slot(), s.waiters[f[2]]})
	case "withdraw": // names
		s.m.Withdraw(func(w *Waiter) bool { return slices.Contains(f[1:], w.Owner.(string)) })
		return nil
	case "rejoin":
		return s.m.Step(s.now, Rejoin{s.waiters[f[1]]})
	case "opened":
		return s.m.Step(s.now, Opened{slot()})
	case "failed":
		return s.m.Step(s.now, DialFailed{slot()})
	case "cleaned":
		return s.m.Step(s.now, Cleaned{slot()})
	case "lost":
		return s.m.Step(s.now, Lost{slot()})
	case "permits":
		return s.m.Step(s.now, Permits{number()})
	case "give-up":
		return s.m.Step(s.now, GiveUp{number()})
	case "retire":
		return s.m.Step(s.now, Retire{slot()})
	case "warm":
		return s.m.Step(s.now, Warm{number()})
	}
	ev := map[string]Event{"tick": Tick{}, "pause": Pause{}, "resume": Resume{}, "reconnect": Reconnect{}, "drain": Drain{}, "kick": Kick{}, "abort": Abort{}, "setback": Setback{}}[f[0]]
	return s.m.Step(s.now, ev)
}

func (s *script) effect(e Effect) string {
	if e.Kind == Dial {
		name := fmt.Sprintf("s%d", len(s.slots)+1)
		s.slots[name], s.names[e.Slot] = e.Slot, name
	}
	text := e.Kind.String()
	if e.N > 0 {
		text += fmt.Sprintf(" %d", e.N)
	}
	if e.Slot != nil {
		text += " " + s.names[e.Slot]
	}
	if e.Waiter != nil {
		text += fmt.Sprintf(" %v", e.Waiter.Owner)
	}
	if e.Why != WhyNone {
		text += fmt.Sprintf(" (%s)", e.Why)
	}
	return text
}

func (s *script) state() string {
	var out strings.Builder
	out.WriteString("waiting:")
	for w := s.m.waiters.first; w != nil; w = w.next {
		fmt.Fprintf(&out, " %v", w.Owner)
	}
	out.WriteString("\n")
	for st := Dialling; st <= Closing; st++ {
		if s.m.Count(st) == 0 {
			continue
		}
		fmt.Fprintf(&out, "%s:", st)
		slots := s.m.slots
		if st == Idle {
			slots = s.m.idle
		}
		for _, sl := range slots {
			if sl.State() == st {
				out.WriteString(" " + s.names[sl])
				if sl.Retiring() {
					out.WriteString("(retiring)")
				}
			}
		}
		out.WriteString("\n")
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"paused", s.m.Paused()}, {"failing", s.m.Failing()}, {"busy", s.m.Busy()}} {
		if f.on {
			out.WriteString(f.name + "\n")
		}
	}
	return out.String()
}
