package monitor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/internal/pgcluster"
	"fencepost/pgerr"
	"fencepost/role"
)

// watcher is the role without any privilege that monitors log in as.
const watcher, secret = "watcher", "a b'c"

func cluster(t *testing.T, o pgcluster.Options) *pgcluster.Cluster {
	o.Auth = "scram-sha-256"
	o.Roles = append(o.Roles, pgcluster.Role{Name: watcher, Password: secret}, pgcluster.Role{Name: "monitor", Password: secret, Attributes: "IN ROLE pg_monitor"})
	return pgcluster.New(t, o)
}

func config(n *pgcluster.Node) Config {
	return Config{
		Host: role.Host(n.Addr()), User: watcher, Database: "postgres", Log: zerolog.Nop(), Mode: Mode{Interval: 50 * time.Millisecond, Backoff: ShortBackoff},
		Password: func(context.Context) (string, error) { return secret, nil },
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// On every version, a role without privileges sees who may write, the identifier and the timeline out of recovery, and
// sees a promotion with the right timeline within one interval although the control file still shows the old one.
func TestRolesAndPromotion(t *testing.T) {
	for _, version := range pgcluster.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := cluster(t, pgcluster.Options{Version: version, Standbys: 1, Conf: map[string]string{"checkpoint_timeout": "1h"}})
			first, second := c.Primary(), c.Standbys()[0]
			var id string
			must(t, first.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()", &id))

			p := watch(t, config(first))
			defer p.stop()
			o := find[*Observed](t, p, "observation", nil)
			if o.Verdict != role.Writable || fmt.Sprint(o.SystemID) != id || o.Timeline != 1 || o.LSN == 0 || o.Host != role.Host(first.Addr()) ||
				o.Source != role.Probe || o.Asked.IsZero() || o.Answered.Before(o.Asked) || o.Started.IsZero() || o.NoTimelines {
				t.Errorf("primary %s: %+v", id, o)
			}
			s := watch(t, config(second))
			defer s.stop()
			o = find[*Observed](t, s, "observation", nil)
			if o.Verdict != role.InRecovery || fmt.Sprint(o.SystemID) != id || o.Timeline != 1 || o.LSN == 0 || !o.LagKnown || o.Lag != 0 {
				t.Errorf("standby: %+v", o)
			}
			privileged := config(second)
			privileged.User, privileged.Mode.Interval = "monitor", 5*time.Millisecond // so that probes fall into the middle of the promotion
			m := watch(t, privileged)
			defer m.stop()
			if o = find[*Observed](t, m, "observation", nil); o.Verdict != role.InRecovery || o.Timeline != 1 {
				t.Errorf("standby, asked by a member of pg_monitor: %+v", o)
			}

			must(t, second.Promote(ctx))
			promoted := time.Now() // and before: Promote returns when it takes writes
			o = find(t, s, "observation of the promotion", verdict(role.Writable))
			if o.Timeline != 2 || fmt.Sprint(o.SystemID) != id {
				t.Errorf("after the promotion: %+v", o)
			}
			if late := o.Asked.Sub(promoted); late > config(second).Mode.Interval+500*time.Millisecond {
				t.Errorf("the promotion was seen %v after the server took writes", late)
			}
			find(t, m, "observation of the promotion", func(o *Observed) bool {
				if o.Verdict == role.InRecovery && o.Timeline != 1 && o.Timeline != 2 || o.Verdict == role.Writable && o.Timeline != 2 {
					t.Errorf("during the promotion: %+v", o)
				}
				return o.Verdict == role.Writable && o.Asked.After(promoted)
			})
			for _, s := range []*shard{s, m} {
				for _, m := range s.drop() {
					if o, ok := m.(*Observed); !ok || o.Verdict != role.Writable || o.Timeline != 2 {
						t.Errorf("then: %+v", m)
					}
				}
			}

			// A standby that was out of recovery says so by its timeline, also if it crashed and receives nothing.
			must(t, second.Kill())
			must(t, os.WriteFile(filepath.Join(second.DataDir, "standby.signal"), nil, 0o600))
			must(t, second.Start(ctx))
			if o = find(t, s, "observation as a standby again", verdict(role.InRecovery)); o.Timeline != 2 {
				t.Errorf("a standby that was promoted: %+v", o)
			}
		})
	}
}

