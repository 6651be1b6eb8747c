package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A predicament is where a client is when it goes. Row n of the table held belongs to it.
type predicament struct {
	name string
	talk func(n int) conversation
	rest string // half a message, sent last

	// PostgreSQL finishes what was sent before a Terminate, however long that takes, and so does Fencepost.
	finishes bool
}

func talks(turns ...turn) func(int) conversation {
	return func(int) conversation { return turns }
}

var predicaments = []predicament{
	{name: "idle", talk: talks()},
	{name: "idle, after a query", talk: talks(turn{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"})},
	{name: "in a transaction", talk: func(n int) conversation {
		return conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"},
			{script(query(fmt.Sprintf("UPDATE held SET n = n + 1 WHERE id = %d", n))), "C[UPDATE 1] Z[T]"}}
	}},
	{name: "in a failed transaction", talk: func(n int) conversation {
		return conversation{{script(query(fmt.Sprintf("BEGIN; UPDATE held SET n = n + 1 WHERE id = %d; SAVEPOINT s; SELECT 1/(random() * 0)::int", n))),
			"C[BEGIN] C[UPDATE 1] C[SAVEPOINT] T E[22012] Z[E]"}}
	}},
	{name: "in an implicit transaction of a pipeline", talk: func(n int) conversation {
		return conversation{{script(run(fmt.Sprintf("UPDATE held SET n = n + 1 WHERE id = %d", n)), flush), "1 2 C[UPDATE 1]"}}
	}},
	{name: "in a pipeline, unanswered", talk: func(n int) conversation {
		return conversation{{script(run(fmt.Sprintf("UPDATE held SET n = n + 1 WHERE id = %d", n))), ""}}
	}},
	{name: "behind an error, before the Sync", talk: talks(turn{script(parse("", "SELEC")), "E[42601]"})},
	{name: "in a portal", talk: talks(turn{script(query("BEGIN"), parse("", "SELECT generate_series(1, 5)"), bind("", ""), execute("", 2), flush),
		"C[BEGIN] Z[T] 1 2 D[1] D[2] s"})},
	{name: "in COPY in", talk: talks(turn{script(query("COPY copied FROM STDIN")), "G"}, turn{script(copyData("1\ta\n")), ""})},
	{name: "in COPY in, in a transaction", talk: talks(turn{script(query("BEGIN; COPY copied FROM STDIN")), "C[BEGIN] G"}, turn{script(copyData("1\ta\n")), ""})},
	{name: "in COPY in, extended", talk: talks(turn{script(run("COPY copied FROM STDIN"), sync_), "1 2 G"}, turn{script(copyData("1\ta\n")), ""})},
	{name: "in COPY in, in the middle of a message", talk: talks(turn{script(query("COPY copied FROM STDIN")), "G"}), rest: "d\x00\x00\x10\x00abc"},
	{name: "in COPY out, unread", talk: talks(turn{script(query("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 30000)) TO STDOUT")), "H"})},
	{name: "with unread rows", talk: talks(turn{script(query("SELECT repeat('x', 1000) FROM generate_series(1, 30000)")), "T"})},
	{name: "with an endless answer", talk: talks(turn{script(query("SELECT repeat('x', 1000), generate_series(1, 1000000000)")), "T"})},
	{name: "while its query runs", talk: talks(turn{script(query("SELECT pg_sleep(0.3)")), ""})},
	{name: "while its query runs for ever", talk: talks(turn{script(query("SELECT pg_sleep(600)")), ""}), finishes: true},
	{name: "in half a header", talk: talks(), rest: "Q\x00"},
	{name: "in half a query", talk: talks(), rest: "Q\x00\x00\x00\x20SELECT"},
	{name: "in half a query, in a transaction", talk: func(n int) conversation {
		return conversation{{script(query(fmt.Sprintf("BEGIN; UPDATE held SET n = n + 1 WHERE id = %d", n))), "C[BEGIN] C[UPDATE 1] Z[T]"}}
	}, rest: "Q\x00\x00\x00\x20SELECT"},
	{name: "with state of its session", talk: talks(turn{script(query("CREATE TEMP TABLE mine (n int); LISTEN here; SET search_path = nowhere; SELECT pg_advisory_lock(1)"),
		query("DISCARD ALL")), "C[CREATE TABLE] C[LISTEN] C[SET] T D[] C[SELECT 1] Z[I] C[DISCARD ALL] Z[I]"})},
}

// Whatever a client was doing when it went: what it held is free, what it began is undone, and the pool is whole.
func TestClientsThatVanish(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		for _, d := range departures {
			t.Run(mode+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, "18", "default_pool_size = 30")
				l.sql("CREATE TABLE held AS SELECT id, 0 AS n FROM generate_series(1, 100) id", "CREATE TABLE copied (n int, t text)", "GRANT ALL ON held, copied TO PUBLIC")
				vanish(t, l, l.mode(mode), d)
			})
		}
	}
}

