package soak

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/product"
	"fencepost/soak/raw"
)

func TestStrange(t *testing.T) {
	own := tag{3, 7, 20}
	for text, want := range map[string]kind{
		"D[<c3.7.19>]":               staleAnswer,
		"D[<c3.8.20>]":               foreignAnswer,
		"D[<c4.7.20>]":               foreignAnswer,
		"D[<c3.7.20>] D[<c9.1.1> x]": foreignAnswer,
		"D[<c3.7.20>]":               wrongAnswer,
		"D[]":                        wrongAnswer,
		"<c3.7.>":                    wrongAnswer,
	} {
		if got := strange(own, text); got != want {
			t.Errorf("%s: %s, wanted %s", text, got, want)
		}
	}
}

// testRun is a run without anything that runs.
func testRun() *run {
	r := &run{opts: DefaultOptions(), dbs: databases()}
	r.tally = newTally(func(violation) {})
	return r
}

func testSession(r *run) *session {
	s := &session{r: r, db: &r.dbs[0], user: "alice", id: tag{1, 2, 3}, own: &owner{}}
	s.history[0] = exchange{sent: []pgproto3.FrontendMessage{query("SELECT 1")}}
	s.asked = 1
	return s
}

// TestCompare has a session judge answers.
func TestCompare(t *testing.T) {
	const mine = "<c1.2.3>"
	fail := func(code, message string) []raw.Error {
		return []raw.Error{{Severity: "ERROR", Code: code, Message: message}}
	}
	for _, c := range []struct {
		name    string
		got     raw.Segment
		want    string
		cut     bool
		down    bool
		small   bool
		verdict kind // "": none
		code    string
	}{
		{name: "as wanted", got: raw.Segment{Text: "D[x] Z[I]"}, want: "D[x] Z[I]"},
		{name: "somebody else's", got: raw.Segment{Text: "D[<c9.2.3>] Z[I]"}, want: "D[" + mine + "] Z[I]", verdict: foreignAnswer},
		{name: "an older one", got: raw.Segment{Text: "D[<c1.2.2>] Z[I]"}, want: "D[" + mine + "] Z[I]", verdict: staleAnswer},
		{name: "wanted error", got: raw.Segment{Text: "E[22P02] Z[I]", Errors: fail("22P02", "bad "+mine)}, want: "E[22P02] Z[I]"},
		{name: "somebody else's error", got: raw.Segment{Text: "E[22P02] Z[I]", Errors: fail("22P02", "bad <c1.9.3>")}, want: "E[22P02] Z[I]", verdict: foreignAnswer},
		{name: "an error without a tag", got: raw.Segment{Text: "E[22P02] Z[I]", Errors: fail("22P02", "bad")}, want: "E[22P02] Z[I]", verdict: wrongAnswer},
		{name: "cancelled by nobody", got: raw.Segment{Text: "E[57014] Z[I]", Errors: fail("57014", "canceling statement")}, want: "D[x] Z[I]", verdict: foreignCancel},
		{name: "an error for no reason", got: raw.Segment{Text: "E[XX000] Z[I]", Errors: fail("XX000", "oops")}, want: "D[x] Z[I]", verdict: unexpected},
		{name: "refused where there is enough", got: raw.Segment{Text: "E[53300] Z[I]", Errors: fail("53300", "query_wait_timeout")}, want: "D[x] Z[I]", verdict: unexpected},
		{name: "refused where it is scarce", got: raw.Segment{Text: "E[53300] Z[I]", Errors: fail("53300", "query_wait_timeout")}, want: "D[x] Z[I]", small: true, code: "53300"},
		{name: "refused with a row", got: raw.Segment{Text: "D[x] E[53300] Z[I]", Errors: fail("53300", "query_wait_timeout")}, want: "D[x] Z[I]", small: true, verdict: unexpected},
		{name: "refused by the server", got: raw.Segment{Text: "E[53300] Z[I]", Errors: fail("53300", "sorry, too many clients already")}, want: "D[x] Z[I]", small: true, verdict: unexpected},
		{name: "server down", got: raw.Segment{Text: "E[57P03] Z[I]", Errors: fail("57P03", "cannot connect to server")}, want: "D[x] Z[I]", down: true, code: "57P03"},
		{name: "server not down", got: raw.Segment{Text: "E[57P03] Z[I]", Errors: fail("57P03", "cannot connect to server")}, want: "D[x] Z[I]", verdict: unexpected},
		{name: "cut in the middle", got: raw.Segment{Text: "T D[x] E[57P01]", Errors: fail("57P01", "x")}, want: "T D[x] C[SELECT 1] Z[I]", cut: true},
		{name: "cut at the begin", got: raw.Segment{Text: "E[57P01]", Errors: fail("57P01", "x")}, want: "T D[x] C[SELECT 1] Z[I]", cut: true},
		{name: "cut behind a foreign row", got: raw.Segment{Text: "T D[<c5.5.5>]"}, want: "T D[x] C[SELECT 1] Z[I]", cut: true, verdict: foreignAnswer},
		{name: "a notice of the end", got: raw.Segment{Text: "N[terminating connection due to immediate shutdown command]"}, want: "T", cut: true, down: true},
		{name: "a notice of no end", got: raw.Segment{Text: "N[terminating connection due to immediate shutdown command]"}, want: "T", cut: true, verdict: wrongAnswer},
	} {
		r := testRun()
		s := testSession(r)
		if c.down {
			mark(&r.causes.lastDown)
		}
		if c.small {
			s.db = &r.dbs[3]
		}
		d, err := s.compare(&c.got, c.want, c.cut)
		if (err != nil) != (c.verdict != "") || c.verdict != "" && r.tally.counts[c.verdict] != 1 {
			t.Errorf("%s: %v, %v; wanted %q", c.name, err, r.tally.counts, c.verdict)
		}
		if code := ""; d != nil && d.code != c.code || d == nil && c.code != code {
			t.Errorf("%s: refused with %v, wanted %q", c.name, d, c.code)
		}
	}
}

