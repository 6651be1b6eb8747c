package election

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

// script drives one machine by text. 10 ms pass before every event. Observations were asked for 5 ms before they come
// unless they say otherwise, and are of system 7.
//
//	new hosts=(a,b,c:replica,d:any) ttl=3s unhealthy=10s first-wait=1s two-writers=refuse id=7 floor=7/0/2
//	run                          one event a line, answered by the effects it had, one a line:
//	  +100ms                     time passes (no event)
//	  HOST writable TIMELINE | readonly TIMELINE | standby | senseless | aurora   [id=7] [asked=50ms ago] [on=N] [fence|login|gossip] [started=N]
//	  late HOST   lost HOST   closed HOST   refused HOST [after-loss] [CODE]   failed HOST   heard HOST   hint HOST
//	  gone HOST   back HOST   hosts HOST[:ROLE]...   forget [GENERATION [ordered=AGO]]   takeover GENERATION   stood still D   kept AGO   seat [HOST TIMELINE TAG [started=N]]   claim HOST [TIMELINE [system=N] [generation=N]]   configure key=value...   tick
//	  restart [answers-kept]     the machine is made anew from its last view, and what the hosts said of their cluster
//	state                        view, doubt, and what is known about the hosts
//	explain                      what is said to who waits
//
// After every event the invariants are checked.
type script struct {
	m     *Machine
	cfg   Config
	base  time.Time
	now   time.Time
	floor role.Floor
	list  []HostConfig
	check *oracle
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "new":
				s.start(t, d.CmdArgs)
				indent(&out, s.step(Tick{}))
			case "run":
				for _, line := range strings.Split(d.Input, "\n") {
					s.line(t, &out, line)
				}
			case "state":
				s.state(&out)
			case "explain":
				fmt.Fprintf(&out, "%s\nbehind the floor: %t\n", s.m.Explain(s.now), s.m.BehindFloor())
			default:
				d.Fatalf(t, "unknown command")
			}
			return out.String()
		})
	})
}

func (s *script) start(t *testing.T, args []datadriven.CmdArg) {
	s.base = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	s.now, s.cfg, s.floor, s.list = s.base, Defaults(), role.Floor{}, nil
	for _, a := range args {
		switch a.Key {
		case "hosts":
			s.list = hostList(t, a.Vals)
		case "floor":
			s.floor = parseFloor(t, a.Vals[0])
		default:
			s.cfg = set(t, s.cfg, a.Key, a.Vals[0])
		}
	}
	s.m = New(s.now, s.cfg, s.list, s.floor, nil)
	s.check = newOracle(s.now, s.cfg, s.list)
}

