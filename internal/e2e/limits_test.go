package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// Field case 5.18: a client that gets no backend in time gets an error where a server would put one: with ReadyForQuery
// behind a Query, at the Sync in an extended batch. Its session goes on.
func TestQueryWaitTimeout(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1", `query_wait_timeout = "500ms"`)
	holder := mustLogin(t, l.transaction())
	if err := holder.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	whole := script(parse("", "SELECT 1"), describeStatement(""), bind("", ""), execute("", 0), sync_)
	for _, c := range []struct {
		name string
		talk conversation
	}{
		{"simple", conversation{{script(query("SELECT 1")), "E[53300] Z[I]"}}},
		{"a whole batch", conversation{{whole, "E[53300] Z[I]"}}},
		{"a batch in two parts", conversation{{whole[:2], "E[53300]"}, {whole[2:], "Z[I]"}}},
		{"a batch with Flush", conversation{{script(whole[:2], flush), "E[53300]"}, {script(whole[2:4], query("SELECT 1"), flush, sync_), "Z[I]"}}},
		{"two batches in one write", conversation{{script(whole, whole), "E[53300] Z[I] E[53300] Z[I]"}}},
		{"three queries in one write", conversation{{script(query("SELECT 1"), query("SELECT 2"), sync_), "E[53300] Z[I] E[53300] Z[I] E[53300] Z[I]"}}},
		{"COPY without waiting", conversation{{script(query("COPY x FROM STDIN"), copyData("1\n"), copyDone), "E[53300] Z[I]"}}},
		{"function call", conversation{{script(&pgproto3.FunctionCall{Function: 177}), "E[53300] Z[I]"}}},
		{"large", conversation{{script(query("SELECT '" + strings.Repeat("x", 1<<20) + "'")), "E[53300] Z[I]"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			cl := mustLogin(t, l.transaction())
			if err := cl.hold(c.talk); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < 400*time.Millisecond || took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			cl.hold(conversation{{script(sync_), "E[53300] Z[I]"}}) //nolint:errcheck // only that the session lives
			cl.close()
		})
	}
}

// The error says what was waited for and what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1", `query_wait_timeout = "100ms"`)
	holder := mustLogin(t, l.transaction())
	if err := holder.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	c := mustLogin(t, l.transaction())
	if err := c.send(query("SELECT 1")); err != nil {
		t.Fatal(err)
	}
	m, err := c.next()
	if err != nil || field(m.body, wire.FieldLocalizedSeverity) != "ERROR" || field(m.body, wire.FieldSeverity) != "ERROR" || !strings.HasPrefix(field(m.body, wire.FieldMessage), "query_wait_timeout") || field(m.body, wire.FieldHint) == "" {
		t.Errorf("%q, %v", m.body, err)
	}
}

// max_db_connections bounds the pools of a database together, and lets each of them have its turn.
func TestMaxDBConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5", "max_db_connections = 3")
	l.sql("DROP ROLE IF EXISTS another", "CREATE ROLE another LOGIN")
	l.each(20, func(i int) error {
		user := []string{anyUser, "another"}[i%2]
		for range 10 {
			c, err := dial(l.pooler.addr)
			if err != nil {
				return err
			}
			if got, err := c.startup(version30, "user", user, "database", "transaction"); err != nil || got != "R[0] Z[I]" {
				return fmt.Errorf("%s, %w", got, err)
			}
			// Not pg_stat_activity: a process that was told to go may still be there when the next one begins.
			if servers := l.rows("SHOW SERVERS"); len(servers) > 3 {
				return fmt.Errorf("%d backends: %v", len(servers), servers)
			}
			if err := c.hold(conversation{{script(query("SELECT pg_sleep(0.01)")), "T D[] C[SELECT 1] Z[I]"}}); err != nil {
				return err
			}
			c.close()
		}
		return nil
	})
	l.poolsAtRest()
	if n := l.backends("true"); n > 3 {
		t.Errorf("%d backends at rest", n)
	}
}

// A client that waits for another pool of its database is told so in time, at its login or at its query.
func TestMaxDBConnectionsReached(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "max_db_connections = 1", `query_wait_timeout = "500ms"`, `client_login_timeout = "1s"`)
	holder := mustLogin(t, l.transaction())
	if err := holder.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, l.pooler.addr)
	got, err := c.startup(version30, "user", "another", "database", "transaction")
	check(t, "login of another pool", got, err, "E[53300] EOF")
	err = converse(l.transaction(), conversation{{script(query("SELECT 1")), "E[53300] Z[I]"}})
	if err != nil {
		t.Errorf("the same pool: %v", err)
	}
}

// Server connections that are too old, or idle for too long, are replaced without anybody's notice.
func TestBackendsAge(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 3", `server_lifetime = "1s"`, "min_pool_size = 2")
	idle := newLab(t, "18", "default_pool_size = 3", `server_idle_timeout = "1s"`)
	idle.whole(idle.transaction(), 3)
	c := mustLogin(t, l.transaction())
	pids := map[string]bool{}
	err := poll(patience, func() (bool, error) {
		pid, err := c.query("SELECT pg_backend_pid()")
		pids[pid] = true
		return len(pids) >= 4, err
	})
	if err != nil {
		t.Errorf("with server_lifetime = 1s: %d backends, %v", len(pids), err)
	}
	idle.eventually(0, "true")
	c.close()
	l.eventually(2, "true")
}

