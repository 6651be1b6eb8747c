package monitor

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fencepost/role"
)

// observed waits for n observations and gives when each was asked, since the start.
func observed(t *testing.T, s *shard, h *fakeHost, n int) []time.Duration {
	t.Helper()
	var at []time.Duration
	for range n {
		at = append(at, find[*Observed](t, s, "observation", nil).Asked.Sub(h.start))
	}
	return at
}

func ms(n ...int) []time.Duration {
	var d []time.Duration
	for _, n := range n {
		d = append(d, time.Duration(n)*time.Millisecond)
	}
	return d
}

// Probes are asked every interval, from asking to asking; a Mode message changes that at once, in both directions.
func TestInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(serving(func(c *fakeConn, _ int) bool {
			time.Sleep(10 * time.Millisecond)
			c.row(writable...)
			return true
		}))
		s := started(t, h, nil)
		if got, want := observed(t, s, h, 3), ms(0, 1000, 2000); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		time.Sleep(200 * time.Millisecond) // 2210
		s.tell(&Mode{Interval: 50 * time.Millisecond, Backoff: time.Second})
		if got, want := observed(t, s, h, 3), ms(2210, 2260, 2310); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.tell(&Mode{Interval: 500 * time.Millisecond, Backoff: time.Second})
		if got, want := observed(t, s, h, 2), ms(2810, 3310); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.tell(&Mode{}) // as often as possible
		if got, want := observed(t, s, h, 3), ms(3320, 3330, 3340); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// ProbeNow is asked after the message, never before, and a flood of them makes no flood of probes.
func TestProbeNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(serving(func(c *fakeConn, _ int) bool {
			time.Sleep(20 * time.Millisecond)
			c.row(writable...)
			return true
		}))
		s := started(t, h, nil)
		observed(t, s, h, 1)
		time.Sleep(180 * time.Millisecond) // 200
		s.tell(&ProbeNow{})
		time.Sleep(10 * time.Millisecond) // it is under way since 200
		s.tell(&ProbeNow{})
		s.tell(&ProbeNow{})
		if got, want := observed(t, s, h, 3), ms(200, 220, 1220); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	bubble(t, func(t *testing.T) {
		h := newFake(healthy)
		s := started(t, h, nil)
		observed(t, s, h, 1)
		for range 100 {
			time.Sleep(time.Millisecond)
			s.tell(&ProbeNow{})
		}
		synctest.Wait()
		if n := len(s.drop()); n < 15 || n > 25 {
			t.Errorf("%d messages in 100 ms", n)
		}
	})
}

// Attempts to connect back off to the mode's limit; a new limit works at once, and ProbeNow tries at once.
func TestBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(errno(syscall.ECONNREFUSED))
		s := started(t, h, nil)
		time.Sleep(2 * time.Second)
		if got, want := h.times(), ms(0, 25, 75, 175, 375, 775, 1275, 1775); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.tell(&Mode{Interval: time.Second, Backoff: ShortBackoff})
		time.Sleep(250 * time.Millisecond)
		if got, want := h.times()[8:], ms(2000, 2100, 2200); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.tell(&Mode{Interval: time.Second, Backoff: LongBackoff})
		time.Sleep(50 * time.Millisecond) // 2300, the next would be at 2700
		s.tell(&ProbeNow{})
		time.Sleep(10 * time.Millisecond) // 2310
		s.tell(&ProbeNow{})
		s.tell(&ProbeNow{})
		time.Sleep(20 * time.Millisecond) // 2330
		if got, want := h.times()[11:], ms(2300, 2325); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, m := range s.drop() {
			if r, ok := m.(*Refused); ok && r.AfterLoss {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A server that lets the monitor in and throws it out again is not dialled without a pause.
func TestThrownOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(serving(func(c *fakeConn, n int) bool {
			if n == 0 {
				c.row(writable...)
			}
			return false
		}))
		s := started(t, h, func(c *Config) { c.Mode = Mode{Interval: 10 * time.Millisecond, Backoff: 100 * time.Millisecond} })
		time.Sleep(time.Second)
		if n := len(h.times()); n < 8 || n > 12 {
			t.Errorf("%d connections in a second", n)
		}
		want := "Observed writable, State up, Lost broken, State connecting"
		if got := kinds(s.drop()[:8]); got != want+", "+want {
			t.Error(got)
		}
	})
}

