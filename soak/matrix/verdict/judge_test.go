package verdict

import (
	"reflect"
	"testing"
	"time"
)

const (
	oldPort = 1001
	newPort = 1002
	ms      = time.Millisecond
)

// server is one out of recovery that takes writes.
func server(port int, timeline uint32) *Server {
	return &Server{Port: port, Started: 1, Timeline: timeline}
}

func standby(port int) *Server {
	return &Server{Port: port, Started: 1, InRecovery: true, ReadOnly: true}
}

func readOnly(port int, timeline uint32) *Server {
	return &Server{Port: port, Started: 1, ReadOnly: true, Timeline: timeline}
}

// acked is a write of a client that took 10 ms.
func acked(client int, seq int64, start time.Duration, s *Server) Attempt {
	return Attempt{Client: client, Seq: seq, Start: start, BoundAt: start + 5*ms, End: start + 10*ms, Bound: s, CommitSent: true, Acked: true}
}

func failed(client int, seq int64, start time.Duration, s *Server, code string) Attempt {
	a := acked(client, seq, start, s)
	a.Acked, a.Code, a.Message = false, code, "text of "+code
	return a
}

func with(a Attempt, change func(*Attempt)) Attempt {
	change(&a)
	return a
}

func read(a Attempt) Attempt { return with(a, func(a *Attempt) { a.Kind, a.Seq = Read, 0 }) }

// failover is the truth of one in which the old server's last breath was at 1 s and the new one took writes from 2 s on.
func failover() Truth {
	return Truth{Began: time.Second, Old: "old", New: "new", Ports: map[string]int{"old": oldPort, "new": newPort},
		NewFirst: 2 * time.Second, HasNew: true, NewTimeline: 2, Writer: "new",
		Sightings: []Sighting{{0, 1}, {1900 * ms, 2}}, NoWriter: 900 * ms}
}

// scene is a scripted history and what one figure of its verdict has to be.
type scene struct {
	name     string
	clients  int // 1 if 0
	attempts []Attempt
	refusals []Refusal
	history  func(*History)
	truth    func(*Truth)
	ledger   Ledger
	figure   func(*Result) any
	want     any
}

func (s scene) judge() *Result {
	h := &History{Clients: max(1, s.clients), Attempts: s.attempts, Refusals: s.refusals}
	if s.history != nil {
		s.history(h)
	}
	t := failover()
	if s.truth != nil {
		s.truth(&t)
	}
	l := s.ledger
	if l == nil { // everything that was acknowledged is there, once
		l = Ledger{}
		for _, a := range s.attempts {
			if a.Acked && a.Kind.Writes() {
				l[Row{a.Client, a.Seq}]++
			}
		}
	}
	return Judge(h, &t, l)
}

func play(t *testing.T, scenes []scene) {
	t.Helper()
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			r := s.judge()
			if got := s.figure(r); !reflect.DeepEqual(got, s.want) {
				t.Errorf("%v, want %v; all of it: %+v", got, s.want, r)
			}
		})
	}
}

func wrong(r *Result) any { return r.WrongBinds }

