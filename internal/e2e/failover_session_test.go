package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fencepost/wire"
)

// superseded are the predicaments of clients in session mode whose server loses its role while it lives or stands still,
// and what each of them is told (docs/failover.md has the same table).
var superseded = []struct {
	name  string
	talk  conversation
	asks  string // what it sends behind the failover; "" for what hears of it unasked
	want  string
	text  string // part of the error's detail or hint
	count bool   // in pg_stat_activity as active until then
}{
	{name: "idle", talk: conversation{{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"}}, want: "57P01", text: "No transaction was open"},
	{name: "in a transaction, which asks", talk: conversation{{script(query("BEGIN; INSERT INTO written VALUES ('asks', 1)")), "C[BEGIN] C[INSERT 0 1] Z[T]"}},
		asks: "SELECT 1", want: "57P01", text: "not committed"},
	{name: "in a transaction, which commits", talk: conversation{{script(query("BEGIN; INSERT INTO written VALUES ('commits', 1)")), "C[BEGIN] C[INSERT 0 1] Z[T]"}},
		asks: "COMMIT", want: "57P01", text: "not committed"},
	{name: "in a statement of a transaction", talk: conversation{{script(query("BEGIN; INSERT INTO written VALUES ('in', 1)")), "C[BEGIN] C[INSERT 0 1] Z[T]"},
		{script(query("SELECT pg_sleep(60)")), ""}}, want: "57P01", text: "not committed", count: true},
	{name: "in a statement", talk: conversation{{script(query("SELECT pg_sleep(60)")), ""}}, want: "08007", text: "may or may not have taken effect", count: true},
	{name: "in a commit", talk: conversation{{script(query("BEGIN; INSERT INTO written VALUES ('commit', 1)")), "C[BEGIN] C[INSERT 0 1] Z[T]"},
		{script(query("COMMIT")), ""}}, want: "08007", text: "may or may not have taken effect", count: true},
}

// A client in session mode learns that its server is the primary no more, and no more than is certain about what it was
// doing; it reconnects and is served. A client that reads from a standby is left alone.
func TestFailoverSessionMode(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"promoted beside the living primary", "promoted while the primary stands still"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, front{standbys: 2})
			g.elects(g.nodes[0], "healthy")
			old, next, reader := g.nodes[0], g.nodes[1], g.nodes[2]
			g.notes(next.Addr(), "reads=yes")
			reads := mustLogin(t, g.session(), "options", "-c fencepost.target=standby")
			by, err := reads.where(false)
			if err != nil || by == fmt.Sprint(old.Port) {
				t.Fatalf("a session that reads from a standby: %s, %v", by, err)
			}
			if by == fmt.Sprint(next.Port) { // the other one is to be promoted
				next, reader = reader, next
			}
			// Commits wait for a standby that does not exist: so one can be caught in the middle.
			g.must(old.Configure(map[string]string{"synchronous_standby_names": "nobody"}))
			g.must(poll(patience, func() (bool, error) { return g.value("SHOW synchronous_standby_names") == "nobody", nil }))

			var clients []*raw
			active := 0
			for _, s := range superseded {
				c := mustLogin(t, g.session())
				if err := c.hold(s.talk); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				clients = append(clients, c)
				if s.count {
					active++
				}
			}
			g.eventually(active, "state = 'active' AND usename = '"+anyUser+"'")
			if strings.Contains(how, "still") {
				g.must(old.Freeze())
			}
			since := g.promote(next)
			for i, s := range superseded {
				g.ends(s.name, clients[i], s.asks, s.want, s.text)
			}
			t.Logf("all sessions heard of it within %s", time.Since(since).Round(time.Millisecond))
			if got, err := reads.where(false); err != nil || got != fmt.Sprint(reader.Port) {
				t.Errorf("a session that reads from a standby: %s, %v", got, err)
			}
			g.elects(next, "healthy")
			for range superseded {
				if got, err := served(g.session(), true); err != nil || got != fmt.Sprint(next.Port) {
					t.Errorf("after it: %s, %v", got, err)
				}
			}
			// What was told not to be committed is not; of the commit under way either may be true.
			if n := g.value("SELECT count(*)::text FROM written WHERE who NOT IN ('probe', 'commit')"); n != "0" {
				t.Errorf("%s rows of transactions that were not committed are at the new primary", n)
			}
			reads.close()
			// The old server goes on with what nobody waits for any more.
			g.must(old.Thaw())
			g.must(old.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'active' AND usename = '"+anyUser+"'"))
			g.none()
		})
	}
}