// The queries for Aurora run on PostgreSQL that has functions of those names, and Aurora is recognised by them. What Aurora
// itself answers was not tried.
func TestAuroraQueries(t *testing.T) {
	for _, version := range []string{"12", "15", "18"} {
		ctx := t.Context()
		c := cluster(t, pgcluster.Options{Version: version, Conf: map[string]string{"allow_system_table_mods": "on"}})
		say := func(writer string) {
			must(t, c.Primary().Exec(ctx, `CREATE OR REPLACE FUNCTION pg_catalog.aurora_db_instance_identifier() RETURNS varchar LANGUAGE sql AS $$SELECT 'b'::varchar$$`,
				`CREATE OR REPLACE FUNCTION pg_catalog.aurora_replica_status(OUT server_id text, OUT session_id text, OUT replica_lag_in_msec float8)
				RETURNS SETOF record LANGUAGE sql AS $$VALUES ('a', CASE WHEN 'a' = '`+writer+`' THEN 'MASTER_SESSION_ID' ELSE 'x-y-z' END, 21.5::float8),
				('b', CASE WHEN 'b' = '`+writer+`' THEN 'MASTER_SESSION_ID' ELSE 'x-y-z' END, 12.5)$$`))
		}
		say("a")
		s := watch(t, config(c.Primary()))
		o := find[*Observed](t, s, "observation", nil)
		if o.Verdict != role.InRecovery || !o.NoTimelines || o.SystemID != 0 || o.Timeline != 0 || !o.LagKnown || o.Lag != 12500*time.Microsecond {
			t.Errorf("%s, reader: %+v", version, o)
		}
		say("b")
		o = find(t, s, "observation as writer", verdict(role.Writable))
		if !o.NoTimelines || o.SystemID != 0 || o.Timeline != 0 || o.Started.IsZero() {
			t.Errorf("%s, writer: %+v", version, o)
		}
		must(t, c.Primary().Exec(ctx, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"))
		find(t, s, "observation as read-only", verdict(role.ReadOnly))
		s.stop()
	}
}

// A standby that has WAL to replay and cannot says how far behind it is, by time and bytes; with nothing to replay it is
// not behind, however long ago the last transaction was.
func TestLag(t *testing.T) {
	ctx := t.Context()
	c := cluster(t, pgcluster.Options{Standbys: 1})
	s := watch(t, config(c.Standbys()[0]))
	defer s.stop()
	find(t, s, "observation without lag", func(o *Observed) bool { return o.LagKnown && o.Lag == 0 && o.LagBytes == 0 })
	must(t, c.Standbys()[0].Exec(ctx, "SELECT pg_wal_replay_pause()"))
	must(t, c.Primary().Exec(ctx, "CREATE TABLE t AS SELECT generate_series(1, 10000)"))
	o := find(t, s, "observation of lag", func(o *Observed) bool { return o.LagKnown && o.Lag > 50*time.Millisecond && o.LagBytes > 100_000 })
	if o.Lag > time.Minute {
		t.Errorf("lag %v", o.Lag)
	}
	must(t, c.Standbys()[0].Exec(ctx, "SELECT pg_wal_replay_resume()"))
	find(t, s, "observation without lag", func(o *Observed) bool { return o.LagKnown && o.Lag == 0 && o.LagBytes == 0 })
	must(t, c.Primary().Stop(ctx, pgcluster.Fast))
	find(t, s, "observation of an unknown lag, without a receiver", func(o *Observed) bool { return !o.LagKnown })
}

// A frozen server: the probe is reported late once, while it runs; its answer still counts from when it was asked.
func TestFreeze(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	s := watch(t, config(c.Primary()))
	defer s.stop()
	find(t, s, "observation", verdict(role.Writable))
	must(t, c.Primary().Freeze())
	late := find[*Late](t, s, "lateness", nil)
	if age := time.Since(late.Asked); age < time.Second || age > 5*time.Second {
		t.Errorf("reported after %v", age)
	}
	s.tell(&ProbeNow{})
	must(t, c.Primary().Thaw())
	o := find[*Observed](t, s, "late answer", nil)
	if !o.Asked.Equal(late.Asked) || o.Answered.Sub(o.Asked) < time.Second {
		t.Errorf("late answer: %+v", o)
	}
	find(t, s, "observation", func(o *Observed) bool { return o.Asked.After(late.Asked) })
	for _, m := range s.drop() {
		if _, ok := m.(*Observed); !ok {
			t.Errorf("then: %+v", m)
		}
	}
}

// A killed server: the loss is seen at once and not at the next probe; the reconnect right after it is refused, and only
// that one is AfterLoss; when the server is back the monitor is.
func TestKillAndRestart(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	cfg := config(c.Primary())
	cfg.Mode.Interval = time.Hour
	s := watch(t, cfg)
	defer s.stop()
	find(t, s, "observation", verdict(role.Writable))
	find(t, s, "state", isKind(Up))
	must(t, c.Primary().Kill())
	lost, _ := s.next(t).(*Lost)
	if lost == nil || lost.Kind != Broken || lost.Expected || lost.Err == nil {
		t.Fatalf("after the kill: %+v", lost)
	}
	if state, _ := s.next(t).(*State); state == nil || state.Kind != Connecting {
		t.Errorf("then: %+v", state)
	}
	refused, _ := s.next(t).(*Refused)
	if refused == nil || !refused.AfterLoss || refused.Kind != Closed && refused.Kind != Reset || refused.Code != "" {
		t.Fatalf("then: %+v", refused)
	}
	if state, _ := s.next(t).(*State); state == nil || !state.Kind.Down() || state.Err == nil {
		t.Errorf("then: %+v", state)
	}
	for range 3 {
		if again := find[*Refused](t, s, "refusal", nil); again.AfterLoss {
			t.Errorf("then: %+v", again)
		}
	}
	must(t, c.Primary().Start(t.Context()))
	o := find[*Observed](t, s, "observation", nil)
	if o.Verdict != role.Writable || o.Timeline != 1 {
		t.Errorf("after the restart: %+v", o)
	}
	find(t, s, "state", isKind(Up))
}

// A server that is shut down orderly says so.
func TestShutdown(t *testing.T) {
	for _, mode := range []pgcluster.Mode{pgcluster.Fast, pgcluster.Immediate} {
		c := cluster(t, pgcluster.Options{})
		s := watch(t, config(c.Primary()))
		defer s.stop()
		find(t, s, "observation", verdict(role.Writable))
		must(t, c.Primary().Stop(t.Context(), mode))
		lost := find[*Lost](t, s, "loss", nil)
		// In an immediate shutdown the last word comes from a signal handler, if it comes.
		wordless := mode == pgcluster.Immediate && lost.Code == ""
		if lost.Code != pgerr.AdminShutdown && !wordless || lost.Kind != Broken || lost.Expected {
			t.Errorf("%v: %+v", mode, lost)
		}
		if r := find[*Refused](t, s, "refusal", nil); !r.AfterLoss {
			t.Errorf("%v: %+v", mode, r)
		}
		find(t, s, "state", func(s *State) bool { return s.Kind == Closed })
	}
}

// A terminated session is a loss like any other, but the server takes the next one: nothing is refused.
func TestTerminated(t *testing.T) {
	ctx := t.Context()
	c := cluster(t, pgcluster.Options{})
	s := watch(t, config(c.Primary()))
	defer s.stop()
	find(t, s, "observation", verdict(role.Writable))
	must(t, c.Primary().Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencepost monitor'"))
	if lost := find[*Lost](t, s, "loss", nil); lost.Code != pgerr.AdminShutdown || lost.Expected {
		t.Errorf("%+v", lost)
	}
	if state, _ := s.next(t).(*State); state == nil || state.Kind != Connecting {
		t.Errorf("then: %+v", state)
	}
	if o, _ := s.next(t).(*Observed); o == nil || o.Verdict != role.Writable {
		t.Errorf("then: %+v", o)
	}
}

// A server one of whose processes crashed ends every connection, most often with the warning 57P02, and comes back.
func TestCrashOfAnotherSession(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	s := watch(t, config(c.Primary()))
	defer s.stop()
	find(t, s, "observation", verdict(role.Writable))
	conn, err := c.Primary().Connect(t.Context(), "postgres")
	must(t, err)
	defer conn.Close(context.Background())
	must(t, killProcess(int(conn.PgConn().PID())))
	if lost := find[*Lost](t, s, "loss", nil); lost.Code != pgerr.CrashShutdown && lost.Code != "" || lost.Expected || lost.Kind != Broken {
		t.Errorf("%+v", lost)
	}
	find(t, s, "observation", verdict(role.Writable))
}

// A server that closes idle sessions tells the monitor nothing about itself.
func TestIdleSessionTimeout(t *testing.T) {
	c := cluster(t, pgcluster.Options{Conf: map[string]string{"idle_session_timeout": "200ms"}})
	cfg := config(c.Primary())
	cfg.Mode.Interval = time.Hour
	s := watch(t, cfg)
	defer s.stop()
	if lost := find[*Lost](t, s, "loss", nil); lost.Code != pgerr.IdleSessionTimeout || !lost.Expected {
		t.Errorf("%+v", lost)
	}
	find(t, s, "observation", verdict(role.Writable))
}

// Read-only by the server's own settings counts, whatever the way in; read-only for the monitor's role does not.
func TestReadOnly(t *testing.T) {
	for _, version := range []string{"12", "15", "18"} {
		t.Run(version, func(t *testing.T) {
			ctx := t.Context()
			c := cluster(t, pgcluster.Options{Version: version})
			s := watch(t, config(c.Primary()))
			defer s.stop()
			find(t, s, "observation", verdict(role.Writable))
			must(t, c.Primary().Exec(ctx, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"))
			if o := find(t, s, "observation as read-only", verdict(role.ReadOnly)); o.Timeline != 1 {
				t.Errorf("%+v", o)
			}
			must(t, c.Primary().Exec(ctx, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"))
			find(t, s, "observation as writable", verdict(role.Writable))

			for _, own := range []string{"ROLE watcher", "DATABASE postgres", "ROLE watcher IN DATABASE postgres", "ROLE ALL"} {
				must(t, c.Primary().Exec(ctx, "ALTER "+own+" SET default_transaction_read_only = on"))
				fresh := watch(t, config(c.Primary()))
				if o := find[*Observed](t, fresh, "observation", nil); o.Verdict != role.Writable {
					t.Errorf("ALTER %s: %+v", own, o)
				}
				fresh.stop()
				must(t, c.Primary().Exec(ctx, "SET default_transaction_read_only = off", "ALTER "+own+" RESET default_transaction_read_only"))
			}
		})
	}
}

// A server that cannot be logged in to is not down, and the monitor is back when it can.
func TestRejected(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	var wrong atomic.Bool
	wrong.Store(true)
	cfg := config(c.Primary())
	cfg.Password = func(context.Context) (string, error) {
		if wrong.Load() {
			return "wrong", nil
		}
		return secret, nil
	}
	s := watch(t, cfg)
	defer s.stop()
	f, _ := s.next(t).(*Failed)
	if f == nil || f.Kind != Rejected || f.Code != pgerr.InvalidPassword || f.Asked.IsZero() {
		t.Fatalf("wrong password: %+v", f)
	}
	if state, _ := s.next(t).(*State); state == nil || state.Kind != Rejected || state.Kind.Down() || state.Code != pgerr.InvalidPassword {
		t.Errorf("then: %+v", state)
	}
	wrong.Store(false)
	find(t, s, "observation", verdict(role.Writable))

	nowhere := config(c.Primary())
	nowhere.Database = "nowhere"
	n := watch(t, nowhere)
	defer n.stop()
	if f := find[*Failed](t, n, "failure", nil); f.Kind != Rejected || f.Code != pgerr.InvalidCatalogName {
		t.Errorf("no such database: %+v", f)
	}
}

// A standby that takes no connections answers with 57P03.
func TestColdStandby(t *testing.T) {
	c := cluster(t, pgcluster.Options{Standbys: 1})
	n := c.Standbys()[0]
	must(t, n.Exec(t.Context(), "ALTER SYSTEM SET hot_standby = off"))
	must(t, n.Stop(t.Context(), pgcluster.Fast))
	s := watch(t, config(n))
	defer s.stop()
	find(t, s, "state", isKind(Closed))
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- n.Start(ctx) }() // waits for connections to be taken until ctx ends
	r := find(t, s, "refusal", func(r *Refused) bool { return r.Kind == Starting })
	if r.Code != pgerr.CannotConnectNow || r.AfterLoss {
		t.Errorf("%+v", r)
	}
	if state := find(t, s, "state", isKind(Starting)); state.Kind.Down() || state.Code != pgerr.CannotConnectNow {
		t.Errorf("%+v", state)
	}
	cancel()
	if err := <-started; err == nil {
		t.Error("it did take connections")
	}
	find(t, s, "state", isKind(Closed))
}

// Where pg_control_system() is closed to the public the identifier stays unknown, and the rest is seen as ever.
func TestWithoutControl(t *testing.T) {
	for _, version := range []string{"12", "18"} {
		c := cluster(t, pgcluster.Options{Version: version})
		must(t, c.Primary().Exec(t.Context(), "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
		s := watch(t, config(c.Primary()))
		if o := find[*Observed](t, s, "observation", nil); o.Verdict != role.Writable || o.SystemID != 0 || o.Timeline != 1 {
			t.Errorf("%s: %+v", version, o)
		}
		o := find[*Observed](t, s, "observation", nil)
		s.stop()
		if o.SystemID != 0 || strings.Count(c.Primary().Log(), "permission denied") != 1 {
			t.Errorf("%s: %+v, log:\n%s", version, o, c.Primary().Log())
		}
	}
}

// Over a unix socket, and when its file is gone.
func TestUnixSocket(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	cfg := config(c.Primary())
	cfg.User = pgcluster.Superuser
	cfg.Host = role.Host(fmt.Sprintf("%s:%d", c.Primary().SocketDir, c.Primary().Port))
	s := watch(t, cfg)
	defer s.stop()
	find(t, s, "observation", verdict(role.Writable))
	must(t, c.Primary().Stop(t.Context(), pgcluster.Fast))
	if r := find[*Refused](t, s, "refusal", nil); !r.AfterLoss {
		t.Errorf("%+v", r)
	}
	find(t, s, "state", isKind(Closed)) // maybe behind Starting, while the server shuts down
}