func TestWrongBinds(t *testing.T) {
	before, after := acked(1, 1, 100*ms, server(oldPort, 1)), acked(1, 2, 2100*ms, server(newPort, 2))
	late := acked(2, 1, 2200*ms, server(oldPort, 1)) // begun after another client was told of timeline 2
	play(t, []scene{
		{name: "none", attempts: []Attempt{before, after}, figure: wrong, want: 0},
		{name: "in recovery", attempts: []Attempt{before, failed(1, 2, 1500*ms, standby(oldPort), "25006")}, figure: wrong, want: 1},
		{name: "in recovery, cause", attempts: []Attempt{failed(1, 2, 1500*ms, standby(oldPort), "25006")},
			figure: func(r *Result) any { return r.WrongCauses }, want: map[string]int{"in recovery": 1}},
		{name: "in recovery, but a read", attempts: []Attempt{read(acked(1, 2, 1500*ms, standby(oldPort)))}, figure: wrong, want: 0},
		{name: "in recovery, counted as a read", attempts: []Attempt{read(acked(1, 2, 1500*ms, standby(oldPort)))},
			figure: func(r *Result) any { return r.WrongReads }, want: 1},
		{name: "read-only", attempts: []Attempt{failed(1, 2, 2100*ms, readOnly(newPort, 2), "25006")}, figure: wrong, want: 1},
		{name: "refused before it said where it was", attempts: []Attempt{failed(1, 2, 2100*ms, nil, "25006")}, figure: wrong, want: 1},
		{name: "another error before it said where it was", attempts: []Attempt{failed(1, 2, 2100*ms, nil, "57P01")}, figure: wrong, want: 0},
		{name: "old timeline", clients: 2, attempts: []Attempt{after, late}, figure: wrong, want: 1},
		{name: "the timeline that was seen", clients: 2, attempts: []Attempt{after, acked(2, 1, 2200*ms, server(newPort, 2))}, figure: wrong, want: 0},
		{name: "old timeline, also where it failed", clients: 2, attempts: []Attempt{after, failed(2, 1, 2200*ms, server(oldPort, 1), "57P01")},
			figure: wrong, want: 1},
		{name: "old timeline, begun before the answer with the new one", clients: 2,
			attempts: []Attempt{after, acked(2, 1, 2104*ms, server(oldPort, 1))}, figure: wrong, want: 0},
		{name: "old timeline, but each client for itself", clients: 2, attempts: []Attempt{after, late},
			history: func(h *History) { h.PerClient = true }, figure: wrong, want: 0},
		{name: "old timeline, seen by the same client", clients: 2, attempts: []Attempt{after, with(late, func(a *Attempt) { a.Client = 1 })},
			history: func(h *History) { h.PerClient = true }, figure: wrong, want: 1},
		{name: "old timeline, seen by the member itself", attempts: []Attempt{acked(1, 2, 2050*ms, server(oldPort, 1))},
			history: func(h *History) { h.Seen = []Sighting{{2 * time.Second, 2}} }, figure: wrong, want: 1},
		{name: "old timeline, seen by the member later", attempts: []Attempt{acked(1, 2, 2050*ms, server(oldPort, 1))},
			history: func(h *History) { h.Seen = []Sighting{{2060 * ms, 2}} }, figure: wrong, want: 0},
		{name: "old timeline, forgotten", clients: 2, attempts: []Attempt{after, late},
			truth: func(t *Truth) { t.Forgets = []time.Duration{2150 * ms} }, figure: wrong, want: 0},
		{name: "old timeline, seen again after it was forgotten", clients: 2, attempts: []Attempt{after, acked(1, 3, 2160*ms, server(newPort, 2)), late},
			truth: func(t *Truth) { t.Forgets = []time.Duration{2150 * ms} }, figure: wrong, want: 1},
		{name: "old timeline, the answer crossed the forgetting", clients: 2, attempts: []Attempt{after, late},
			truth: func(t *Truth) { t.Forgets = []time.Duration{2102 * ms} }, figure: wrong, want: 0},
		{name: "old timeline, waited for while it was forgotten", clients: 2, attempts: []Attempt{after, late},
			truth: func(t *Truth) { t.Forgets = []time.Duration{2203 * ms} }, figure: wrong, want: 0},
		{name: "old timeline, forgotten later", clients: 2, attempts: []Attempt{after, late},
			truth: func(t *Truth) { t.Forgets = []time.Duration{2206 * ms} }, figure: wrong, want: 1},
	})
}

func TestWrongByTheObserverOnly(t *testing.T) {
	figure := func(r *Result) any { return [2]int{r.ObserverOnly, r.WrongBinds} }
	play(t, []scene{
		{name: "the observer knew", attempts: []Attempt{acked(1, 1, 1950*ms, server(oldPort, 1))}, figure: figure, want: [2]int{1, 0}},
		{name: "the observer knew later", attempts: []Attempt{acked(1, 1, 1899*ms, server(oldPort, 1))}, figure: figure, want: [2]int{0, 0}},
		{name: "a read", attempts: []Attempt{read(acked(1, 1, 1950*ms, server(oldPort, 1)))}, figure: figure, want: [2]int{0, 0}},
		{name: "the member knew too", clients: 2, attempts: []Attempt{acked(1, 1, 1950*ms, server(newPort, 2)), acked(2, 1, 1970*ms, server(oldPort, 1))},
			figure: figure, want: [2]int{0, 1}},
		{name: "forgotten", attempts: []Attempt{acked(1, 1, 1950*ms, server(oldPort, 1))},
			truth: func(t *Truth) { t.Forgets = []time.Duration{1940 * ms} }, figure: figure, want: [2]int{0, 0}},
	})
}

