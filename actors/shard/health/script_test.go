package health

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

// script drives one machine by text. 10 ms pass before every event; answers were asked for 5 ms before they come unless
// they say otherwise.
//
//	new unhealthy=10s ratio=0.6 min-time=30s     a machine, and the time is 0 again
//	resume HOST                                  one after a restart of the shard's actor
//	run                                          one event a line, answered by the effects it had, one a line:
//	  +100ms                                     time passes (no event)
//	  connect HOST [N times]    lost HOST [CODE] [N times] [opened=1s ago] [at=1s ago]    closed HOST [N times]
//	  connect-failed HOST [CODE]    heard HOST    monitor HOST KIND [asked=1s ago]    answered HOST [in-recovery] [asked=1s ago]
//	  proven HOST [asked=1s ago]    elected [HOST]    notice HOST CODE    source HOST    host-gone HOST
//	  configure key=value...    tick    nonsense
//	state
type script struct {
	m     *Machine
	cfg   Config
	base  time.Time
	now   time.Time
	check *oracle
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "new", "resume":
				s.base = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
				s.now, s.cfg = s.base, Defaults()
				for _, a := range d.CmdArgs {
					if d.Cmd == "new" {
						s.cfg = set(t, s.cfg, a.Key, a.Vals[0])
					}
				}
				s.m, s.check = New(s.now, s.cfg), newOracle(s.now, s.cfg, "")
				if d.Cmd == "resume" {
					var h role.Host
					if len(d.CmdArgs) > 0 {
						h = role.Host(d.CmdArgs[0].Key)
					}
					s.m, s.check = Resume(s.now, s.cfg, h), newOracle(s.now, s.cfg, h)
				}
			case "run":
				for _, line := range strings.Split(d.Input, "\n") {
					s.line(t, &out, line)
				}
			case "state":
				s.state(&out)
			default:
				d.Fatalf(t, "unknown command")
			}
			return out.String()
		})
	})
}

func set(t *testing.T, cfg Config, key, value string) Config {
	t.Helper()
	d, err := time.ParseDuration(value)
	switch key {
	case "unhealthy":
		cfg.UnhealthyAfter = d
	case "min-time":
		cfg.MinTime = d
	case "ratio":
		cfg.DisconnectRatio, err = strconv.ParseFloat(value, 64)
	default:
		t.Fatalf("unknown setting %s", key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
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
		fmt.Fprintf(out, "%s: %v\n", line, s.now.Sub(s.base))
		return
	}
	fmt.Fprintf(out, "%s\n", line)
	s.now = s.now.Add(10 * time.Millisecond)
	ev, times := s.event(t, f)
	for range times {
		effects, err := s.check.feed(s.m, s.now, ev)
		for _, e := range effects {
			fmt.Fprintf(out, "    %s\n", e)
		}
		if err != nil {
			fmt.Fprintf(out, "    INVARIANT: %v\n", err)
		}
	}
}

// words are what a line says beside the name of the event and the host.
type words struct {
	code    string
	flags   map[string]bool
	asked   time.Time
	opened  time.Time
	at      time.Time
	times   int
	pairs   [][2]string
	monitor Monitor
}

func (s *script) words(t *testing.T, f []string) words {
	t.Helper()
	w := words{flags: map[string]bool{}, asked: s.now.Add(-5 * time.Millisecond), times: 1}
	for _, word := range f {
		k, v, pair := strings.Cut(word, "=")
		n, err := strconv.Atoi(word)
		var d time.Duration
		if pair && (k == "asked" || k == "opened" || k == "at") {
			if d, err = time.ParseDuration(v); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case k == "asked":
			w.asked = s.now.Add(-d)
		case k == "opened":
			w.opened = s.now.Add(-d)
		case k == "at":
			w.at = s.now.Add(-d)
		case pair:
			w.pairs = append(w.pairs, [2]string{k, v})
		case len(word) == 5 && word[0] <= '9':
			w.code = word
		case err == nil:
			w.times = n
		case word == "times":
		default:
			w.flags[word] = true
			for i, name := range []string{"up", "lost", "refused", "reset", "unreachable", "starting", "login", "invalid"} {
				if word == name {
					w.monitor = Monitor(i)
				}
			}
		}
	}
	return w
}

func (s *script) event(t *testing.T, f []string) (Event, int) {
	t.Helper()
	var h role.Host
	if len(f) > 1 && f[0] != "configure" {
		h = role.Host(f[1])
	}
	w := s.words(t, f[min(2, len(f)):])
	switch f[0] {
	case "tick":
		return Tick{}, 1
	case "connect":
		return Connected{h}, w.times
	case "lost":
		return Disconnected{Host: h, Code: w.code, Opened: w.opened, At: w.at}, w.times
	case "closed":
		return Disconnected{Host: h, Expected: true, Opened: w.opened}, w.times
	case "connect-failed":
		return ConnectFailed{Host: h, Code: w.code, At: w.at}, 1
	case "heard":
		return Heard{Host: h, At: w.at}, 1
	case "monitor":
		return MonitorState{h, w.monitor, w.asked}, 1
	case "answered":
		return MonitorAnswered{h, w.asked, w.flags["in-recovery"]}, 1
	case "proven":
		return Proven{h, w.asked}, 1
	case "elected":
		return Elected{h}, 1
	case "notice":
		return ShutdownNotice{h, w.code}, 1
	case "source":
		return SourceSaysFailover{h, "the manager says so"}, 1
	case "host-gone":
		return HostGone{h}, 1
	case "configure":
		for _, p := range s.words(t, f[1:]).pairs {
			s.cfg = set(t, s.cfg, p[0], p[1])
		}
		return Configure{s.cfg}, 1
	case "nonsense":
		return nil, 1
	}
	t.Fatalf("unknown event %v", f)
	return nil, 0
}

func (s *script) state(out *strings.Builder) {
	open, total, lost := s.m.Connections()
	fmt.Fprintf(out, "%v since %v: %s\n%q: %d open, %d lost of %d\n", s.m.State(), s.m.Since().Sub(s.base), s.m.Reason(), s.m.Host(), open, lost, total)
	if next := s.m.Next(); !next.IsZero() {
		fmt.Fprintf(out, "next in %v\n", next.Sub(s.now))
	}
}
