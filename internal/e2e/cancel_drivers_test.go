package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"fencepost/internal/pgcluster"
	"fencepost/internal/relay"
)

// A canceller is a driver that cancels its own statements, in every way that it has, on a version of the protocol.
type canceller struct {
	name string
	run  func(t *testing.T, l *lab, at place, protocol string)
}

var cancellers = []canceller{{"psql", cancelPsql}, {"pgx", cancelPgx}, {"psycopg", cancelPsycopg}}

// What drivers do to cancel works, on both versions of the protocol, over TCP and over unix sockets, towards the client
// and towards the server.
func TestDriversCancel(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "15", "16", "17", "18"} {
		t.Run("TCP, PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			n, db := newDatabase(t, version)
			p := startPooler(t, settings{host: n.Addr(), dbname: db})
			front := startRelay(t, p.addr) // to see the keys
			l := &lab{t: t, node: n, db: db, pooler: p}
			cancelWithAll(t, l, place{"transaction", front.Addr(), "transaction"}, front, cancellers)
		})
		if !full && version != "14" && version != "18" {
			continue
		}
		t.Run("unix sockets, PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			n, db := newDatabase(t, version)
			p, addr := startOnUnix(t, settings{host: net.JoinHostPort(n.SocketDir, strconv.Itoa(n.Port)), dbname: db})
			l := &lab{t: t, node: n, db: db, pooler: p}
			cancelWithAll(t, l, place{"session", addr, "session"}, nil, cancellers)
		})
	}
}

// cancelWithAll has each of the drivers cancel. front, if there is one, has seen their cancel requests.
func cancelWithAll(t *testing.T, l *lab, at place, front *relay.Relay, all []canceller) {
	for protocol, secret := range map[string]int64{"3.0": 4, "3.2": 32} {
		for _, c := range all {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				if front != nil {
					front.Length.Store(0)
				}
				c.run(t, &lab{t: t, node: l.node, db: l.db, pooler: l.pooler}, at, protocol)
				if front != nil && front.Length.Load() != 12+secret {
					t.Errorf("the last cancel request had %d bytes, want %d", front.Length.Load(), 12+secret)
				}
				l.atRest()
			})
		}
	}
}

// libpqEnv has programs of libpq speak a version of the protocol.
func libpqEnv(t *testing.T, protocol string) []string {
	t.Helper()
	if protocol == "3.0" {
		return nil
	}
	env := []string{"PGMAXPROTOCOLVERSION=" + protocol}
	bin, err := pgcluster.Install(t.Context(), "18") // the first libpq that speaks 3.2
	if err != nil {
		t.Fatal(err)
	}
	if lib := filepath.Join(filepath.Dir(bin), "lib"); exists(filepath.Join(lib, "libpq.so.5")) {
		env = append(env, "LD_LIBRARY_PATH="+lib)
	}
	return env
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cancelPsql is Ctrl-C.
func cancelPsql(t *testing.T, l *lab, at place, protocol string) {
	const sleeping = "SELECT pg_sleep(60)" // a psql that has no terminal ends after a cancel
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "psql", "-X", "-A", "-t", "-c", sleeping)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "PGHOST="+at.host(), fmt.Sprintf("PGPORT=%d", at.port()), "PGDATABASE="+at.database,
		"PGUSER="+appUser, "PGPASSWORD="+appPassword, "PGSSLMODE=disable", "PGGSSENCMODE=disable")
	cmd.Env = append(cmd.Env, libpqEnv(t, protocol)...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.eventually(1, "state = 'active' AND query = '"+sleeping+"'")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // what it has printed says more
	check(t, "psql", out.String(), nil, "Cancel request sent\nERROR:  canceling statement due to user request\n")
}

// cancelPgx is the end of a context: with a cancel request and the session kept, and as is pgx's default, with a cancel
// request and the session closed.
func cancelPgx(t *testing.T, l *lab, at place, protocol string) {
	for _, keep := range []bool{true, false} {
		cfg, err := at.config()
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxProtocolVersion = protocol
		if keep {
			cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: patience}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cfg.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { cancel() }
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = conn.Exec(ctx, sleepy("pgx", time.Minute))
		var pe *pgconn.PgError
		switch {
		case keep && (!errors.As(err, &pe) || pe.Code != "57014"):
			t.Errorf("pgx: %v", err)
		case !keep && !errors.Is(err, context.Canceled):
			t.Errorf("pgx, closing: %v", err)
		case conn.IsClosed() == keep:
			t.Errorf("pgx: closed is %t after %v", conn.IsClosed(), err)
		}
		l.eventually(0, "state = 'active'")
		if took := time.Since(began); took > 3*time.Second && !raceDetector {
			t.Errorf("pgx: it took %v", took)
		}
		if keep {
			var got string
			if err := conn.QueryRow(t.Context(), "SELECT 'answered'").Scan(&got); err != nil {
				t.Errorf("pgx: %v", err)
			}
		}
		conn.Close(t.Context())
		<-conn.PgConn().CleanupDone()
		cancel()
	}
}

func cancelPsycopg(t *testing.T, _ *lab, at place, protocol string) {
	python, err := pythonWithPsycopg()
	if err != nil {
		t.Fatal(err)
	}
	out, err := at.command(t, libpqEnv(t, protocol), python, "testdata/drivers/cancel/psycopg_cancel.py")
	if err != nil {
		t.Errorf("psycopg: %v", err)
	}
	check(t, "psycopg", out, nil, `cancel 57014
then answered IDLE
cancel_safe 57014
then answered IDLE
interrupt KeyboardInterrupt
then answered IDLE
in a transaction 57014
then answered
`)
}
