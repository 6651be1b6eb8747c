package backend_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"fencepost/actors/backend"
	"fencepost/internal/pgcluster"
	"fencepost/pgerr"
)

const plain, secret = "plain", "a b'c" // a role without any privilege

func cluster(t *testing.T, o pgcluster.Options) *pgcluster.Cluster {
	o.Auth = "scram-sha-256"
	o.Roles = append(o.Roles, pgcluster.Role{Name: plain, Password: secret})
	return pgcluster.New(t, o)
}

// on makes a backend to a server, opened under a role that matters.
func on(t *testing.T, n *pgcluster.Node) *rig {
	t.Helper()
	r := newRig(t, "")
	t.Cleanup(r.halt)
	r.deps.Dialer = backend.PasswordDialer{}
	r.target = backend.Target{Host: n.Addr(), User: plain, Database: "postgres", Source: backend.FixedPassword(secret), Timeout: time.Minute}
	r.watched()
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A login brings who the server is; a fence sees a promotion; a server that refuses to write is noticed by what it says.
func TestPostgresIdentityFenceAndHint(t *testing.T) {
	for _, version := range []string{"12", "15", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := cluster(t, pgcluster.Options{Version: version, Standbys: 1, Conf: map[string]string{"checkpoint_timeout": "1h"}})
			first, second := c.Primary(), c.Standbys()[0]
			var id string
			must(t, first.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()", &id))
			p := on(t, first)
			p.open()
			proof, shadowed := p.proof()
			if proof == nil || shadowed || proof.InRecovery || proof.Timeline != 1 || fmt.Sprint(proof.SystemID) != id || proof.BackendPID != p.b.Login().PID {
				t.Errorf("primary %s: %+v, shadowed: %t", id, proof, shadowed)
			}

			s := on(t, second)
			s.open()
			if proof, _ = s.proof(); proof == nil || !proof.InRecovery || fmt.Sprint(proof.SystemID) != id || proof.BackendPID != s.b.Login().PID {
				t.Errorf("standby: %+v", proof)
			}
			h := s.hold()
			if got := h.ask("CREATE TEMPORARY TABLE x ()"); got != pgerr.ReadOnlyTransaction {
				t.Errorf("a write on the standby: %q", got)
			}
			if m := hear[*backend.Hinted](s); m.Code != pgerr.ReadOnlyTransaction || len(s.doubts) != 1 {
				t.Errorf("%+v, doubt raised %d times", m, len(s.doubts))
			}
			h.release()
			if m := s.fence(1); m.Err != nil {
				t.Error(m.Err)
			}
			if proof, _ = s.proof(); proof == nil || !proof.InRecovery {
				t.Errorf("standby, asked again: %+v", proof)
			}

			must(t, second.Promote(ctx))
			m := s.fence(2)
			if proof, shadowed = s.proof(); m.Err != nil || proof == nil || shadowed || proof.InRecovery || proof.Timeline != 2 || proof.Asked != m.Asked {
				t.Errorf("after the promotion: %+v, proof %+v", m, proof)
			}
			if got := s.hold().ask("SELECT 'mine'"); got != "mine" {
				t.Errorf("answer %q", got)
			}
		})
	}
}