// TestMayEnd says which ends of a session need an explanation, and which has one.
func TestMayEnd(t *testing.T) {
	terminated := &raw.Error{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
	killed := &raw.Error{Severity: "FATAL", Code: "57P01", Message: "admin forced disconnect"}
	for _, c := range []struct {
		name string
		e    *raw.Error
		did  func(*causes)
		want bool
	}{
		{"terminated", terminated, func(c *causes) { mark(&c.lastHarm) }, true},
		{"terminated by nobody", terminated, func(*causes) {}, false},
		{"terminated long ago", terminated, func(c *causes) { c.lastHarm.Store(time.Now().Add(-time.Hour).UnixNano()) }, false},
		{"killed", killed, func(c *causes) { mark(&c.lastKill) }, true},
		{"killed by nobody", killed, func(c *causes) { mark(&c.lastHarm) }, false},
		{"lost in a restart", &raw.Error{Code: "08007"}, func(c *causes) { mark(&c.lastDown) }, true},
		{"lost", &raw.Error{Code: "08006"}, func(*causes) {}, false},
		{"crash", &raw.Error{Code: "57P02"}, func(c *causes) { mark(&c.lastHarm) }, false},
		{"pooler's own end", &raw.Error{Code: "57P01", Message: "server shutting down"}, func(c *causes) { mark(&c.lastHarm) }, false},
		{"internal error", &raw.Error{Code: "58000"}, func(c *causes) { mark(&c.lastHarm) }, false},
	} {
		r := testRun()
		c.did(&r.causes)
		if got := r.mayEnd(c.e); got != c.want {
			t.Errorf("%s: %v, wanted %v", c.name, got, c.want)
		}
	}
}

func TestLogWatch(t *testing.T) {
	for line, want := range map[string]int{
		`{"level":"info","message":"client gone"}`:                                    0,
		`{"level":"warn","message":"server login failed"}`:                            0,
		`{"level":"error","message":"reload failed, the old settings stay in force"}`: 0,
		`{"level":"error","message":"server protocol violation"}`:                     1,
		`{"level":"debug","message":"lane: unhandled message"}`:                       1,
		`panic: runtime error`: 1,
		`WARNING: DATA RACE`:   1,
		`{"level":"info","user":"` + password("alice") + `","message":"client logged in"}`:   1,
		`{"level":"info","code":"57P01","cause":"EOF","message":"server connection lost"}`:   0,
		`{"level":"warn","runtime":"[ACTOR] panic","message":"panic in the actor runtime"}`:  1,
		`{"level":"error","actor":"x","reason":"boom","restarted":true,"message":"restart"}`: 1,
	} {
		r := testRun()
		l := newLogWatch(r.tally)
		l.line(line)
		if got := r.tally.counts[logged]; got != want {
			t.Errorf("%s: %d violations, wanted %d", line, got, want)
		}
	}
}

func TestLogTail(t *testing.T) {
	l := newLogWatch(testRun().tally)
	for range recentLines + 5 {
		l.line(`{"level":"info","message":"old"}`)
	}
	l.line(`{"level":"info","message":"new"}`)
	lines := strings.Split(l.tail(), "\n")
	if len(lines) != recentLines || !strings.Contains(lines[recentLines-1], "new") || strings.Contains(lines[0], "new") {
		t.Errorf("%d lines, the last %s", len(lines), lines[len(lines)-1])
	}
	if got := l.messages()["info: old"]; got != recentLines+5 {
		t.Errorf("%d lines counted", got)
	}
}

// TestMemoryRule draws curves.
func TestMemoryRule(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name string
		rss  func(second int) int64
		flat bool
	}{
		{"flat", func(int) int64 { return 40 * mb }, true},
		{"grows while it warms up", func(s int) int64 { return int64(min(s, 25)) * 2 * mb }, true},
		{"jumps about", func(s int) int64 { return int64(40+s*7%12) * mb }, true},
		{"a peak", func(s int) int64 {
			if s == 95 {
				return 500 * mb
			}
			return 40 * mb
		}, true},
		{"leaks", func(s int) int64 { return int64(40*mb + s*mb/2) }, false},
		{"steps", func(s int) int64 { return int64(40+s/60*30) * mb }, false},
	} {
		var all []sample
		for s := range 100 {
			all = append(all, sample{At: float64(s), RSS: c.rss(s), Heap: 5 * mb})
		}
		results := judgeMemory(all, 0, 100)
		if len(results) != 2 || results[0].Flat != c.flat || !results[1].Flat {
			t.Errorf("%s: %v", c.name, results)
		}
	}
	if got := judgeMemory(make([]sample, 8), 0, 100); got != nil {
		t.Errorf("judged by %d samples: %v", 8, got)
	}
}

