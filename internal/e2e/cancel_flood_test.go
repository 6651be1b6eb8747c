package e2e

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/internal/relay"
)

// A flood of false keys neither keeps clients from logging in nor true cancels from being served.
func TestFloodOfFalseKeys(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18", "default_pool_size = 2")
	var sent atomic.Int64
	end := make(chan struct{})
	var flood sync.WaitGroup
	for range 40 {
		flood.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				secret := make([]byte, 32)
				rand.Read(secret)
				if _, err := silentCancel(w.pooler.addr, binary.BigEndian.Uint32(secret), secret); err == nil {
					sent.Add(1)
				}
			}
		})
	}
	defer flood.Wait()
	defer sync.OnceFunc(func() { close(end) })()
	if err := poll(patience, func() (bool, error) { return sent.Load() > 1000, nil }); err != nil {
		t.Fatalf("%d false keys: %v", sent.Load(), err)
	}
	for range 20 {
		loginCancelGo(t, w)
	}
	t.Logf("%d false keys", sent.Load())
}

// loginCancelGo logs in, has a statement cancelled and leaves, each in good time.
func loginCancelGo(t *testing.T, w *wired) {
	t.Helper()
	const limit = 2 * time.Second
	began := time.Now()
	c, err := w.transaction().login()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if took := time.Since(began); took > limit {
		t.Errorf("a login took %v", took)
	}
	if err := c.begun("flooded", time.Minute); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := c.cancel(w.pooler.addr); err != nil {
		t.Fatal(err)
	}
	if err := c.expect("E[57014] Z[I]"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > limit {
		t.Errorf("a cancel took %v", took)
	}
}

// More true cancels than there is room for, all of them waiting for a server that does not answer: what is above the
// budget is closed at once, and logins do not notice.
func TestMoreCancelsThanTheBudget(t *testing.T) {
	t.Parallel()
	const clients, each, budget = 150, 4, 512
	f := startFake(t, func(c *fakeConn) error {
		if err := c.welcome(); err != nil {
			return err
		}
		return c.serve(func(byte, []byte) error { return nil }) // no query is ever answered
	})
	w := startWired(t, f.addr, "any", fmt.Sprintf("default_pool_size = %d", clients+10))
	w.pooler.Tolerate("cancel request failed")
	w.treat(relay.Treatment{Fate: relay.Hang})
	var all []*raw
	for range clients {
		c := mustLogin(t, w.transaction())
		if err := c.send(query("SELECT 1")); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if err := poll(patience, func() (bool, error) { return w.active() == clients, nil }); err != nil {
		t.Fatalf("%d of %d run: %v", w.active(), clients, err)
	}
	var open, closed atomic.Int64
	var cancels sync.WaitGroup
	for _, c := range all {
		for range each {
			open.Add(1)
			cancels.Go(func() {
				if _, err := silentCancel(w.pooler.addr, c.pid, c.secret); err == nil {
					closed.Add(1)
				}
				open.Add(-1)
			})
		}
	}
	if err := poll(patience, func() (bool, error) { return open.Load() == budget && w.wire.Hanging.Load() == budget, nil }); err != nil {
		t.Errorf("%d cancel connections are open and %d hang, want %d: %v", open.Load(), w.wire.Hanging.Load(), budget, err)
	}
	for range 5 {
		began := time.Now()
		c := mustLogin(t, w.transaction())
		if took := time.Since(began); took > time.Second {
			t.Errorf("a login took %v", took)
		}
		c.close()
	}
	cancels.Wait()
	if closed.Load() != clients*each {
		t.Errorf("%d of %d cancel connections were closed in order", closed.Load(), clients*each)
	}
	w.counted(fmt.Sprintf("timed_out %d", budget))
	w.wire.Close() // ends the sessions: their statements would not end
}

// active is sv_active of the database transaction.
func (w *wired) active() int {
	w.t.Helper()
	for _, row := range w.rows("SHOW POOLS") {
		if row["database"] == "transaction" {
			return atoi(w.t, row["sv_active"])
		}
	}
	return 0
}

func atoi(t testing.TB, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