// ends checks how a session ends: unasked, or at what it asks next.
func (g *group) ends(what string, c *raw, asks, code, text string) {
	g.t.Helper()
	if asks != "" {
		// What it hears unasked would be too early: many drivers do not read between their statements.
		if m, err := c.nextWithin(300 * time.Millisecond); err == nil || gone(err) {
			g.t.Errorf("%s: heard %q, %v before it asked", what, m.typ, err)
			return
		}
		if err := c.send(query(asks)); err != nil {
			g.t.Errorf("%s: %v", what, err)
			return
		}
	}
	for {
		m, err := c.next()
		switch {
		case err != nil:
			g.t.Errorf("%s: %v without an error before", what, err)
			return
		case m.typ != wire.MsgErrorResponse:
			continue
		}
		said := strings.Join([]string{field(m.body, wire.FieldMessage), field(m.body, wire.FieldDetail), field(m.body, wire.FieldHint)}, "\n")
		if field(m.body, wire.FieldLocalizedSeverity) != "FATAL" || field(m.body, wire.FieldCode) != code || !strings.Contains(said, text) {
			g.t.Errorf("%s: %s %s, want FATAL %s with %q:\n%s", what, field(m.body, wire.FieldLocalizedSeverity), field(m.body, wire.FieldCode), code, text, said)
		}
		if _, err := c.next(); !gone(err) {
			g.t.Errorf("%s: the session goes on after a FATAL: %v", what, err)
		}
		return
	}
}

// Sessions through a switchover in order, a crash and a restart: writers in session mode are bound to primaries alone and
// go on.
func TestFailoverSessionModeWriters(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 1})
	ctx := t.Context()
	g.elects(g.nodes[0], "healthy")
	w := g.startWriters("session", 3)
	old, next := g.nodes[0], g.nodes[1]
	g.must(old.Kill())
	first, last := w.all("crash", g.promote(next), next)
	t.Logf("crash: after the primary took writes the first client wrote after %s, the last after %s", first, last)
	g.must(old.Rebuild(ctx, next))
	g.must(next.Restart(ctx))
	w.all("restart", time.Now(), next)
	w.verdict(lossCodes)
	g.none()
}

// Somebody ends all idle sessions of a healthy primary, the monitor's among them, again and again. Each hears what all hear at
// a shutdown. It is none: transactions go on, and nothing is given up.
func TestIdleSessionsAreEnded(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 1})
	g.elects(g.node, "healthy")
	c := mustLogin(t, g.transaction())
	if got, err := c.exchange(1, query("BEGIN; INSERT INTO written VALUES ('kept', 1)")); err != nil || !strings.HasSuffix(got, "Z[T]") {
		t.Fatalf("%s, %v", got, err)
	}
	for range 20 {
		g.value("SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE state = 'idle' AND backend_type = 'client backend' AND pid <> pg_backend_pid()")
		// A statement may meet a connection that is being ended just then, and hears of it.
		g.must(poll(patience, func() (bool, error) { _, err := served(g.transaction(), true); return err == nil, nil }))
	}
	if got, err := c.exchange(1, query("COMMIT")); err != nil || got != "C[COMMIT] Z[I]" {
		t.Errorf("commit: %s, %v\n%s", got, err, g.said())
	}
	g.elects(g.node, "healthy")
	if lines := g.pooler.Lines(time.Time{}, "shard: state", `"state":"failover"`); len(lines) > 0 {
		t.Errorf("given up: %v", lines)
	}
}
