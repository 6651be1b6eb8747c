package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/relay"
)

// outcome is a way for a cancel to end.
type outcome struct {
	name   string
	treat  relay.Treatment
	refuse bool   // the server takes no connections when it is sent
	counts string // as
	hit    bool   // the statement is cancelled
	kept   bool   // the backend is used again
}

// How a cancel ends decides whether its backend is used again; each end is counted.
func TestCancelOutcomes(t *testing.T) {
	t.Parallel()
	for _, o := range []outcome{
		{"delivered", relay.Treatment{}, false, "delivered 1", true, true},
		{"delivered late", relay.Treatment{Wait: 200 * time.Millisecond}, false, "delivered 1", true, true},
		{"refused", relay.Treatment{}, true, "not_sent 1", false, true},
		{"never answered", relay.Treatment{Fate: relay.Mute}, false, "timed_out 1", true, false},
		{"lost", relay.Treatment{Fate: relay.Hang}, false, "timed_out 1", false, false},
		{"after cancel_ack_timeout", relay.Treatment{Wait: 700 * time.Millisecond}, false, "timed_out 1", true, false},
		{"reset, and passed on", relay.Treatment{Fate: relay.Reset, Wait: 100 * time.Millisecond}, false, "uncertain 1", true, false},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, "18", "default_pool_size = 1", `cancel_ack_timeout = "500ms"`)
			w.pooler.Tolerate("cancel request failed")
			w.treat(o.treat)
			before := o.holder(t, w)
			next := mustLogin(t, w.transaction())
			if err := next.hold(conversation{{script(query("SELECT 'next', pg_sleep(0.3)")), "T D[next|] C[SELECT 1] Z[I]"}}); err != nil {
				t.Error(err)
			}
			if kept := w.pids() == before; kept != o.kept {
				t.Errorf("the backend was kept: %t", kept)
			}
			next.close()
			w.poolsAtRest()
		})
	}
}

// holder cancels a statement in a transaction: whatever becomes of the cancel, its client keeps the backend to the end. It
// returns which backend that was.
func (o outcome) holder(t *testing.T, w *wired) (pid string) {
	t.Helper()
	c := mustLogin(t, w.transaction())
	defer c.close()
	if err := c.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	pid = w.pids()
	if err := c.begun("uncertain", 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if o.refuse {
		w.wire.Lead(freeAddr(t)) // nobody is there
		w.wire.Down()
	}
	if err := c.cancel(w.pooler.addr); err != nil {
		t.Fatal(err)
	}
	want := "C[DO] Z[T]"
	if o.hit {
		want = "E[57014] Z[E]"
	}
	if err := c.expect(want); err != nil {
		t.Fatal(err)
	}
	w.counted(o.counts)
	if after := w.pids(); after != pid {
		t.Errorf("the backend was closed under its client: %s, then %s", pid, after)
	}
	if o.refuse {
		w.wire.Lead(w.node.Addr())
		if err := poll(patience, func() (bool, error) { return w.wire.Listens(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.hold(conversation{{script(query("ROLLBACK")), "C[ROLLBACK] Z[I]"}}); err != nil {
		t.Fatal(err)
	}
	return pid
}

// The lease outlives the canceller and the client: while a cancel is on its way the only backend is not given to the next
// client, whoever has gone meanwhile.
func TestLeaseOutlivesEverybody(t *testing.T) {
	t.Parallel()
	const wait = 600 * time.Millisecond
	for _, c := range []struct {
		name             string
		canceller, owner bool // goes
	}{{"nobody goes", false, false}, {"the canceller goes", true, false}, {"the client goes", false, true}, {"both go", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, "18", "default_pool_size = 1")
			w.treat(relay.Treatment{Wait: wait})
			cl, next := mustLogin(t, w.transaction()), mustLogin(t, w.transaction())
			if err := cl.begun("short", 100*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var canceller sync.WaitGroup
			defer canceller.Wait()
			if c.canceller {
				if err := cancelAndGo(w.pooler.addr, cl); err != nil {
					t.Fatal(err)
				}
			} else {
				canceller.Go(func() { cl.cancel(w.pooler.addr) }) //nolint:errcheck // checked elsewhere
			}
			if err := poll(patience, func() (bool, error) { return w.wire.Seen.Load() > 0, nil }); err != nil {
				t.Fatal("the cancel did not leave")
			}
			if c.owner {
				cl.rst()
			} else if err := cl.expect("C[DO] Z[I]"); err != nil {
				t.Fatal(err)
			}
			if err := next.hold(conversation{{script(query("SELECT 'next', pg_sleep(0.3)")), "T D[next|] C[SELECT 1] Z[I]"}}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < wait {
				t.Errorf("the next client was served after %v, while the cancel was on its way", took)
			}
			if n := w.value("SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND usename <> 'postgres'"); n != "1" {
				t.Errorf("%s backends", n)
			}
		})
	}
}

// cancelAndGo sends a CancelRequest and closes its connection at once.
func cancelAndGo(addr string, c *raw) error {
	nc, err := dial(addr)
	if err != nil {
		return err
	}
	defer nc.nc.Close()
	p, err := (&pgproto3.CancelRequest{ProcessID: c.pid, SecretKey: c.secret}).Encode(nil)
	if err != nil {
		return err
	}
	return nc.write(p)
}

// Cancels stack: the backend waits for the last of them, and more than it takes are dropped.
func TestCancelsStack(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18", "default_pool_size = 1")
	w.treat(relay.Treatment{Wait: 400 * time.Millisecond})
	cl, next := mustLogin(t, w.transaction()), mustLogin(t, w.transaction())
	if err := cl.begun("many", 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	const cancels, most = 10, 4
	began := time.Now()
	w.each(cancels, func(int) error { return cl.cancel(w.pooler.addr) })
	if err := cl.expect("C[DO] Z[I]"); err != nil {
		t.Fatal(err)
	}
	if err := next.hold(conversation{{script(query("SELECT 'next', pg_sleep(0.2)")), "T D[next|] C[SELECT 1] Z[I]"}}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("the next client was served after %v", took)
	}
	w.counted(fmt.Sprintf("delivered %d, dropped %d", most, cancels-most))
}
