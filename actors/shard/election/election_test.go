package election

import (
	"strings"
	"testing"
	"time"

	"fencepost/role"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func seen(h role.Host, timeline uint32, ms int) Observed {
	asked := start.Add(time.Duration(ms) * time.Millisecond)
	return Observed{role.Observation{Host: h, Verdict: role.Writable, SystemID: 7, Timeline: timeline, Asked: asked, Answered: asked}}
}

// TestTimeStandsStill: a clock that is set back makes no evidence younger.
func TestTimeStandsStill(t *testing.T) {
	m := New(start, Defaults(), []HostConfig{{Host: "a"}}, role.Floor{}, nil)
	m.Step(start.Add(time.Second), seen("a", 1, 999))
	m.Step(start.Add(time.Hour), Tick{})
	m.Step(start, Tick{})
	if why, doubted := m.InDoubt(); !doubted {
		t.Error("evidence an hour old is proof again")
	} else if want := "it was last seen writable more than 3s ago"; why != want {
		t.Errorf("%q instead of %q", why, want)
	}
	m.Step(start, Lost{Host: "a"})
	m.Step(start.Add(2*time.Hour), seen("a", 1, 2000))
	if _, doubted := m.InDoubt(); !doubted {
		t.Error("a loss told with a clock set back counts from then, not from the time it was taken in")
	}
}

// TestUnknownEvent: what is no event is told, and puts the elected host in doubt.
func TestUnknownEvent(t *testing.T) {
	m := New(start, Defaults(), []HostConfig{{Host: "a"}}, role.Floor{}, nil)
	m.Step(start, Tick{})
	effects := m.Step(start, nil)
	if len(effects) != 1 || effects[0] != (Bug{"unknown event <nil>"}) {
		t.Errorf("%v", effects)
	}
	m.Step(start.Add(time.Second), seen("a", 1, 999))
	m.Step(start.Add(time.Second), nil)
	if _, doubted := m.InDoubt(); !doubted {
		t.Error("not in doubt")
	}
}

// TestFloorsOfARestart: which floor a machine starts with.
func TestFloorsOfARestart(t *testing.T) {
	for _, c := range []struct {
		rule       string
		kept, last role.Floor
		set        uint64
		want       role.Floor
	}{
		{"the higher one of one cluster", role.Floor{SystemID: 7, Timeline: 5}, role.Floor{SystemID: 7, Timeline: 4}, 0, role.Floor{SystemID: 7, Timeline: 5}},
		{"the last view's, of another cluster", role.Floor{SystemID: 9, Timeline: 5}, role.Floor{SystemID: 7, Timeline: 4}, 0, role.Floor{SystemID: 7, Timeline: 4}},
		{"a later generation's", role.Floor{SystemID: 9, Generation: 2, Timeline: 1}, role.Floor{SystemID: 7, Generation: 1, Timeline: 4}, 0, role.Floor{SystemID: 9, Generation: 2, Timeline: 1}},
		{"the set identifier's", role.Floor{SystemID: 7, Generation: 2, Timeline: 5}, role.Floor{SystemID: 7, Generation: 2, Timeline: 4}, 8, role.Floor{SystemID: 8, Generation: 2}},
	} {
		cfg := Defaults()
		cfg.SystemID = c.set
		m := New(start, cfg, []HostConfig{{Host: "a"}}, c.kept, &View{Epoch: 3, Floor: c.last, Own: c.last.Timeline, Since: start})
		if got := m.View(); got.Floor != c.want || got.Epoch < 3 {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}

// TestSeatNotKept: a restart keeps no primary without its evidence, or of another generation.
func TestSeatNotKept(t *testing.T) {
	m := New(start, Defaults(), []HostConfig{{Host: "a"}}, role.Floor{}, nil)
	m.Step(start.Add(time.Second), seen("a", 1, 999))
	good := m.View()
	for _, c := range []struct {
		rule  string
		view  func(View) View
		floor role.Floor
		want  role.Host
	}{
		{"as it was", func(v View) View { return v }, role.Floor{}, "a"},
		{"no evidence", func(v View) View { v.Evidence = role.Observation{}; return v }, role.Floor{}, ""},
		{"another generation", func(v View) View { return v }, role.Floor{SystemID: 7, Generation: 1}, ""},
	} {
		v := c.view(good)
		m := New(start.Add(2*time.Second), Defaults(), []HostConfig{{Host: "a"}}, c.floor, &v)
		if got := m.View(); got.Elected != c.want || got.Epoch < v.Epoch || got.Elected == "" && got.Epoch == v.Epoch {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}

// TestEventTimes: an event that tells when it happened counts from then.
func TestEventTimes(t *testing.T) {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		ev      Event
		doubted bool
	}{
		{Lost{Host: "a", At: at(900)}, false}, {Lost{Host: "a", At: at(1000)}, true}, {Lost{Host: "a"}, true},
		{Failed{Host: "a", At: at(900)}, false}, {Failed{Host: "a", At: at(1010)}, true},
		{Hint{Host: "a", At: at(900)}, false}, {Hint{Host: "a", At: at(9000)}, true},
		{Refused{Host: "a", At: at(900)}, false}, {Refused{Host: "a", AfterLoss: true, At: at(900)}, false},
		{Refused{Host: "a", Code: "53300", At: at(900)}, false}, {Refused{Host: "a", Code: "53300"}, true},
	} {
		m := New(start, Defaults(), []HostConfig{{Host: "a"}}, role.Floor{}, nil)
		m.Step(at(1001), seen("a", 1, 1000))
		m.Step(at(1020), c.ev)
		if _, doubted := m.InDoubt(); doubted != c.doubted || m.View().Elected != "a" {
			t.Errorf("%v: in doubt %t, %v", c.ev, doubted, m.View())
		}
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Auto.String(), "auto"}, {Primary.String(), "primary"}, {Replica.String(), "replica"}, {Any.String(), "any"}, {Role(9).String(), "invalid(9)"},
		{Sitting.String(), "sitting"}, {Refuse.String(), "refuse"}, {TwoWriters(9).String(), "invalid(9)"},
		{View{Epoch: 3, Elected: "a", Floor: role.Floor{SystemID: 7, Generation: 1, Timeline: 2}}.String(), "epoch 3 elected a floor 7/1/2"},
	} {
		if c.got != c.want {
			t.Errorf("%q instead of %q", c.got, c.want)
		}
	}
	events := []Event{seen("a", 1, 0), Late{"a"}, Lost{Host: "a"}, Refused{Host: "a"}, Failed{Host: "a", Why: "x"}, Heard{Host: "a"}, Hint{Host: "a", Why: "x"},
		AddressGone{"a"}, AddressBack{"a"}, Hosts{[]HostConfig{{Host: "a"}}}, Forget{Generation: 3}, FloorClaim{Host: "a"}, Configure{}, Tick{}}
	for _, want := range []string{"observed a writable on timeline 1, system identifier 7 (probe)", "late a", "lost a expected=false", `refused a after-loss=false ""`,
		"failed a: x", "heard a", "hint a: x", "address gone a", "address back a", "hosts [a auto]", "forget 3",
		"floor claim a: timeline 0 of system 0, generation 0", "configure {TTL:0s UnhealthyAfter:0s FirstWait:0s TwoWriters:sitting SystemID:0}", "tick"} {
		if got := events[0].String(); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
		events[0].event()
		events = events[1:]
	}
	for _, e := range []Effect{ViewChanged{}, Doubt{}, DoubtOver{}, Demoted{}, Conflict{}, ConflictOver{}, Foreign{}, Disagreement{}, ClaimRefused{}, ProbeNow{}, Stale{}, Bug{}} {
		e.effect()
		if e.String() == "" {
			t.Errorf("%T has no text", e)
		}
	}
}

// TestReasonsAreSentences: every view says why, and what it says names a host or an act.
func TestReasonsAreSentences(t *testing.T) {
	for seed := range uint64(200) {
		tr, _, _, _, _ := run(seed, 100, false)
		for _, k := range tr {
			for _, e := range k.effects {
				if v, ok := e.(ViewChanged); ok && (v.Reason == "" || strings.Contains(v.Reason, "%!") || v.Reason != v.View.Why) {
					t.Fatalf("seed %d: %v", seed, e)
				}
			}
		}
	}
}
