package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/internal/pgcluster"
)

const administrator = "E[57P01] EOF"

// A client whose server process is terminated is told so, as PostgreSQL would tell it, wherever it is; the pool replaces
// what it lost.
func TestTerminatedWhileHeld(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 20")
	l.sql("CREATE TABLE copied (n int, t text)", "GRANT ALL ON copied TO PUBLIC")
	states := []struct {
		name string
		talk conversation
		want string
	}{
		{"in a query", conversation{{script(query("SELECT pg_sleep(60)")), ""}}, "T " + administrator},
		{"in a query of a transaction", conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}, {script(query("SELECT pg_sleep(60)")), ""}}, "T " + administrator},
		{"idle in a transaction", conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}, administrator},
		{"idle in a failed transaction", conversation{{script(query("BEGIN; SELECT 1/(random() * 0)::int")), "C[BEGIN] T E[22012] Z[E]"}}, administrator},
		{"in a pipeline", conversation{{script(run("SELECT 1"), flush), "1 2 D[1] C[SELECT 1]"}}, administrator},
		{"in COPY in", conversation{{script(query("COPY copied FROM STDIN")), "G"}, {script(copyData("1\ta\n")), ""}}, administrator},
		{"in COPY in, extended", conversation{{script(run("COPY copied FROM STDIN"), sync_), "1 2 G"}}, administrator},
	}
	atEach(t, l, func(t *testing.T, at place) {
		var clients []*raw
		for _, s := range states {
			c := mustLogin(t, at)
			if err := c.hold(s.talk); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			clients = append(clients, c)
		}
		l.eventually(2, "state = 'active' AND query = 'SELECT pg_sleep(60)'")
		l.sql(terminateAll(l.db))
		for i, s := range states {
			got, err := clients[i].first("")
			// RowDescription of a statement that never gave a row may have been in the server's buffer.
			if err != nil || got != s.want && "T "+got != s.want {
				t.Errorf("%s: %s, %v; want %s", s.name, got, err, s.want)
			}
		}
		if at.name != "direct" {
			l.poolsAtRest()
			l.whole(at, 20)
		}
	})
}

// Field case 6.04: backends that died while nobody held them are not given to anybody.
func TestTerminatedWhileIdle(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 10")
	for _, at := range []place{l.transaction(), l.session()} {
		l.whole(at, 10)
		for range 10 {
			l.terminate()
			l.each(30, func(int) error {
				return converse(at, conversation{{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"}})
			})
		}
		l.whole(at, 10)
	}
}

// Clients that stay connected in transaction mode do not notice either.
func TestTerminatedBetweenTransactions(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5")
	var clients []*raw
	for range 20 {
		clients = append(clients, mustLogin(t, l.transaction(), "application_name", "stays"))
	}
	for range 10 {
		l.each(len(clients), func(i int) error {
			return clients[i].hold(conversation{{script(query("BEGIN"), query("SHOW application_name"), query("COMMIT")), "C[BEGIN] Z[T] T D[stays] C[SHOW] Z[T] C[COMMIT] Z[I]"}})
		})
		l.terminate()
	}
}

// terminate ends all backends and returns when they are gone: one that has its signal and not yet acted on it may be given
// a query, which nobody can help.
func (l *lab) terminate() {
	l.t.Helper()
	pids := l.value(fmt.Sprintf(`SELECT coalesce(string_agg(pid::text, ','), '0') FROM
		(SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' AND usename <> 'postgres') t`, l.db))
	l.eventually(0, "pid IN ("+pids+")")
}

// The server as a whole goes and comes back, in each of the ways it can.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	cluster := pgcluster.New(t, pgcluster.Options{Version: "15", Roles: []pgcluster.Role{{Name: anyUser}}})
	node := cluster.Primary()
	p := startPooler(t, settings{host: node.Addr(), dbname: "postgres", lines: []string{`server_login_retry = "200ms"`, "default_pool_size = 5"}})
	at := func(mode string) place { return place{mode, p.addr, mode} }
	for name, stop := range map[string]func() error{
		"fast":      func() error { return node.Stop(t.Context(), pgcluster.Fast) },
		"immediate": func() error { return node.Stop(t.Context(), pgcluster.Immediate) },
		"kill":      node.Kill,
	} {
		stays := mustLogin(t, at("transaction"))
		if got, err := stays.query("SELECT 1"); err != nil || got != "1" {
			t.Fatalf("%s: %s, %v", name, got, err)
		}
		open, session, running := mustLogin(t, at("transaction")), mustLogin(t, at("session")), mustLogin(t, at("transaction"))
		for c, talk := range map[*raw]conversation{open: {{script(query("BEGIN")), "C[BEGIN] Z[T]"}}, session: {{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"}},
			running: {{script(query("BEGIN"), query("SELECT pg_sleep(60)")), "C[BEGIN] Z[T]"}}} {
			if err := c.hold(talk); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		codes := map[string]string{"fast": "57P01", "immediate": "57P02 57P01 08006", "kill": "08006"}[name]
		for what, c := range map[string]*raw{"open": open, "session": session} {
			endsWith(t, name+", "+what, c, codes)
		}
		endsWith(t, name+", running", running, strings.ReplaceAll(codes, "08006", "08007"))
		// A client between transactions waits until the server is back.
		if err := stays.send(query("SELECT 'back'")); err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := stays.expect("T D[back] C[SELECT 1] Z[I]"); err != nil {
			t.Errorf("%s: after the restart: %v", name, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: it took %s to find the server back", name, took)
		}
		stays.close()
	}
}

// endsWith checks that a session ends with an error of one of these codes.
func endsWith(t testing.TB, what string, c *raw, codes string) {
	t.Helper()
	got, err := c.first("")
	got = strings.TrimPrefix(got, "T ")
	for code := range strings.FieldsSeq(codes) {
		if got == "E["+code+"] EOF" || strings.HasPrefix(got, "N[") && strings.HasSuffix(got, "E["+code+"] EOF") {
			return
		}
	}
	t.Errorf("%s: the session ended with %q, %v; want one of %s", what, got, err, codes)
}

// Field case 8.06: a reload that changes nothing about the servers keeps every connection to them, and the clients.
func TestReloadKeepsBackends(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5", `log_level = "info"`)
	l.whole(l.transaction(), 5)
	client := mustLogin(t, l.session())
	pids := func() string {
		return l.value("SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND usename <> 'postgres'")
	}
	if got, err := client.query("SELECT 1"); err != nil || got != "1" {
		t.Fatal(got, err)
	}
	before := pids()
	for i, level := range []string{"info", "warn", "info", "debug"} {
		l.pooler.rewrite(t, func(text string) string { return replaceLine(text, "log_level", fmt.Sprintf("log_level = %q", level)) })
		if i%2 == 0 {
			l.command("RELOAD")
		} else if err := l.pooler.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		mustQuick(t, l, 5)
	}
	if after := pids(); after != before {
		t.Errorf("backends before %s, after %s", before, after)
	}
	if got, err := client.query("SELECT 2"); err != nil || got != "2" {
		t.Errorf("a client that stayed: %s, %v", got, err)
	}
	// A broken file changes nothing either.
	l.pooler.Tolerate("reload failed")
	l.pooler.rewrite(t, func(text string) string { return text + "\nnonsense = 1\n" })
	c := l.console()
	defer c.close()
	got, err := c.exchange(1, query("RELOAD"))
	check(t, "RELOAD of a broken file", got, err, "E[F0000] Z[I]")
	mustQuick(t, l, 5)
}
