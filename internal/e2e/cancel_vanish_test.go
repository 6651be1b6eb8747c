package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"fencepost/internal/relay"
)

// A client that vanishes in the middle of a query: the query ends on the server within a second, and its connection is
// used again. Without cancel_on_disconnect it runs on.
func TestCancelOnDisconnect(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "session"} {
		for _, d := range departures[1:] { // not Terminate: what was sent before it is carried out
			t.Run(mode+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				w := newWired(t, "18", "default_pool_size = 1")
				next := mustLogin(t, w.mode(mode))
				for _, wrap := range []conversation{nil, {{script(query("BEGIN")), "C[BEGIN] Z[T]"}}} {
					c := mustLogin(t, w.mode(mode))
					if err := c.hold(wrap); err != nil {
						t.Fatal(err)
					}
					if err := c.begun("vanishes", time.Minute); err != nil {
						t.Fatal(err)
					}
					before := w.pids()
					d.go_(c)
					began := time.Now()
					w.eventually(0, "state <> 'idle'")
					if took := time.Since(began); took > time.Second && !raceDetector {
						t.Errorf("the query ended on the server after %v", took)
					}
					c.nc.Close()
					if mode == "transaction" {
						if err := next.hold(conversation{{script(query("SELECT 1")), "T D[1] C[SELECT 1] Z[I]"}}); err != nil {
							t.Error(err)
						}
					}
					if after := w.pids(); after != before {
						t.Errorf("the backend was replaced: %s, then %s", before, after)
					}
				}
				w.counted("delivered 2")
			})
		}
	}
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		w := newWired(t, "18", "default_pool_size = 1", "cancel_on_disconnect = false")
		w.sql("CREATE TABLE done (n int)", "GRANT ALL ON done TO PUBLIC")
		c := mustLogin(t, w.transaction())
		if err := c.send(query("SELECT pg_sleep(0.5); INSERT INTO done VALUES (1)")); err != nil {
			t.Fatal(err)
		}
		w.eventually(1, "state = 'active'")
		c.rst()
		w.atRest()
		check(t, "rows", w.value("SELECT count(*)::text FROM done"), nil, "1")
		w.counted("")
	})
}

// A drain waits for a cancel that is on its way: the statement of a client that is gone does not run on for ever.
func TestDrainWaitsForCancels(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18", "default_pool_size = 1")
	w.treat(relay.Treatment{Wait: time.Second})
	c := mustLogin(t, w.transaction())
	if err := c.begun("runs on", time.Minute); err != nil {
		t.Fatal(err)
	}
	c.rst()
	if err := poll(patience, func() (bool, error) { return w.wire.Seen.Load() > 0, nil }); err != nil {
		t.Fatal("the cancel did not leave")
	}
	if err := w.pooler.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := poll(patience, func() (bool, error) { return !w.pooler.Running(), nil }); err != nil {
		t.Fatal("Fencepost does not end")
	}
	if n := w.wire.Sent.Load(); n != 1 {
		t.Errorf("%d cancels had been sent to the server when Fencepost ended", n)
	}
	w.eventually(0, "state = 'active'")
}

// RECONNECT and RELOAD leave a cancel that is on its way its effect.
func TestReloadLeavesCancels(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"RECONNECT", "RELOAD"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, "18", "default_pool_size = 2")
			w.treat(relay.Treatment{Wait: 500 * time.Millisecond})
			c := mustLogin(t, w.transaction())
			if err := c.begun("reloaded", time.Minute); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- c.cancel(w.pooler.addr) }()
			if err := poll(patience, func() (bool, error) { return w.wire.Seen.Load() > 0, nil }); err != nil {
				t.Fatal("the cancel did not leave")
			}
			reload := make(chan struct{})
			go func() { // RECONNECT answers when the old connections are gone
				defer close(reload)
				w.command(command)
			}()
			if err := c.expect("E[57014] Z[I]"); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			<-reload
			if err := c.hold(conversation{{script(query("SELECT 'next'")), "T D[next] C[SELECT 1] Z[I]"}}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A client that goes while its cancel is on the way through Fencepost: the canceller's connection is closed all the same,
// at the latest when the lease is over.
func TestCancelMeetsGoodbye(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d event loops", loops), func(t *testing.T) {
			t.Parallel()
			w := newWired(t, "18", "default_pool_size = 8", fmt.Sprintf("event_loops = %d", loops))
			w.each(8, func(i int) error {
				for round := range 60 {
					c, err := w.transaction().login()
					if err != nil {
						return err
					}
					if err := c.begun("meets", time.Minute); err != nil {
						return err
					}
					done := make(chan error, 3)
					for range cap(done) {
						go func() { done <- c.cancel(w.pooler.addr) }()
					}
					departures[1+round%2].go_(c)
					for range cap(done) {
						if err := <-done; err != nil {
							return fmt.Errorf("round %d: %w", round, err)
						}
					}
					c.nc.Close()
				}
				return nil
			})
			w.atRest()
			w.poolsAtRest()
		})
	}
}
