package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

const histories = 2000

// world makes up events about three hosts.
type world struct {
	rand  *rand.Rand
	now   time.Time
	conns map[role.Host]int
	cfg   Config
}

func (w *world) one(n int) bool { return w.rand.IntN(n) == 0 }

func (w *world) config() Config {
	return Config{
		UnhealthyAfter:  time.Duration(1+w.rand.IntN(10)) * time.Second,
		DisconnectRatio: float64(w.rand.IntN(11)) / 10,
		MinTime:         time.Duration(w.rand.IntN(4)) * time.Second,
	}
}

func (w *world) ago(ms int) time.Time {
	return w.now.Add(-time.Duration(w.rand.IntN(ms)) * time.Millisecond)
}

func (w *world) event() Event {
	h := []role.Host{"a", "a", "a", "b", "c"}[w.rand.IntN(5)]
	code := []string{"", "", pgerr.AdminShutdown, pgerr.CrashShutdown, pgerr.CannotConnectNow, pgerr.IdleSessionTimeout, pgerr.IdleInTransactionTimeout, pgerr.TransactionTimeout, pgerr.TooManyConnections}[w.rand.IntN(9)]
	at := time.Time{}
	if w.one(3) {
		at = w.ago(150).Add(50 * time.Millisecond)
	}
	if w.one(20) { // a while of all being well
		return Proven{h, w.ago(20)}
	}
	switch n := w.rand.IntN(100); {
	case n < 10:
		w.conns[h]++
		return Connected{h}
	case n < 20:
		if w.conns[h] == 0 && !w.one(10) {
			return Tick{}
		}
		w.conns[h] = max(0, w.conns[h]-1)
		return Disconnected{Host: h, Expected: w.one(3), Code: code, Opened: w.ago(3000), At: at}
	case n < 23:
		return ConnectFailed{h, code, at}
	case n < 30:
		return Heard{h, at}
	case n < 38:
		return MonitorState{h, Monitor(w.rand.IntN(7)), w.ago(30)}
	case n < 58:
		return MonitorAnswered{h, w.ago(30), w.one(6)}
	case n < 75:
		return Proven{h, w.ago(30)}
	case n < 81:
		return Elected{[]role.Host{"a", "a", "a", "a", "b", ""}[w.rand.IntN(6)]}
	case n < 84:
		return ShutdownNotice{h, []string{pgerr.AdminShutdown, pgerr.CrashShutdown, code}[w.rand.IntN(3)]}
	case n < 85:
		return SourceSaysFailover{h, "source"}
	case n < 86:
		w.conns[h] = 0
		return HostGone{h}
	case n < 87:
		w.cfg = w.config()
		return Configure{w.cfg}
	case n < 88:
		return []Event{nil, Proven{h, w.now.Add(time.Second)}, MonitorAnswered{h, time.Time{}, false}, MonitorState{Host: h, Kind: 9}}[w.rand.IntN(4)]
	}
	return Tick{}
}

// run gives one history to a machine and its oracle.
func run(seed uint64) (trace []string, m *Machine, w *world, check *oracle, err error) {
	w = &world{rand: rand.New(rand.NewPCG(seed, 5)), now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), conns: map[role.Host]int{}}
	w.cfg = w.config()
	m, check = New(w.now, w.cfg), newOracle(w.now, w.cfg, "")
	if seed%4 == 0 {
		m, check = Resume(w.now, w.cfg, "a"), newOracle(w.now, w.cfg, "a")
	}
	for range 120 {
		w.now = w.now.Add(time.Duration(w.rand.IntN(40)) * time.Millisecond)
		if w.one(20) {
			if next := m.Next(); next.After(w.now) { // nothing is due before
				w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(next.Sub(w.now)))))
				if e := m.Step(w.now, Tick{}); len(e) > 0 {
					return trace, m, w, check, fmt.Errorf("nothing was due before %v, and there came %v", next, e)
				}
			}
		}
		if w.one(25) {
			w.now = w.now.Add(time.Duration(w.rand.IntN(6000)) * time.Millisecond)
		}
		ev := w.event()
		trace = append(trace, fmt.Sprint(w.now.Format("05.000 "), ev))
		var effects []Effect
		effects, err = check.feed(m, w.now, ev)
		for _, e := range effects {
			trace = append(trace, "    "+e.String())
		}
		if err != nil {
			break
		}
	}
	return trace, m, w, check, err
}

// TestProperties: whatever happens, in whatever order, every transition has its reason, none is missed, the same events
// have the same effects, and a primary that is proven and heard makes the shard Healthy.
func TestProperties(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(histories) {
		trace, m, w, check, err := run(seed)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(trace[max(0, len(trace)-60):], "\n"))
		}
		if again, _, _, _, _ := run(seed); seed%20 == 0 && !slices.Equal(trace, again) {
			t.Fatalf("seed %d: the same events had other effects", seed)
		}
		for _, line := range trace {
			if e, ok := strings.CutPrefix(line, "    "); ok {
				f := strings.Fields(e)
				seen[strings.Join(f[:min(3, len(f))], " ")]++
			}
		}
		w.now = w.now.Add(time.Minute)
		asked := w.now.Add(15 * time.Millisecond) // after the election, before the answer
		for _, ev := range []Event{Elected{"b"}, Proven{"b", asked}, MonitorAnswered{"b", asked, false}} {
			w.now = w.now.Add(10 * time.Millisecond)
			if _, err := check.feed(m, w.now, ev); err != nil {
				t.Fatalf("seed %d: %v: %v\n%s", seed, ev, err, strings.Join(trace[max(0, len(trace)-60):], "\n"))
			}
		}
		if m.State() != Healthy {
			t.Fatalf("seed %d: all is well, and the shard is %v: %s", seed, m.State(), m.Reason())
		}
	}
	for _, way := range []string{"healthy -> unhealthy", "unhealthy -> healthy", "unhealthy -> failover", "healthy -> failover", "failover -> healthy"} {
		if seen[way] < 100 {
			t.Errorf("in all histories %s came only %d times", way, seen[way])
		}
	}
	if seen["failover -> unhealthy"] > 0 {
		t.Error("Failover ends with Healthy alone")
	}
	t.Log(seen)
}