func TestErrors(t *testing.T) {
	figure := func(r *Result) any { return r.Errors }
	play(t, []scene{
		{name: "by code", attempts: []Attempt{failed(1, 1, 1*ms, nil, "57P01"), failed(1, 2, 20*ms, nil, "57P01"), failed(1, 3, 40*ms, nil, "25006")},
			refusals: []Refusal{{Code: "08006"}}, figure: figure, want: map[string]int{"57P01": 2, "25006": 1, "08006": 1}},
		{name: "not what the end cut off", attempts: []Attempt{with(failed(1, 1, 1*ms, nil, "cut"), func(a *Attempt) { a.Cut = true })},
			figure: figure, want: map[string]int{}},
		{name: "25006, also of reads and logins", attempts: []Attempt{failed(1, 1, 1*ms, nil, "25006"), read(failed(1, 0, 20*ms, nil, "25006"))},
			refusals: []Refusal{{Code: "25006"}}, figure: func(r *Result) any { return r.ReadOnlyErrors }, want: 3},
		{name: "no 25006", attempts: []Attempt{failed(1, 1, 1*ms, nil, "57P01")}, figure: func(r *Result) any { return r.ReadOnlyErrors }, want: 0},
		{name: "first text", attempts: []Attempt{failed(1, 2, 20*ms, nil, "57P01"), with(failed(1, 1, 1*ms, nil, "57P01"), func(a *Attempt) { a.Message = "first" })},
			figure: func(r *Result) any { return r.Samples["57P01"] }, want: "first"},
		{name: "failed connects", refusals: []Refusal{{Code: "08006"}, {Code: "53300"}}, figure: func(r *Result) any { return r.FailedConnects }, want: 2},
	})
}

func TestEnding(t *testing.T) {
	figure := func(r *Result) any { return [2]int{r.Wedged, r.Unbound} }
	good := acked(0, 9, 5*time.Second, server(newPort, 2))
	play(t, []scene{
		{name: "on the writer", attempts: []Attempt{good}, figure: figure, want: [2]int{0, 0}},
		{name: "fails as read-only", attempts: []Attempt{good, failed(0, 10, 6*time.Second, nil, "25006")}, figure: figure, want: [2]int{1, 1}},
		{name: "failed as read-only before", attempts: []Attempt{failed(0, 8, 4*time.Second, nil, "25006"), good}, figure: figure, want: [2]int{0, 0}},
		{name: "a failing read says nothing", attempts: []Attempt{good, read(failed(0, 10, 6*time.Second, nil, "25006"))}, figure: figure, want: [2]int{0, 0}},
		{name: "fails otherwise", attempts: []Attempt{good, failed(0, 10, 6*time.Second, server(newPort, 2), "57P01")}, figure: figure, want: [2]int{0, 1}},
		{name: "on a standby, with another error", attempts: []Attempt{failed(0, 10, 6*time.Second, standby(oldPort), "57014")}, figure: figure, want: [2]int{1, 1}},
		{name: "on another server", attempts: []Attempt{acked(0, 9, 5*time.Second, server(oldPort, 1))}, figure: figure, want: [2]int{0, 1}},
		{name: "never wrote", attempts: []Attempt{read(good)}, figure: figure, want: [2]int{0, 1}},
		{name: "hangs", attempts: []Attempt{good, with(failed(0, 10, 6*time.Second, nil, "cut"), func(a *Attempt) { a.Cut = true })}, figure: figure, want: [2]int{0, 1}},
		{name: "nobody takes writes", attempts: []Attempt{good}, truth: func(t *Truth) { t.Writer = "" }, figure: figure, want: [2]int{0, 1}},
	})
}