func set(t *testing.T, cfg Config, key, value string) Config {
	t.Helper()
	d, err := time.ParseDuration(value)
	switch key {
	case "ttl":
		cfg.TTL = d
	case "unhealthy":
		cfg.UnhealthyAfter = d
	case "first-wait":
		cfg.FirstWait = d
	case "two-writers":
		cfg.TwoWriters, err = map[string]TwoWriters{"sitting": Sitting, "refuse": Refuse}[value], nil
	case "id":
		cfg.SystemID, err = number(t, value), nil
	default:
		t.Fatalf("unknown setting %s", key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func hostList(t *testing.T, words []string) (list []HostConfig) {
	t.Helper()
	roles := map[string]Role{"": Auto, "auto": Auto, "primary": Primary, "replica": Replica, "any": Any}
	for _, w := range words {
		name, r, _ := strings.Cut(w, ":")
		list = append(list, HostConfig{Host: role.Host(name), Role: roles[r], Name: name + ".example"})
	}
	return list
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseFloor(t *testing.T, s string) role.Floor {
	t.Helper()
	f := strings.Split(s, "/")
	return role.Floor{SystemID: number(t, f[0]), Generation: number(t, f[1]), Timeline: uint32(number(t, f[2]))}
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
	if f[0] == "restart" {
		v := s.m.View()
		answers := s.m.Named(nil)
		s.m = New(s.now, s.cfg, s.list, role.Floor{}, &v)
		if len(f) > 1 && f[1] == "answers-kept" {
			s.m.Recall(answers)
		}
		s.check.restart(s.now, v)
		indent(out, s.step(Tick{}))
		return
	}
	indent(out, s.step(s.event(t, f)))
}

func (s *script) step(ev Event) []string {
	var lines []string
	effects, err := s.check.feed(s.m, s.now, ev)
	for _, e := range effects {
		lines = append(lines, e.String())
	}
	if err != nil {
		lines = append(lines, "INVARIANT: "+err.Error())
	}
	return lines
}

func indent(out *strings.Builder, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(out, "    %s\n", l)
	}
}

func (s *script) event(t *testing.T, f []string) Event {
	t.Helper()
	var h role.Host
	if len(f) > 1 {
		h = role.Host(f[1])
	}
	switch f[0] {
	case "tick":
		return Tick{}
	case "late":
		return Late{h}
	case "lost":
		return Lost{Host: h}
	case "closed":
		return Lost{Host: h, Expected: true}
	case "failed":
		return Failed{Host: h, Why: "no route to host"}
	case "heard":
		return Heard{Host: h}
	case "hint":
		return Hint{Host: h, Why: "it refused a write"}
	case "gone":
		return AddressGone{h}
	case "back":
		return AddressBack{h}
	case "claim":
		if len(f) == 2 {
			return FloorClaim{Host: h, Why: "no claim stands any more"}
		}
		c := FloorClaim{Host: h, Why: "a member saw " + f[1] + " on timeline " + f[2], Floor: role.Floor{SystemID: 7, Timeline: uint32(number(t, f[2]))}}
		for _, w := range f[3:] {
			switch k, v, _ := strings.Cut(w, "="); k {
			case "system":
				c.Floor.SystemID = number(t, v)
			case "generation":
				c.Floor.Generation = number(t, v)
			}
		}
		return c
	case "forget":
		if h == "" {
			return Forget{}
		}
		e := Forget{Generation: number(t, f[1])}
		if len(f) > 2 {
			ago, err := time.ParseDuration(strings.TrimPrefix(f[2], "ordered="))
			if err != nil {
				t.Fatal(err)
			}
			e.At = s.now.Add(-ago)
		}
		return e
	case "stood": // still
		d, err := time.ParseDuration(f[2])
		if err != nil {
			t.Fatal(err)
		}
		return StoodStill{d}
	case "seat": // HOST TIMELINE TAG [seen=AGO] [started=N], of another member; tags count from the beginning
		if len(f) == 1 {
			return Seat{}
		}
		e := Seat{Host: h, Timeline: uint32(number(t, f[2])), Tag: uint64(s.base.UnixMicro()) + number(t, f[3]), At: s.now, Member: "m2"}
		for _, w := range f[4:] {
			if n, ok := strings.CutPrefix(w, "started="); ok {
				e.Started = time.Unix(int64(number(t, n)), 0)
			}
		}
		return e
	case "takeover":
		return TakeOver{number(t, f[1])}
	case "kept":
		ago, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		return FloorKept{s.now.Add(-ago)}
	case "hosts":
		s.list = hostList(t, f[1:])
		return Hosts{s.list}
	case "configure":
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			s.cfg = set(t, s.cfg, k, v)
		}
		return Configure{s.cfg}
	case "refused":
		e := Refused{Host: h}
		for _, w := range f[2:] {
			if w == "after-loss" {
				e.AfterLoss = true
			} else {
				e.Code = w
			}
		}
		return e
	}
	return s.observation(t, f)
}

func (s *script) observation(t *testing.T, f []string) Event {
	t.Helper()
	o := role.Observation{Host: role.Host(f[0]), SystemID: 7, Asked: s.now.Add(-5 * time.Millisecond), Answered: s.now}
	verdicts := map[string]role.Verdict{"writable": role.Writable, "readonly": role.ReadOnly, "standby": role.InRecovery, "senseless": role.Unknown, "aurora": role.Writable}
	v, ok := verdicts[f[1]]
	if !ok {
		t.Fatalf("unknown event %v", f)
	}
	o.Verdict = v
	if f[1] == "aurora" {
		o.NoTimelines, o.SystemID = true, 0
	}
	for _, w := range f[2:] {
		k, value, _ := strings.Cut(w, "=")
		switch k {
		case "fence":
			o.Source = role.Fence
		case "login":
			o.Source, o.SystemID = role.Login, 0
		case "gossip":
			o.Source = role.Gossip
		case "id":
			o.SystemID = number(t, value)
		case "started":
			o.Started = time.Unix(int64(number(t, value)), 0)
		case "asked":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			o.Asked = s.now.Add(-d)
		case "on": // the connection that was dialled as the N-th
			o.Dialled = s.base.Add(time.Duration(number(t, value)))
		default:
			o.Timeline = uint32(number(t, w))
		}
	}
	return Observed{o}
}

func (s *script) state(out *strings.Builder) {
	v := s.m.View()
	fmt.Fprintf(out, "%v since %v: %s\n", v, v.Since.Sub(s.base), v.Why)
	if why, doubted := s.m.InDoubt(); doubted {
		fmt.Fprintf(out, "in doubt: %s\n", why)
	}
	if next := s.m.Next(); !next.IsZero() {
		fmt.Fprintf(out, "next in %v\n", next.Sub(s.now))
	}
	for _, r := range s.m.Hosts(s.now) {
		fmt.Fprintf(out, "%s %s %s", r.Host, r.Role, r.Strength)
		for _, f := range []struct {
			word string
			on   bool
		}{{"elected", r.Elected}, {"foreign", r.Foreign}, {"address-gone", r.AddressGone}, {"pending", r.Pending}} {
			if f.on {
				fmt.Fprintf(out, " %s", f.word)
			}
		}
		if r.Last.Asked.IsZero() {
			fmt.Fprint(out, ", never answered")
		} else {
			fmt.Fprintf(out, ", %v %v ago", r.Last.Verdict, r.Age)
		}
		for _, f := range []struct{ word, text string }{{"why", r.Why}, {"objection", r.Objection}, {"cause", r.Cause.String()}} {
			if f.text != "" {
				fmt.Fprintf(out, "; %s: %s", f.word, f.text)
			}
		}
		fmt.Fprintln(out)
	}
}