func vanish(t *testing.T, l *lab, at place, d departure) {
	var clients []*raw
	for i, p := range predicaments {
		if p.finishes && d.name == "terminate" {
			continue
		}
		c := mustLogin(t, at)
		if err := c.hold(p.talk(i + 1)); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if err := c.write([]byte(p.rest)); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		d.go_(c)
	}
	began := time.Now()
	l.eventually(0, "state <> 'idle'")
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the backends came to rest after %s", took)
	}
	l.poolsAtRest()
	c := mustLogin(t, at)
	got, err := c.exchange(1, query("UPDATE held SET n = n + 1; SELECT count(*) FROM copied; SELECT count(*) FROM held WHERE n <> 1; UPDATE held SET n = 0"))
	check(t, "what is left", got, err, "C[UPDATE 100] T D[0] C[SELECT 1] T D[0] C[SELECT 1] C[UPDATE 100] Z[I]")
	c.close()
	l.whole(at, 30)
}

// poolsAtRest checks the console's figures when nobody is there.
func (l *lab) poolsAtRest() {
	l.t.Helper()
	var last string
	err := poll(10*time.Second, func() (bool, error) {
		last = ""
		for _, row := range l.rows("SHOW POOLS") {
			if row["database"] == "fencepost" || row["database"] == "pgbouncer" {
				continue
			}
			for _, column := range []string{"cl_active", "cl_waiting", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active", "sv_active_cancel",
				"sv_being_canceled", "sv_tested", "sv_login", "maxwait"} {
				if row[column] != "0" {
					last += fmt.Sprintf("%s of %s is %s; ", column, row["database"], row[column])
				}
			}
		}
		return last == "", nil
	})
	if err != nil {
		l.t.Errorf("SHOW POOLS at rest: %s", last)
	}
}

// What a client sends before it says goodbye is done, although nobody waits for the answer.
func TestLastWords(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2")
	l.sql("CREATE TABLE said (n int)", "GRANT ALL ON said TO PUBLIC")
	atEach(t, l, func(t *testing.T, at place) {
		l.sql("TRUNCATE said")
		c := mustLogin(t, at)
		if err := c.send(script(run("INSERT INTO said VALUES (1)"), sync_, query("SELECT pg_sleep(3); INSERT INTO said VALUES (2)"), &pgproto3.Terminate{})...); err != nil {
			t.Fatal(err)
		}
		c.nc.Close()
		rows := ""
		err := poll(patience, func() (bool, error) {
			rows = l.value("SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM said")
			return rows == "1 2", nil
		})
		if err != nil {
			t.Errorf("rows %q, want both", rows)
		}
		l.atRest()
		// And with somebody who listens, it is answered first.
		c = mustLogin(t, at)
		got, err := c.exchange(3, script(query("SELECT 1"), query("SELECT 2"), &pgproto3.Terminate{})...)
		check(t, "answers", got, err, "T D[1] C[SELECT 1] Z[I] T D[2] C[SELECT 1] Z[I] EOF")
	})
}

// Field case 4.11: the answer that opens a transaction meets a client that is gone.
func TestBeginAndGo(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 5")
	for _, mode := range []string{"transaction", "session"} {
		l.each(10, func(int) error {
			for i := range 50 {
				c, err := l.mode(mode).login()
				if err != nil {
					return err
				}
				if err := c.send(script(run("BEGIN"), flush, run("SELECT 1"), flush)...); err != nil {
					return err
				}
				departures[i%3].go_(c)
				c.nc.Close()
			}
			return nil
		})
		l.atRest()
		l.poolsAtRest()
		l.whole(l.mode(mode), 5)
	}
}