func TestUnavailability(t *testing.T) {
	type service struct {
		ms    []float64
		never int
	}
	figure := func(r *Result) any { return service{r.Unavailable, r.Never} }
	restarted := func(start time.Duration) Attempt {
		return acked(0, 5, start, &Server{Port: oldPort, Started: 2, Timeline: 1})
	}
	restart := func(t *Truth) { t.New, t.Writer = "old", "old" }
	before := acked(0, 1, 500*ms, server(oldPort, 1))
	play(t, []scene{
		{name: "from the observer's first write to the acknowledgement", attempts: []Attempt{acked(0, 1, 2040*ms, server(newPort, 2))},
			figure: figure, want: service{[]float64{50}, 0}},
		{name: "before the observer", attempts: []Attempt{acked(0, 1, 1980*ms, server(newPort, 2))}, figure: figure, want: service{[]float64{0}, 0}},
		{name: "the first one counts", attempts: []Attempt{acked(0, 2, 2900*ms, server(newPort, 2)), acked(0, 1, 2040*ms, server(newPort, 2))},
			figure: figure, want: service{[]float64{50}, 0}},
		{name: "the old primary's does not", attempts: []Attempt{acked(0, 1, 2010*ms, server(oldPort, 1)), acked(0, 2, 2090*ms, server(newPort, 2))},
			figure: figure, want: service{[]float64{100}, 0}},
		{name: "nor a read", attempts: []Attempt{read(acked(0, 0, 2010*ms, server(newPort, 2))), acked(0, 2, 2090*ms, server(newPort, 2))},
			figure: figure, want: service{[]float64{100}, 0}},
		{name: "nor one that failed", attempts: []Attempt{failed(0, 1, 2010*ms, server(newPort, 2), "57P01")}, figure: figure, want: service{nil, 1}},
		{name: "each client", clients: 2, attempts: []Attempt{acked(0, 1, 2040*ms, server(newPort, 2))}, figure: figure, want: service{[]float64{50}, 1}},
		{name: "nor one from before the event", attempts: []Attempt{acked(0, 1, 900*ms, server(newPort, 2))}, figure: figure, want: service{nil, 1}},
		{name: "nobody new", attempts: []Attempt{acked(0, 1, 2040*ms, server(newPort, 2))}, truth: func(t *Truth) { t.HasNew = false },
			figure: figure, want: service{nil, 0}},
		{name: "the same server, restarted", attempts: []Attempt{before, restarted(2040 * ms)}, truth: restart, figure: figure, want: service{[]float64{50}, 0}},
		{name: "the same server, just before its restart", attempts: []Attempt{before, acked(0, 2, 1005*ms, server(oldPort, 1))}, truth: restart,
			figure: figure, want: service{nil, 1}},
	})
}

// What a client waited is what it was unavailable, without its own pauses after a success.
func TestWaited(t *testing.T) {
	figure := func(r *Result) any { return r.Waited }
	from := func(start time.Duration, a Attempt) Attempt {
		a.Start = start
		return a
	}
	served := func(start time.Duration) Attempt { return from(start, acked(0, 9, 2290*ms, server(newPort, 2))) }
	lost := from(2100*ms, failed(0, 8, 2110*ms, nil, "08006"))
	refused := func(start time.Duration) func(*History) {
		return func(h *History) {
			h.Refusals = []Refusal{{Client: 0, Start: start, End: start + 10*ms, Code: "refused"}}
		}
	}
	play(t, []scene{
		{name: "asked before there was one", attempts: []Attempt{served(1500 * ms)}, figure: figure, want: []float64{300}},
		{name: "asked later", attempts: []Attempt{served(2290 * ms)}, figure: figure, want: []float64{10}},
		{name: "from the first error", attempts: []Attempt{lost, served(2290 * ms)}, figure: figure, want: []float64{200}},
		{name: "from the first refusal", attempts: []Attempt{lost, served(2290 * ms)}, history: refused(2050 * ms), figure: figure, want: []float64{250}},
		{name: "a refusal alone", attempts: []Attempt{served(2290 * ms)}, history: refused(2200 * ms), figure: figure, want: []float64{100}},
		{name: "not from before a success", attempts: []Attempt{lost, read(from(2150*ms, acked(0, 0, 2160*ms, server(newPort, 2)))), served(2280 * ms)},
			figure: figure, want: []float64{20}},
		{name: "nor from another client's", clients: 2, attempts: []Attempt{with(lost, func(a *Attempt) { a.Client = 1 }), served(2290 * ms)},
			figure: figure, want: []float64{10}},
	})
}

