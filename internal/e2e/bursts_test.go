package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Field case 9.09: many logins at the same instant, while other sockets say nothing.
func TestLoginBurst(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", `auth_type = "scram-sha-256"`, "default_pool_size = 10")
	for range 20 {
		mustDial(t, l.pooler.addr)
	}
	for range 5 {
		began := time.Now()
		l.each(80, func(i int) error {
			conn, err := l.transaction().pgx(t.Context())
			if err != nil {
				return err
			}
			defer conn.Close(t.Context())
			var n int
			if err := conn.QueryRow(t.Context(), "SELECT $1::int", i).Scan(&n); err != nil || n != i {
				return fmt.Errorf("%d, %w", n, err)
			}
			return nil
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a round took %s", took)
		}
	}
	l.atRest()
}

// Field case 9.06: waiting for a server that is slow to log in costs no processor time, and one that is slow to fail does
// not let the waiting ones starve when it comes back.
func TestSlowServerLogins(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	l, f := labWithFake(t, func(c *fakeConn) error {
		if slow.Load() {
			<-time.After(2 * time.Second)
		}
		return always(append(append(append([]byte(nil), dataRow...), complete...), ready...))(c)
	}, "default_pool_size = 20", "max_client_conn = 500")
	at := place{"fake", l.pooler.addr, "fake"}
	first := mustLogin(t, at) // the pool knows its servers; this one idles away
	if got, err := first.query("SELECT 1"); err != nil || got != "value" {
		t.Fatal(got, err)
	}
	slow.Store(true)
	clients := make([]*raw, 300)
	for i := range clients {
		clients[i] = mustLogin(t, at)
	}
	l.command("RECONNECT fake")
	for _, c := range clients {
		if err := c.send(query("SELECT 1")); err != nil {
			t.Fatal(err)
		}
	}
	before, logins := l.pooler.busy(t), f.logins.Load()
	<-time.After(1500 * time.Millisecond)
	if used := l.pooler.busy(t) - before; used > 300*time.Millisecond && !raceDetector {
		t.Errorf("it used %s of processor time in 1.5 s of waiting", used)
	}
	if n := f.logins.Load() - logins; n > 20 {
		t.Errorf("%d logins under way for a pool of 20", n)
	}
	for i, c := range clients {
		if err := c.expect("T D[value] C[SELECT 1] Z[I]"); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
}

// Every answer goes to who asked: many clients with different settings, tags and protocols on a small pool, some of whom
// cancel and some of whom go in the middle.
func TestNobodyGetsAnothersAnswer(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 4")
	l.each(40, func(i int) error {
		for round := range 10 {
			tag := fmt.Sprintf("%d.%d", i, round)
			c, err := l.transaction().login("application_name", tag)
			if err != nil {
				return err
			}
			show := "SELECT '" + tag + "', current_setting('application_name')"
			answer := "D[" + tag + "|" + tag + "] C[SELECT 1]"
			err = c.hold(conversation{
				{script(query(show), run(show), sync_), "T " + answer + " Z[I] 1 2 " + answer + " Z[I]"},
				{script(query("BEGIN"), run(show), run(show), sync_, query("COMMIT")), "C[BEGIN] Z[T] 1 2 " + answer + " 1 2 " + answer + " Z[T] C[COMMIT] Z[I]"},
			})
			if err != nil {
				return fmt.Errorf("%s: %w", tag, err)
			}
			if err := c.send(query(show + " FROM generate_series(1, 1000)")); err != nil {
				return err
			}
			if i%4 == 0 {
				time.AfterFunc(time.Millisecond, func() { c.cancel(l.pooler.addr) })
				if _, err := c.answers(1); err != nil {
					return err
				}
			}
			departures[round%3].go_(c)
			c.nc.Close()
		}
		return nil
	})
	l.atRest()
	l.poolsAtRest()
	l.whole(l.transaction(), 4)
}