// A probe is late after a second, which is told once, and its answer counts from when it was asked; then the probe that is
// overdue follows at once.
func TestLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(serving(func(c *fakeConn, n int) bool {
			if n == 1 {
				time.Sleep(3500 * time.Millisecond)
			}
			c.row(writable...)
			return true
		}))
		s := started(t, h, nil)
		observed(t, s, h, 1)
		late := find[*Late](t, s, "lateness", nil)
		if at := time.Since(h.start); at != 2*time.Second || late.Asked.Sub(h.start) != time.Second {
			t.Errorf("at %v: %+v", at, late)
		}
		if got, want := observed(t, s, h, 3), ms(1000, 4500, 5500); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := kinds(s.drop()); got != "" {
			t.Errorf("more: %s", got)
		}
	})
}

// A monitor that is stopped leaves nothing, whatever it was doing: the bubble fails if a goroutine is left.
func TestStopInEveryPhase(t *testing.T) {
	silent := handler{serve: func(c *fakeConn) { c.be.ReceiveStartupMessage(); hang(c) }}
	for name, tc := range map[string]struct {
		host  handler
		after time.Duration
	}{
		"at once": {healthy, 0}, "dialling": {blackhole, time.Second}, "logging in": {silent, time.Second}, "idle": {healthy, 500 * time.Millisecond},
		"asking":  {serving(func(c *fakeConn, n int) bool { return hang(c) }), 500 * time.Millisecond},
		"late":    {serving(func(c *fakeConn, n int) bool { return hang(c) }), 2 * time.Second},
		"backing": {errno(syscall.ECONNREFUSED), 300 * time.Millisecond}, "cancelling": {serving(func(c *fakeConn, n int) bool { return hang(c) }), 10 * time.Second},
	} {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/close %v", name, told), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h := newFake(tc.host)
					s := watch(t, h.config())
					time.Sleep(tc.after)
					if told {
						s.tell(&Close{})
						synctest.Wait()
						if p, alive := s.system.ProcessRegistry.Get(s.child); alive {
							t.Errorf("the actor lives: %v", p)
						}
						s.drop()
						time.Sleep(time.Minute)
						if got := kinds(s.drop()); got != "" {
							t.Errorf("after its end: %s", got)
						}
					}
					h.ended(t, s)
				})
			})
		}
	}
}

// An actor that failed starts anew: its old connection is closed, its worker ends, the last Mode holds.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(healthy)
		s := started(t, h, nil)
		observed(t, s, h, 1)
		s.tell(&Mode{Interval: 50 * time.Millisecond, Backoff: ShortBackoff})
		time.Sleep(25 * time.Millisecond)
		s.tell((*Mode)(nil)) // fails on it
		synctest.Wait()
		s.drop()
		if got, want := observed(t, s, h, 2), ms(75, 125); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if n := len(h.times()); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// The intervals of the design.
func TestPace(t *testing.T) {
	for _, tc := range []struct {
		urgent bool
		for_   time.Duration
		waits  bool
		want   Mode
	}{
		{false, 0, false, Mode{time.Second, 500 * time.Millisecond}},
		{true, 0, false, Mode{50 * time.Millisecond, 500 * time.Millisecond}},
		{true, 29 * time.Second, false, Mode{50 * time.Millisecond, 500 * time.Millisecond}},
		{true, 30 * time.Second, false, Mode{500 * time.Millisecond, 500 * time.Millisecond}},
		{true, time.Hour, true, Mode{50 * time.Millisecond, 100 * time.Millisecond}},
		{true, 10 * time.Second, true, Mode{50 * time.Millisecond, 100 * time.Millisecond}},
		{true, 9 * time.Second, true, Mode{20 * time.Millisecond, 100 * time.Millisecond}},
		{false, 0, true, Mode{20 * time.Millisecond, 100 * time.Millisecond}},
	} {
		if got := Pace(time.Second, tc.urgent, tc.for_, tc.waits); got != tc.want {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
	if got := Pace(10*time.Millisecond, true, 0, true).Interval; got != 10*time.Millisecond {
		t.Errorf("role_check_interval below the urgent one: %v", got)
	}
}

// What a promotion looks like on one open connection.
func TestPromotionOnAConnection(t *testing.T) {
	standby := []string{"postgres", "t", "off", "", "77", "", "2", "0/1800000", "1500000", "0/1700000", "7", "1000000"}
	bubble(t, func(t *testing.T) {
		s := started(t, newFake(serving(func(c *fakeConn, n int) bool {
			c.row([][]string{standby, writable}[min(n, 1)]...)
			return true
		})), nil)
		o := find[*Observed](t, s, "observation", nil)
		if o.Verdict != role.InRecovery || o.Timeline != 2 || o.LSN != 0x1800000 || o.LagBytes != 0x100000 || o.Lag != 1500*time.Millisecond {
			t.Errorf("%+v", o)
		}
		o = find[*Observed](t, s, "observation", nil)
		if o.Verdict != role.Writable || o.Timeline != 3 || o.SystemID != 77 || o.LagBytes != 0 {
			t.Errorf("%+v", o)
		}
	})
}
