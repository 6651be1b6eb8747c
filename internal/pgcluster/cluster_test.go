package pgcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"fencepost/internal/poll"
)

// abandon is set in a child process that starts a cluster and is then killed.
const abandon = "FENCEPOST_PGCLUSTER_ABANDON"

func TestMain(m *testing.M) {
	if os.Getenv(abandon) != "" {
		abandonCluster()
	}
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if left := descendants(os.Getpid()); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes left:", left)
		code = 1
	}
	os.Exit(code)
}

func run(t *testing.T, n *Node, sql ...string) {
	t.Helper()
	if err := n.Exec(t.Context(), sql...); err != nil {
		t.Fatal(err)
	}
}

func query[T any](t *testing.T, n *Node, sql string) (v T) {
	t.Helper()
	if err := n.QueryRow(t.Context(), sql, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is written on the primary is read on the standby, which takes over and gets a standby of its own.
func TestFailover(t *testing.T) {
	ctx := t.Context()
	c := New(t, Options{Standbys: 1, Databases: []string{"app"}})
	old, next := c.Primary(), c.Standbys()[0]
	run(t, old, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (7)")
	must(t, c.CatchUp(ctx))
	conn, err := pgx.Connect(ctx, next.URL(Superuser, "", "postgres"))
	must(t, err)
	defer conn.Close(ctx)
	var n int
	var recovering bool
	err = conn.QueryRow(ctx, "SELECT n, pg_is_in_recovery() FROM t").Scan(&n, &recovering)
	if err != nil || n != 7 || !recovering {
		t.Fatalf("on the standby: n = %d, in recovery = %v, %v", n, recovering, err)
	}
	if err := next.Exec(ctx, "INSERT INTO t VALUES (8)"); err == nil {
		t.Fatal("the standby took a write")
	}

	must(t, old.Kill())
	if old.Running() || old.PID() != 0 {
		t.Error("the killed server still runs")
	}
	must(t, next.Promote(ctx))
	if c.Primary() != next {
		t.Error("Primary is not the promoted node")
	}
	run(t, next, "INSERT INTO t VALUES (8)")
	must(t, old.Rebuild(ctx, next))
	third, err := c.AddStandby(ctx)
	must(t, err)
	run(t, next, "INSERT INTO t VALUES (9)")
	must(t, c.CatchUp(ctx))
	for _, standby := range []*Node{old, third} {
		if got := query[string](t, standby, "SELECT string_agg(n::text, ',' ORDER BY n) FROM t WHERE pg_is_in_recovery()"); got != "7,8,9" {
			t.Errorf("%s has %q", standby.Name, got)
		}
	}
}

func TestSwitchover(t *testing.T) {
	ctx := t.Context()
	c := New(t, Options{Standbys: 2})
	old, next := c.Nodes[0], c.Nodes[1]
	must(t, old.Stop(ctx, Fast))
	must(t, next.Promote(ctx))
	must(t, old.Follow(ctx, next))
	must(t, old.Start(ctx))
	must(t, c.Nodes[2].Follow(ctx, next))
	run(t, next, "CREATE TABLE t ()")
	must(t, c.CatchUp(ctx))
	for _, n := range c.Standbys() {
		if !query[bool](t, n, "SELECT pg_is_in_recovery() AND to_regclass('t') IS NOT NULL") {
			t.Errorf("%s does not follow", n.Name)
		}
	}
}

func TestEveryVersion(t *testing.T) {
	for _, v := range Versions() {
		if v == "13" {
			continue // nothing is promised for it
		}
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			c := New(t, Options{Version: v, Standbys: 1})
			if got := query[string](t, c.Primary(), "SHOW server_version"); !strings.HasPrefix(got, v+".") {
				t.Errorf("server_version = %q", got)
			}
			if query[bool](t, c.Primary(), "SELECT pg_is_in_recovery()") || !query[bool](t, c.Standbys()[0], "SELECT pg_is_in_recovery()") {
				t.Error("the roles are wrong")
			}
			if _, err := c.AddStandby(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKilledServerComesBack(t *testing.T) {
	ctx := t.Context()
	n := New(t, Options{}).Primary()
	conn, err := n.Connect(ctx, "postgres")
	must(t, err)
	defer conn.Close(ctx)
	run(t, n, "CREATE TABLE t AS SELECT 1 AS n", "CHECKPOINT", "INSERT INTO t VALUES (2)")
	port := n.Port
	must(t, n.Kill())
	if err := conn.Ping(ctx); err == nil {
		t.Error("the connection outlived the server")
	}
	must(t, n.Start(ctx))
	if got := query[int](t, n, "SELECT sum(n)::int FROM t"); got != 3 || n.Port != port {
		t.Errorf("after the restart: %d on port %d", got, n.Port)
	}
	must(t, n.Restart(ctx))
	if got := query[int](t, n, "SELECT sum(n)::int FROM t"); got != 3 {
		t.Errorf("after a clean restart: %d", got)
	}
}

// A frozen server answers nobody, neither on an open connection nor on a new one, and goes on where it was.
func TestFreeze(t *testing.T) {
	ctx := t.Context()
	n := New(t, Options{}).Primary()
	conn, err := n.Connect(ctx, "postgres")
	must(t, err)
	defer conn.Close(ctx)
	must(t, n.Freeze())
	if !n.Running() || !n.Frozen() {
		t.Error("not frozen")
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(ctx) }() // ends when the server is thawed
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(brief, n.URL(Superuser, "", "postgres")); err == nil {
		t.Error("a frozen server took a connection")
	}
	select {
	case err := <-answered:
		t.Fatalf("a frozen backend answered: %v", err)
	default:
	}
	must(t, n.Thaw())
	must(t, <-answered)
	run(t, n, "CREATE TABLE t ()")
	must(t, n.Freeze()) // Stop has to cope with it
}

func TestRoles(t *testing.T) {
	ctx := t.Context()
	roles := []Role{
		{Name: "scram", Password: "it's"},
		{Name: "md5", Password: "pw", Encryption: "md5", Attributes: "SUPERUSER"},
		{Name: "open"},
	}
	n := New(t, Options{Auth: "md5", HBA: []string{"host all open 127.0.0.1/32 trust"}, Roles: roles, Databases: []string{"a b"}}).Primary()
	for _, c := range []struct {
		user, password string
		ok             bool
	}{{"scram", "it's", true}, {"scram", "its", false}, {"md5", "pw", true}, {"md5", "wp", false}, {"open", "", true}} {
		conn, err := pgx.Connect(ctx, n.URL(c.user, c.password, "a b"))
		if (err == nil) != c.ok {
			t.Errorf("%s with password %q: %v", c.user, c.password, err)
		}
		if err == nil {
			conn.Close(ctx)
		}
	}
	if !query[bool](t, n, "SELECT rolsuper AND rolpassword LIKE 'md5%' FROM pg_authid WHERE rolname = 'md5'") {
		t.Error("attributes or encryption not applied")
	}
}

// Clusters are told apart by their system identifiers though they are copies of one template; a standby has its primary's.
func TestSystemIdentifiers(t *testing.T) {
	const identifier = "SELECT system_identifier::text FROM pg_control_system()"
	a, b := New(t, Options{Standbys: 1}), New(t, Options{})
	primary, standby, other := query[string](t, a.Nodes[0], identifier), query[string](t, a.Nodes[1], identifier), query[string](t, b.Nodes[0], identifier)
	if primary != standby || primary == other {
		t.Errorf("primary %s, standby %s, another cluster %s", primary, standby, other)
	}
}

func TestFailedStartExplainsAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	_, err := Start(t.Context(), Options{Dir: dir, Conf: map[string]string{"shared_buffers": "much"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("error = %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// abandonCluster is the child of TestKilledProcessLeavesNothing.
func abandonCluster() {
	c, err := Start(context.Background(), Options{Standbys: 1})
	if err == nil {
		err = c.Standbys()[0].Freeze()
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println(c.Dir, c.Nodes[0].PID(), c.Nodes[1].PID())
	select {} // until killed
}

// A process that is killed cannot stop its servers; somebody else does.
func TestKilledProcessLeavesNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), abandon+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 3 {
		t.Fatalf("child said %q, %v", line, err)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = poll.Until(ctx, pollEvery, func() (bool, error) {
		_, err := os.Stat(fields[0])
		primary, _ := strconv.Atoi(fields[1])
		standby, _ := strconv.Atoi(fields[2])
		return os.IsNotExist(err) && !exists(primary) && !exists(standby), nil
	})
	if err != nil {
		t.Errorf("folder or servers of %s are still there: %v", strings.TrimSpace(line), err)
	}
}

func TestErrorsOfTheServerAreKept(t *testing.T) {
	err := New(t, Options{}).Primary().Exec(t.Context(), "SELECT 1/0")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22012" {
		t.Errorf("error = %v", err)
	}
}
