package health

import (
	"testing"
	"time"
)

var start = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// TestTimeStandsStill: a clock that is set back does not put a loss before the proof.
func TestTimeStandsStill(t *testing.T) {
	m := New(start, Defaults())
	m.Step(start.Add(time.Hour), Connected{"a"})
	m.Step(start, Elected{"a"})
	m.Step(start, Proven{"a", start.Add(time.Minute)})
	m.Step(start, MonitorAnswered{"a", start.Add(time.Minute), false})
	if m.State() != Healthy || !m.Since().Equal(start.Add(time.Hour)) {
		t.Fatalf("%v since %v", m.State(), m.Since())
	}
	m.Step(start, Disconnected{Host: "a"})
	m.Step(start, Proven{"a", start.Add(time.Minute)})
	m.Step(start, MonitorAnswered{"a", start.Add(time.Minute), false})
	if m.State() != Unhealthy {
		t.Error("the loss was told after the proof was asked for, whatever the clock says")
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Unhealthy.String(), "unhealthy"}, {Healthy.String(), "healthy"}, {Failover.String(), "failover"}, {State(9).String(), "invalid(9)"},
		{MonitorUp.String(), "up"}, {MonitorLogin.String(), "cannot log in"}, {Monitor(9).String(), "invalid(9)"},
		{Connected{"a"}.String(), "connected a"},
		{Disconnected{Host: "a", Code: "57P01"}.String(), `disconnected a expected=false "57P01"`},
		{ConnectFailed{Host: "a"}.String(), `connect failed a ""`},
		{Heard{Host: "a"}.String(), "heard a"},
		{MonitorState{Host: "a", Kind: MonitorReset}.String(), "monitor of a: reset"},
		{MonitorAnswered{Host: "a"}.String(), "monitor of a answered in-recovery=false"},
		{Proven{Host: "a"}.String(), "proven a"},
		{Elected{}.String(), `elected ""`},
		{ShutdownNotice{Host: "a", Code: "57P02"}.String(), "shutdown notice a 57P02"},
		{SourceSaysFailover{"a", "x"}.String(), "source says failover a: x"},
		{HostGone{"a"}.String(), "host gone a"},
		{Configure{Defaults()}.String(), "configure {UnhealthyAfter:10s DisconnectRatio:0.6 MinTime:30s}"},
		{Tick{}.String(), "tick"},
		{Entered{State: Healthy, From: Unhealthy, Host: "a", Reason: "a: x"}.String(), `unhealthy -> healthy "a": a: x`},
		{Bug{"x"}.String(), "bug: x"},
	} {
		if c.got != c.want {
			t.Errorf("%q instead of %q", c.got, c.want)
		}
	}
}
