package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"

	"fencepost/internal/pgcluster"
	"fencepost/internal/product"
)

// lab is one test's own database, on a server it shares with other tests, and its own Fencepost in front.
type lab struct {
	t      testing.TB
	node   *pgcluster.Node
	db     string
	pooler *pooler
}

// place is somewhere to connect to: the server itself, or a database of Fencepost's.
type place struct {
	name     string // direct, session, transaction
	addr     string
	database string
}

func (p place) host() string { h, _, _ := net.SplitHostPort(p.addr); return h }

func (p place) port() int {
	_, s, _ := net.SplitHostPort(p.addr)
	n, _ := strconv.Atoi(s)
	return n
}

func (p place) login(params ...string) (*raw, error) { return login(p.addr, p.database, params...) }

var databases atomic.Int64

// newDatabase makes an empty database that is dropped when the test ends.
func newDatabase(t testing.TB, version string) (*pgcluster.Node, string) {
	t.Helper()
	n := server(t, version)
	name := fmt.Sprintf("e2e_%d", databases.Add(1))
	ctx := t.Context()
	err := n.Exec(ctx, "CREATE DATABASE "+name, "GRANT ALL ON DATABASE "+name+" TO PUBLIC")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := n.Connect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "GRANT ALL ON SCHEMA public TO PUBLIC"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := n.Exec(ctx, terminateAll(name), "DROP DATABASE "+name); err != nil {
			t.Logf("clean up: %v", err)
		}
	})
	return n, name
}

func terminateAll(db string) string {
	return "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + db + "' AND pid <> pg_backend_pid()"
}

// newLab makes a database and starts Fencepost in front of it. Lines are settings of [fencepost].
func newLab(t testing.TB, version string, lines ...string) *lab {
	t.Helper()
	n, db := newDatabase(t, version)
	return &lab{t: t, node: n, db: db, pooler: startPooler(t, settings{host: n.Addr(), dbname: db, lines: lines})}
}

func (l *lab) direct() place       { return place{"direct", l.node.Addr(), l.db} }
func (l *lab) mode(m string) place { return place{m, l.pooler.addr, m} }
func (l *lab) transaction() place  { return l.mode("transaction") }
func (l *lab) session() place      { return l.mode("session") }

// sql runs statements on the server itself, as superuser in the test's database.
func (l *lab) sql(sql ...string) {
	l.t.Helper()
	conn := l.admin()
	defer conn.Close(l.t.Context())
	for _, s := range sql {
		if _, err := conn.Exec(l.t.Context(), s); err != nil {
			l.t.Fatalf("%s: %v", s, err)
		}
	}
}

// value runs a query on the server itself, as superuser in the test's database.
func (l *lab) value(sql string) string {
	l.t.Helper()
	conn := l.admin()
	defer conn.Close(l.t.Context())
	var v string
	if err := conn.QueryRow(l.t.Context(), sql).Scan(&v); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (l *lab) admin() *pgx.Conn {
	l.t.Helper()
	conn, err := l.node.Connect(l.t.Context(), l.db)
	if err != nil {
		l.t.Fatal(err)
	}
	return conn
}

// backends is how many server processes in the test's database meet a condition on pg_stat_activity.
func (l *lab) backends(where string) int {
	l.t.Helper()
	var n int
	err := l.node.QueryRow(l.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+l.db+
		"' AND backend_type = 'client backend' AND ("+where+")", &n)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// eventually waits until as many backends as wanted meet the condition.
func (l *lab) eventually(want int, where string) {
	l.t.Helper()
	n := -1
	if err := poll(10*time.Second, func() (bool, error) { n = l.backends(where); return n == want, nil }); err != nil {
		l.t.Errorf("%d backends with %s, want %d, %v; pg_stat_activity:\n%s", n, where, want, err, l.activity())
	}
}

func (l *lab) activity() string {
	return l.value(`SELECT coalesce(string_agg(format('%s %s %s %s: %s', pid, usename, state, wait_event, left(query, 80)), E'\n'), '')
		FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// atRest waits until no backend of the test's database runs, waits or holds a transaction.
func (l *lab) atRest() {
	l.t.Helper()
	l.eventually(0, "state <> 'idle'")
}

// whole checks that a pool of n backends still has all of them: n clients at once each get one of their own.
func (l *lab) whole(at place, n int) {
	l.t.Helper()
	var mu sync.Mutex
	pids := map[string]bool{}
	l.each(n, func(int) error {
		c, err := at.login()
		if err != nil {
			return err
		}
		defer c.close()
		got, err := c.exchange(1, &pgproto3.Query{String: "BEGIN"})
		if err != nil || got != "C[BEGIN] Z[T]" {
			return fmt.Errorf("BEGIN: %s, %w", got, err)
		}
		pid, err := c.query("SELECT pg_backend_pid()")
		if err != nil {
			return err
		}
		mu.Lock()
		pids[pid] = true
		mu.Unlock()
		if err := poll(patience, func() (bool, error) { mu.Lock(); defer mu.Unlock(); return len(pids) == n, nil }); err != nil {
			return fmt.Errorf("the pool gives fewer than %d connections: %w", n, err)
		}
		_, err = c.query("COMMIT")
		return err
	})
}

// each runs f for 0 to n-1 at the same time.
func (l *lab) each(n int, f func(i int) error) {
	l.t.Helper()
	if err := together(n, f); err != nil {
		l.t.Error(err)
	}
}

func together(n int, f func(i int) error) error {
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			if err := f(i); err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// check compares what came back.
func check(t testing.TB, what, got string, err error, want string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v; want %s", what, err, want)
	} else if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, short(got), short(want))
	}
}

func short(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most/2] + " … " + s[len(s)-most/2:]
	}
	return s
}

// mustLogin ends the test if there is no login.
func mustLogin(t testing.TB, at place, params ...string) *raw {
	t.Helper()
	c, err := at.login(params...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.nc.Close() })
	return c
}

// console opens the console.
func (l *lab) console() *raw {
	l.t.Helper()
	c, err := dial(l.pooler.addr)
	if err != nil {
		l.t.Fatal(err)
	}
	if got, err := c.startup(version30, "user", "ops", "database", "fencepost"); err != nil || !strings.HasSuffix(got, "Z[I]") {
		l.t.Fatalf("console: %s %v", got, err)
	}
	return c
}

// command runs a command of the console that returns no rows.
func (l *lab) command(sql string) {
	l.t.Helper()
	c := l.console()
	defer c.close()
	if _, err := c.query(sql); err != nil {
		l.t.Fatal(err)
	}
}

// rows runs a command of the console that does.
func (l *lab) rows(sql string) []product.Row {
	l.t.Helper()
	c := &product.Console{Addr: l.pooler.addr, User: "ops", Password: "ops"}
	defer c.Close()
	rows, err := c.Run(l.t.Context(), sql)
	if err != nil {
		l.t.Fatal(err)
	}
	return rows
}

// waiting waits until n clients are in queues for a backend.
func (l *lab) waiting(n int) {
	l.t.Helper()
	err := poll(patience, func() (bool, error) {
		got := 0
		for _, row := range l.rows("SHOW POOLS") {
			waiting, err := strconv.Atoi(row["cl_waiting"])
			if err != nil {
				return false, err
			}
			got += waiting
		}
		return got == n, nil
	})
	if err != nil {
		l.t.Fatalf("waiting for %d clients to wait: %v", n, err)
	}
}