func TestWrites(t *testing.T) {
	row := Row{0, 1}
	lost := func(r *Result) any { return [3]int{r.Lost, r.Doubled, r.Unasked} }
	good := acked(0, 1, 500*ms, server(oldPort, 1))
	cancelled := with(good, func(a *Attempt) { a.SyncCancelled = true })
	unasked := with(failed(0, 1, 500*ms, server(oldPort, 1), "57P01"), func(a *Attempt) { a.CommitSent = false })
	play(t, []scene{
		{name: "there", attempts: []Attempt{good}, figure: lost, want: [3]int{0, 0, 0}},
		{name: "lost", attempts: []Attempt{good}, ledger: Ledger{}, figure: lost, want: [3]int{1, 0, 0}},
		{name: "a read has no row", attempts: []Attempt{read(good)}, ledger: Ledger{}, figure: lost, want: [3]int{0, 0, 0}},
		{name: "doubled", attempts: []Attempt{good}, ledger: Ledger{row: 2}, figure: lost, want: [3]int{0, 1, 0}},
		{name: "doubled without an answer", attempts: []Attempt{failed(0, 1, 500*ms, nil, "08007")}, ledger: Ledger{row: 2}, figure: lost, want: [3]int{0, 1, 0}},
		{name: "no answer, not there", attempts: []Attempt{failed(0, 1, 500*ms, nil, "08007")}, ledger: Ledger{}, figure: lost, want: [3]int{0, 0, 0}},
		{name: "no answer, there", attempts: []Attempt{failed(0, 1, 500*ms, nil, "08007")}, ledger: Ledger{row: 1}, figure: lost, want: [3]int{0, 0, 0}},
		{name: "committed without COMMIT", attempts: []Attempt{unasked}, ledger: Ledger{row: 1}, figure: lost, want: [3]int{0, 0, 1}},
		{name: "not committed without COMMIT", attempts: []Attempt{unasked}, ledger: Ledger{}, figure: lost, want: [3]int{0, 0, 0}},
		{name: "did not wait for a standby, lost", attempts: []Attempt{cancelled}, ledger: Ledger{},
			figure: func(r *Result) any { return [3]int{r.Lost, r.SyncCancelled, r.SyncCancelledLost} }, want: [3]int{0, 1, 1}},
		{name: "did not wait for a standby, there", attempts: []Attempt{cancelled},
			figure: func(r *Result) any { return [3]int{r.Lost, r.SyncCancelled, r.SyncCancelledLost} }, want: [3]int{0, 1, 0}},
	})
}

func TestOldAcks(t *testing.T) {
	figure := func(r *Result) any { return r.OldAcks }
	play(t, []scene{
		{name: "after the new one was there", attempts: []Attempt{acked(0, 1, 1995*ms, server(oldPort, 1))}, figure: figure, want: 1},
		{name: "before", attempts: []Attempt{acked(0, 1, 1985*ms, server(oldPort, 1))}, figure: figure, want: 0},
		{name: "by the new one", attempts: []Attempt{acked(0, 1, 1995*ms, server(newPort, 2))}, figure: figure, want: 0},
		{name: "failed", attempts: []Attempt{failed(0, 1, 1995*ms, server(oldPort, 1), "57P01")}, figure: figure, want: 0},
		{name: "on a later timeline", attempts: []Attempt{acked(0, 1, 1995*ms, server(oldPort, 3))}, figure: figure, want: 0},
		{name: "a read", attempts: []Attempt{read(acked(0, 1, 1995*ms, server(oldPort, 1)))}, figure: figure, want: 0},
		{name: "nobody was promoted", attempts: []Attempt{acked(0, 1, 1995*ms, server(oldPort, 1))}, truth: func(t *Truth) { t.New = "old" }, figure: figure, want: 0},
	})
}

func TestFiguresThatAreOnlyCounted(t *testing.T) {
	r := scene{attempts: []Attempt{acked(0, 1, 0, server(oldPort, 1)), with(acked(0, 2, 1500*ms, server(newPort, 2)), func(a *Attempt) { a.End = 2100 * ms }),
		read(acked(0, 0, 20*ms, server(oldPort, 1))), failed(0, 3, 3*time.Second, nil, "57P01")},
		history: func(h *History) { h.Opened = 7 }, truth: func(t *Truth) { t.LogErrors = 4 }}.judge()
	if r.Attempts != 4 || r.Writes != 2 || r.Reads != 1 || r.Opened != 7 || r.LogErrors != 4 || r.NoWriter != 900 || r.Longest != 600 {
		t.Errorf("%+v", r)
	}
}