// TestWatcherCounts gives the watcher samples that do not fit.
func TestWatcherCounts(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sample
		want kind
	}{
		{"fits", sample{Clients: 20, Open: 15, FDs: 50, Servers: 10, metrics: product.Metrics{}}, ""},
		{"pool too large", sample{metrics: product.Metrics{`fencepost_pool_servers{database="tx",user="bob",state="idle"}`: 6}}, tooMany},
		{"database too large", sample{metrics: product.Metrics{`fencepost_pool_servers{database="tx",user="bob",state="idle"}`: 5,
			`fencepost_pool_servers{database="tx",user="alice",state="active"}`: 4}}, tooMany},
		{"clients that are gone", sample{Clients: 40, Open: 5, FDs: 40, metrics: product.Metrics{}}, tooMany},
		{"descriptors", sample{Clients: 5, Open: 5, FDs: 400, metrics: product.Metrics{}}, leak},
	} {
		r := testRun()
		w := &watcher{r: r, suspect: map[string]time.Time{}}
		w.counts(c.s)
		for key := range w.suspect { // it has lasted
			w.suspect[key] = time.Now().Add(-time.Minute)
		}
		w.counts(c.s)
		if got := r.count() > 0; got != (c.want != "") || got && r.tally.counts[c.want] == 0 {
			t.Errorf("%s: %v", c.name, r.tally.counts)
		}
	}
}

// TestNames: names are unique, since they are what the report and -only go by.
func TestNames(t *testing.T) {
	var all []string
	for _, a := range activities {
		all = append(all, a.name)
	}
	for _, a := range driverActivities {
		all = append(all, a.name)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("%d names for %d activities", n, len(all))
	}
	for _, a := range activities {
		if a.weight <= 0 || strings.Trim(a.modes, "tsm") != "" || a.modes == "" {
			t.Errorf("%s: weight %d, modes %q", a.name, a.weight, a.modes)
		}
	}
}
