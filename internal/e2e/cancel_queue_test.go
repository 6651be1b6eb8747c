package e2e

import (
	"fmt"
	"testing"
	"time"
)

// A cancel for a client that runs nothing does nothing: not now, not to what it runs next, not to others.
func TestCancelWhileIdle(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18", "default_pool_size = 1")
	c, other := mustLogin(t, w.transaction()), mustLogin(t, w.transaction())
	const rounds = 50
	for range rounds {
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		for _, each := range []*raw{other, c} {
			if err := each.hold(conversation{{script(query("SELECT pg_sleep(0.001)")), "T D[] C[SELECT 1] Z[I]"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.cancel(w.pooler.addr); err != nil { // inside a transaction, between two statements
		t.Fatal(err)
	}
	if err := c.hold(conversation{{script(query("SELECT pg_sleep(0.05)"), query("COMMIT")), "T D[] C[SELECT 1] Z[T] C[COMMIT] Z[I]"}}); err != nil {
		t.Fatal(err)
	}
	if n := w.wire.Seen.Load(); n > 0 {
		t.Errorf("%d cancel requests went to the server", n)
	}
	w.counted(fmt.Sprintf("idle %d", rounds+1))
}

// A cancel for a client in the queue: 57014 at once, and neither its statement nor its place in the queue is left.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18", "default_pool_size = 1")
	w.sql("CREATE TABLE queued (n int)", "GRANT ALL ON queued TO PUBLIC")
	holder := mustLogin(t, w.transaction())
	if err := holder.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	var waiters []*raw
	for i := range 20 {
		c := mustLogin(t, w.transaction())
		what := script(query("INSERT INTO queued VALUES (1)"))
		if i%2 == 1 {
			what = script(run("INSERT INTO queued VALUES (1)"), sync_)
		}
		if err := c.send(what...); err != nil {
			t.Fatal(err)
		}
		waiters = append(waiters, c)
	}
	w.waiting(len(waiters))
	for _, c := range waiters {
		began := time.Now()
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect("E[57014] Z[I]"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	}
	w.waiting(0)
	if err := holder.hold(conversation{{script(query("COMMIT")), "C[COMMIT] Z[I]"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range waiters {
		if err := c.hold(conversation{{script(query("SELECT 'next'")), "T D[next] C[SELECT 1] Z[I]"}}); err != nil {
			t.Error(err)
		}
	}
	check(t, "rows of cancelled statements", w.value("SELECT count(*)::text FROM queued"), nil, "0")
	if n := w.wire.Seen.Load(); n > 0 {
		t.Errorf("%d cancel requests went to the server", n)
	}
	w.counted(fmt.Sprintf("queue %d", len(waiters)))
}