// Field case 6.02: clients that go abruptly do not cost their backends.
func TestAbruptExitsKeepBackends(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 10", "max_client_conn = 300")
	l.whole(l.transaction(), 10)
	before := l.value("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = current_database() AND usename <> 'postgres'")
	var served atomic.Int64
	l.each(200, func(i int) error {
		c, err := l.transaction().login()
		if err != nil {
			return err
		}
		if i%3 > 0 {
			sql := []string{"", "SELECT repeat('x', 1000) FROM generate_series(1, 3000)", "BEGIN"}[i%3]
			if err := c.send(query(sql)); err != nil {
				return err
			}
			if _, err := c.next(); err != nil {
				return err
			}
		}
		c.rst()
		served.Add(1)
		return nil
	})
	mustQuick(t, l, 20)
	l.atRest()
	after := l.value("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = current_database() AND usename <> 'postgres'")
	replaced := 0
	for pid := range strings.FieldsSeq(before) {
		if !strings.Contains(" "+after+" ", " "+pid+" ") {
			replaced++
		}
	}
	if replaced > 2 || served.Load() != 200 {
		t.Errorf("%d of 10 backends were replaced after %d abrupt exits", replaced, served.Load())
	}
}

// Field case 6.10: clients that gave up while they waited keep no place, and their statements do not run.
func TestWaitersThatGiveUp(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 4")
	l.sql("CREATE TABLE late (n int)", "GRANT ALL ON late TO PUBLIC")
	var sleepers []*raw
	for range 8 {
		c := mustLogin(t, l.transaction())
		if err := c.send(query("SELECT pg_sleep(1)")); err != nil {
			t.Fatal(err)
		}
		sleepers = append(sleepers, c)
	}
	l.waiting(4)
	l.each(100, func(i int) error {
		c, err := l.transaction().login()
		if err != nil {
			return err
		}
		if err := c.send(query("INSERT INTO late VALUES (1)")); err != nil {
			return err
		}
		departures[i%3].go_(c)
		return nil
	})
	l.waiting(4)
	for _, c := range sleepers {
		got, err := c.answers(1)
		check(t, "sleeper", got, err, "T D[] C[SELECT 1] Z[I]")
		c.close()
	}
	mustQuick(t, l, 20)
	if n := l.value("SELECT count(*)::text FROM late"); n != "0" {
		t.Errorf("%s statements of clients that had gone were run", n)
	}
	l.poolsAtRest()
}

// What a client has of its session does not outlive it in session mode.
func TestSessionsAreReset(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	for _, d := range departures {
		c := mustLogin(t, l.session())
		err := c.hold(conversation{
			{script(query("CREATE TEMP TABLE mine (n int)"), query("LISTEN here"), query("SET search_path = nowhere"), query("PREPARE p AS SELECT 1"),
				query("SELECT pg_advisory_lock(7)"), query("SET work_mem = '7MB'"), query("DECLARE c CURSOR WITH HOLD FOR SELECT 1")),
				"C[CREATE TABLE] Z[I] C[LISTEN] Z[I] C[SET] Z[I] C[PREPARE] Z[I] T D[] C[SELECT 1] Z[I] C[SET] Z[I] C[DECLARE CURSOR] Z[I]"},
			{[]pgproto3.FrontendMessage{parse("named", "SELECT 1"), sync_}, "1 Z[I]"},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.go_(c)
		next := mustLogin(t, l.session())
		err = next.hold(conversation{
			{script(query("CREATE TEMP TABLE mine (n int)"), query("SHOW search_path"), query("SHOW work_mem"), query("SELECT count(*) FROM pg_prepared_statements"),
				query("SELECT count(*) FROM pg_cursors"), query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), query("SELECT count(*) FROM pg_listening_channels()")),
				`C[CREATE TABLE] Z[I] T D["$user", public] C[SHOW] Z[I] T D[4MB] C[SHOW] Z[I] T D[0] C[SELECT 1] Z[I] T D[0] C[SELECT 1] Z[I] T D[0] C[SELECT 1] Z[I] T D[0] C[SELECT 1] Z[I]`},
		})
		if err != nil {
			t.Errorf("after %s: %v", d.name, err)
		}
		next.close()
	}
}