// Statement mode takes no transaction blocks.
func TestStatementMode(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2")
	at := l.mode("statement")
	for _, c := range []conversation{
		{{script(query("SELECT 1"), query("SELECT 2; SELECT 3")), "T D[1] C[SELECT 1] Z[I] T D[2] C[SELECT 1] T D[3] C[SELECT 1] Z[I]"}, {script(run("SELECT 1"), sync_), "1 2 D[1] C[SELECT 1] Z[I]"}},
		{{script(query("BEGIN")), "C[BEGIN] Z[T] E[0A000] EOF"}},
		{{script(run("BEGIN"), sync_), "1 2 C[BEGIN] Z[T] E[0A000] EOF"}},
	} {
		if err := converse(at, c); err != nil {
			t.Error(err)
		}
	}
	l.atRest()
	l.poolsAtRest()
}

// PAUSE makes clients wait, RESUME lets them go on; whoever waits too long is told why.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2", `query_wait_timeout = "3s"`)
	mustQuick(t, l, 5)
	l.command("PAUSE transaction")
	l.eventually(0, "true")
	waits := mustLogin(t, l.transaction())
	if err := waits.hold(conversation{{script(query("SELECT 1")), "E[57P03] Z[I]"}}); err != nil {
		t.Error(err)
	}
	if err := waits.send(query("SELECT 2")); err != nil {
		t.Fatal(err)
	}
	l.waiting(1)
	l.command("RESUME transaction")
	if err := waits.expect("T D[2] C[SELECT 1] Z[I]"); err != nil {
		t.Error(err)
	}
}

// SIGTERM: sessions end at their next transaction boundary, none is cut, nobody new comes in; then the process ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5")
	idle, open, session, running := mustLogin(t, l.transaction()), mustLogin(t, l.transaction()), mustLogin(t, l.session()), mustLogin(t, l.transaction())
	for c, talk := range map[*raw]conversation{open: {{script(query("BEGIN")), "C[BEGIN] Z[T]"}}, session: {{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"}}} {
		if err := c.hold(talk); err != nil {
			t.Fatal(err)
		}
	}
	if err := running.send(query("SELECT pg_sleep(0.5), 'done'")); err != nil {
		t.Fatal(err)
	}
	l.eventually(1, "query LIKE '%done%' AND state = 'active'")
	if err := l.pooler.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*raw{idle, session} {
		if err := c.expect(administrator); err != nil {
			t.Error(err)
		}
	}
	if c, err := l.transaction().login(); err == nil {
		c.close()
		t.Error("a client was let in")
	}
	if err := running.expect("T D[|done] C[SELECT 1] Z[I] " + administrator); err != nil {
		t.Error(err)
	}
	if !l.pooler.Running() {
		t.Error("Fencepost ended with a transaction open")
	}
	if err := open.hold(conversation{{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[T]"}, {script(query("COMMIT")), "C[COMMIT] Z[I] " + administrator}}); err != nil {
		t.Error(err)
	}
	if err := poll(patience, func() (bool, error) { return !l.pooler.Running(), nil }); err != nil {
		t.Error("Fencepost does not end")
	}
	l.eventually(0, "true")
}

// A process that may not open the files that its settings need says so at its start. Clients it cannot serve are told at once, whether
// they say something or not; those it serves are served on, also by server connections that are opened then.
func TestDescriptorsExhausted(t *testing.T) {
	t.Parallel()
	n, db := newDatabase(t, "18")
	l := &lab{t: t, node: n, db: db, pooler: startPooler(t, settings{host: n.Addr(), dbname: db, files: 60, lines: []string{"default_pool_size = 2", `log_level = "info"`}})}
	if err := poll(patience, func() (bool, error) {
		return len(l.pooler.Lines(time.Time{}, `"warn"`, "limit of open files", `"limit":60`, `"needed":`, `"max_client_conn":1000`)) == 1, nil
	}); err != nil {
		t.Errorf("no warning at the start: %v", err)
	}
	mustQuick(t, l, 2)
	stays := mustLogin(t, l.transaction())
	const refused = "E[53300] EOF"
	var others []*raw
	packet := startupPacket(version30, "user", anyUser, "database", "session")
	for got := ""; got != refused; {
		c := mustDial(t, l.pooler.addr)
		if err := c.write(packet); err != nil {
			t.Fatal(err)
		}
		var err error
		if got, err = c.answers(1); err != nil || len(others) > 60 {
			t.Fatalf("client %d: %s, %v", len(others), got, err)
		}
		others = append(others, c)
	}
	if len(others) < 5 {
		t.Errorf("%d clients were served", len(others))
	}
	began := time.Now()
	for range 60 {
		others = append(others, mustDial(t, l.pooler.addr))
	}
	got, err := others[len(others)-1].answers(1)
	check(t, "one that says nothing", got, err, refused)
	got, err = greet(l.pooler.addr, packet)
	check(t, "one that logs in beside", got, err, refused)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the refusals took %s", took)
	}
	before := l.pooler.busy(t)
	for range 10 {
		<-time.After(100 * time.Millisecond)
		for _, c := range []*raw{stays, others[0], others[1]} {
			if got, err := c.query("SELECT 'served'"); err != nil || got != "served" {
				t.Fatalf("a client that was there before: %s, %v", got, err)
			}
		}
	}
	if used := l.pooler.busy(t) - before; used > 200*time.Millisecond && !raceDetector {
		t.Errorf("it used %s of processor time in a second", used)
	}
	if log := l.pooler.Log(); strings.Contains(log, "cannot accept") {
		t.Error("it ran out of files")
	}
	silent := others
	for _, c := range silent {
		c.nc.Close()
	}
	mustQuick(t, l, 2)
}