// From PostgreSQL 14 on a server says with the next answer, whoever it is for, that it was promoted or became read-only.
func TestPostgresReportsMakeTheProofVoid(t *testing.T) {
	ctx := t.Context()
	c := cluster(t, pgcluster.Options{Version: "18", Standbys: 1})
	p, s := on(t, c.Primary()), on(t, c.Standbys()[0])
	p.open()
	s.open()
	void := func(r *rig, what string) {
		t.Helper()
		h := r.hold()
		h.ask("SELECT 1")
		if proof, _ := r.proof(); proof != nil {
			t.Errorf("%s: the proof still says %+v", what, proof)
		}
		h.release()
	}
	must(t, c.Primary().Exec(ctx, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"))
	eventually(t, "the setting", func() bool { // a session takes it in when its process has the signal
		h := p.hold()
		defer h.release()
		return h.ask("SHOW default_transaction_read_only") == "on"
	})
	void(p, "read-only")
	if m := p.fence(1); m.Err != nil {
		t.Error(m.Err)
	}
	if proof, _ := p.proof(); proof == nil || !proof.ReadOnly {
		t.Errorf("read-only: %+v", proof)
	}
	must(t, c.Standbys()[0].Promote(ctx))
	void(s, "promoted")
	h := p.hold()
	h.ask("SET default_transaction_read_only = off")
	h.release()
	void(p, "a client's own setting")
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if f() {
			return
		}
	}
	t.Fatalf("waited for %s for a minute", what)
}

// An immediate shutdown and a crash are announced by a warning, if at all: it comes from a signal handler.
func TestPostgresSaysThatItEnds(t *testing.T) {
	for _, version := range []string{"12", "18"} {
		for _, mode := range []pgcluster.Mode{pgcluster.Immediate, pgcluster.Fast} {
			t.Run(fmt.Sprintf("%s %v", version, map[pgcluster.Mode]string{pgcluster.Immediate: "immediate", pgcluster.Fast: "fast"}[mode]), func(t *testing.T) {
				t.Parallel()
				c := cluster(t, pgcluster.Options{Version: version})
				r := on(t, c.Primary())
				r.open()
				h := r.hold()
				h.send(query("SELECT pg_sleep(600)"))
				eventually(t, "the query to run", func() bool {
					var n int
					must(t, c.Primary().QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active' AND usename = 'plain'", &n))
					return n == 1
				})
				must(t, c.Primary().Stop(t.Context(), mode))
				var hints []string
				var lost *backend.Lost
				for lost == nil {
					select {
					case m := <-r.heard:
						switch m := m.(type) {
						case *backend.Hinted:
							hints = append(hints, m.Code)
						case *backend.Lost:
							lost = m
						}
					case <-time.After(time.Minute):
						t.Fatal("nothing is heard")
					}
				}
				if lost.Expected || !lost.Doubts || len(r.doubts) != 1+len(hints) {
					t.Errorf("%+v, hints %v, doubt raised %d times", lost, hints, len(r.doubts))
				}
				switch {
				case mode == pgcluster.Fast && (len(hints) > 0 || lost.Code != pgerr.AdminShutdown):
					t.Errorf("fast: hints %v, %+v", hints, lost)
				case mode == pgcluster.Immediate && len(hints) > 0 && (len(hints) > 1 || hints[0] != lost.Code):
					t.Errorf("immediate: hints %v, %+v", hints, lost)
				case mode == pgcluster.Immediate && len(hints) == 0:
					t.Logf("no warning came before the end, as may happen")
				}
			})
		}
	}
}

// Where pg_control_system() is closed to the public the identifier stays unknown, for fences as for logins; on a server that
// looks like Aurora, another query is used.
func TestPostgresOtherIdentityQueries(t *testing.T) {
	for _, version := range []string{"12", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := cluster(t, pgcluster.Options{Version: version, Conf: map[string]string{"allow_system_table_mods": "on"}})
			check := func(what string, timeline uint32, noTimelines bool) {
				t.Helper()
				r := on(t, c.Primary())
				r.open()
				for range 2 {
					proof, shadowed := r.proof()
					if proof == nil || proof.InRecovery || proof.SystemID != 0 || proof.Timeline != timeline || proof.NoTimelines != noTimelines || shadowed {
						t.Errorf("%s: %+v", what, proof)
					}
					if m := r.fence(1); m.Err != nil {
						t.Errorf("%s: %v", what, m.Err)
					}
				}
				if got := r.hold().ask("SELECT 'mine'"); got != "mine" {
					t.Errorf("%s: answer %q", what, got)
				}
			}
			must(t, c.Primary().Exec(ctx, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
			check("without pg_control_system", 1, false)
			if n := strings.Count(c.Primary().Log(), "permission denied"); n != 1 {
				t.Errorf("it was tried %d times", n)
			}
			must(t, c.Primary().Exec(ctx, `CREATE FUNCTION pg_catalog.aurora_db_instance_identifier() RETURNS varchar LANGUAGE sql AS $$SELECT 'b'::varchar$$`,
				`CREATE FUNCTION pg_catalog.aurora_replica_status(OUT server_id text, OUT session_id text, OUT replica_lag_in_msec float8)
				RETURNS SETOF record LANGUAGE sql AS $$VALUES ('a', 'x-y-z', 21.5::float8), ('b', 'MASTER_SESSION_ID', 12.5)$$`))
			check("Aurora", 0, true)
			// Aurora lacks functions that the query for PostgreSQL calls.
			must(t, c.Primary().Exec(ctx, "REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM PUBLIC"))
			check("Aurora", 0, true)
		})
	}
}

// A server that does not answer the identity query as it should cannot be logged in to, with its own words for it.
func TestPostgresIdentityFails(t *testing.T) {
	c := cluster(t, pgcluster.Options{})
	must(t, c.Primary().Exec(t.Context(), "REVOKE EXECUTE ON FUNCTION pg_is_in_recovery() FROM PUBLIC"))
	r := on(t, c.Primary())
	r.dial()
	if m := hear[*backend.DialFailed](r); !m.Rejected || m.Err.Code != pgerr.InsufficientPrivilege {
		t.Errorf("%+v", m)
	}
	eventually(t, "its connection to go", func() bool {
		var n int
		must(t, c.Primary().QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'plain'", &n))
		return n == 0
	})
	other := on(t, c.Primary())
	other.target.Identify = false
	other.open()
	if p, _ := other.proof(); p != nil {
		t.Errorf("nobody asked: %+v", p)
	}
}

// Without Identify a login ends with the ReadyForQuery as ever: nothing more is sent.
func TestPostgresUnasked(t *testing.T) {
	for _, identify := range []bool{false, true} {
		c := cluster(t, pgcluster.Options{Conf: map[string]string{"log_statement": "all"}})
		r := on(t, c.Primary())
		r.target.Identify = identify
		r.open()
		h := r.hold()
		h.ask("SELECT 'the end of the log'")
		eventually(t, "the log", func() bool { return strings.Contains(c.Primary().Log(), "the end of the log") })
		if asked := strings.Contains(c.Primary().Log(), "aurora_replica_status"); asked != identify {
			t.Errorf("asked: %t, to be asked: %t", asked, identify)
		}
	}
}

// No empty password goes to a server that asks for one: it would count as a failed login there.
func TestPostgresNoEmptyPassword(t *testing.T) {
	n := cluster(t, pgcluster.Options{}).Primary()
	_, err := backend.PasswordDialer{}.Dial(t.Context(), backend.Target{Host: n.Addr(), User: plain, Database: "postgres",
		Source: backend.FixedPassword(""), Timeout: time.Minute})
	var e *pgerr.Error
	if !errors.As(err, &e) || e.Code != "28000" || !strings.Contains(e.Message, "none is configured") {
		t.Errorf("got %v", err)
	}
	log, err := os.ReadFile(n.LogFile())
	must(t, err)
	for _, sign := range []string{"password authentication failed", "empty password"} {
		if strings.Contains(string(log), sign) {
			t.Errorf("the server has counted a failed login: %s", log)
		}
	}
}
