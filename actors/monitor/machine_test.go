package monitor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

// scriptStart is what "at" counts from.
var scriptStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The scripts give the machine one event per command, at a time in milliseconds, and show what it wants done, its phase,
// and when it has something to do next.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var at, interval, backoff, before int
			var kind, code string
			d.MaybeScanArgs(t, "at", &at)
			d.MaybeScanArgs(t, "interval", &interval)
			d.MaybeScanArgs(t, "backoff", &backoff)
			d.MaybeScanArgs(t, "before", &before)
			d.MaybeScanArgs(t, "kind", &kind)
			d.MaybeScanArgs(t, "code", &code)
			now := scriptStart.Add(time.Duration(at) * time.Millisecond)
			f := &failure{kind: kindNamed(kind), code: code, expected: d.HasArg("expected"), err: errors.New("x")}
			var effects []effect
			switch d.Cmd {
			case "start":
				m = machine{host: "h", late: time.Second}
				m.setMode(now, Mode{Interval: time.Second, Backoff: LongBackoff})
				effects = m.start(now)
			case "tick":
				effects = m.tick(now)
			case "probe-now":
				effects = m.probeNow(now)
			case "reconnect":
				effects = m.reconnect(now, scriptStart.Add(time.Duration(before)*time.Millisecond))
			case "mode":
				effects = m.setMode(now, Mode{Interval: time.Duration(interval) * time.Millisecond, Backoff: time.Duration(backoff) * time.Millisecond})
			case "connected":
				effects = m.connected(now)
			case "refused":
				effects = m.refused(now, f)
			case "answered":
				effects = m.answered(now, role.Identity{InRecovery: d.HasArg("standby")})
			case "senseless":
				effects = m.senseless(now, f)
			case "lost":
				effects = m.lost(now, f)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return show(&m, effects)
		})
	})
}

func kindNamed(s string) Kind {
	for k := Connecting; k <= Local; k++ {
		if k.String() == s {
			return k
		}
	}
	return Garbled
}

func millis(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return fmt.Sprint(t.Sub(scriptStart).Milliseconds())
}

func show(m *machine, effects []effect) string {
	var b strings.Builder
	for _, e := range effects {
		switch e := e.(type) {
		case dial:
			fmt.Fprintln(&b, "dial")
		case hangUp:
			fmt.Fprintln(&b, "hang up")
		case ask:
			fmt.Fprintln(&b, "ask")
		case *Observed:
			fmt.Fprintf(&b, "%s, asked %s, answered %s\n", kinds([]any{e}), millis(e.Asked), millis(e.Answered))
		case *Late:
			fmt.Fprintf(&b, "Late, asked %s\n", millis(e.Asked))
		default:
			fmt.Fprintln(&b, kinds([]any{e}))
		}
	}
	fmt.Fprintf(&b, "%s, next %s\n", m.phase, millis(m.next()))
	return b.String()
}

// Whatever happens in whatever order: one job at a time, AfterLoss only on the first attempt after a loss, Late once per
// probe, a State exactly when the kind changes, never a timer in the past without something to do.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(2000) {
		if problem := history(rand.New(rand.NewPCG(seed, 1))); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}

// watcherModel is what a shard may conclude from what it is told.
type watcherModel struct {
	job       bool // dial or ask without its result
	lost      bool // a loss, and no attempt since
	kind      Kind
	late      map[time.Time]bool
	lastAsked time.Time
	lastDial  time.Time
}

func (w *watcherModel) take(now time.Time, effects []effect) string {
	for _, e := range effects {
		for _, at := range whens(e) {
			if at != now {
				return fmt.Sprintf("%T at another time", e)
			}
		}
		switch e := e.(type) {
		case dial, ask:
			if w.job {
				return fmt.Sprintf("%T while a job is under way", e)
			}
			w.job = true
			if _, ok := e.(dial); ok {
				if !w.lastDial.IsZero() && now.Sub(w.lastDial) < time.Millisecond {
					return "dialled twice within a millisecond"
				}
				w.lastDial = now
			}
		case hangUp:
			w.job = false // of the connection that is given up
		case *Refused:
			if e.AfterLoss != w.lost {
				return fmt.Sprintf("AfterLoss is %v", e.AfterLoss)
			}
			w.lost = false
		case *Failed:
			w.lost = false
		case *Observed:
			if e.Asked.Before(w.lastAsked) {
				return "observation out of order"
			}
			w.lastAsked, w.lost = e.Asked, false
		case *Lost:
			w.lost = !e.Expected
		case *Late:
			if w.late[e.Asked] || now.Sub(e.Asked) < time.Second {
				return "late twice or early"
			}
			w.late[e.Asked] = true
		case *State:
			if e.Kind == w.kind {
				return "state without a change"
			}
			w.kind = e.Kind
		}
	}
	return ""
}

// whens gives the time at which a message says something happened.
func whens(e effect) []time.Time {
	switch e := e.(type) {
	case *Late:
		return []time.Time{e.At}
	case *Lost:
		return []time.Time{e.At}
	case *Refused:
		return []time.Time{e.At}
	case *Failed:
		return []time.Time{e.At}
	case *Observed:
		return []time.Time{e.Answered}
	}
	return nil
}

func history(r *rand.Rand) string {
	now := scriptStart
	m := machine{host: "h", late: time.Second}
	m.setMode(now, Mode{Interval: time.Second, Backoff: LongBackoff})
	w := watcherModel{late: map[time.Time]bool{}}
	problem := w.take(now, m.start(now))
	for step := 0; step < 200 && problem == ""; step++ {
		next := m.next()
		now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
		if !next.IsZero() && next.Before(now) {
			now = next // the timer comes first
		}
		f := &failure{kind: Closed + Kind(r.IntN(int(Local-Closed)+1)), expected: r.IntN(4) == 0, err: errors.New("x")}
		var effects []effect
		was := m.phase
		switch k := r.IntN(10); {
		case !next.IsZero() && !now.Before(next):
			if effects = m.tick(now); len(effects) == 0 {
				return "a timer with nothing to do"
			}
		case k == 0:
			effects = m.probeNow(now)
		case k == 1:
			effects = m.setMode(now, Mode{Interval: time.Duration(r.IntN(1000)) * time.Millisecond, Backoff: time.Duration(r.IntN(500)) * time.Millisecond})
		case k == 2:
			effects = m.reconnect(now, now.Add(-time.Duration(r.IntN(2000))*time.Millisecond))
		case was == dialing && k < 6:
			w.job = false
			if effects = m.connected(now); r.IntN(2) == 0 {
				w.job = false
				problem = w.take(now, effects)
				w.job = false
				effects = m.lost(now, f)
			}
		case was == dialing:
			w.job = false
			effects = m.refused(now, f)
		case was == asking && k < 5:
			w.job = false
			effects = m.answered(now, role.Identity{})
		case was == asking && k < 7:
			w.job = false
			effects = m.senseless(now, f)
		case was == asking || was == idle:
			w.job = false
			effects = m.lost(now, f)
		}
		if problem == "" {
			problem = w.take(now, effects)
		}
		if problem == "" && m.kind != w.kind {
			problem = "the shard was not told of a kind"
		}
	}
	return problem
}
