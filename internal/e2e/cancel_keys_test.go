package e2e

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/soak/cancelrace/relay"
)

// Keys are ours: four bytes of secret on protocol 3.0, 32 on 3.2, the member's number in the process id, never twice.
// Towards the server it is the server's: long since PostgreSQL 18.
func TestCancelKeys(t *testing.T) {
	t.Parallel()
	const head = 12 // of a CancelRequest, before the secret
	for version, long := range map[string]int64{"14": head + 4, "17": head + 4, "18": head + 32} {
		t.Run("PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, version, "peer_id = 5")
			seen := map[string]bool{}
			for i := range 100 {
				for protocol, size := range map[uint32]int{version30: 4, version32: 32} {
					c, err := loginKey(w.pooler.addr, "transaction", protocol)
					if err != nil {
						t.Fatal(err)
					}
					if len(c.secret) != size || int32(c.pid) <= 0 || c.pid>>17 != 5 || seen[string(c.secret)] {
						t.Fatalf("login %d with %x: key %d, %x", i, protocol, c.pid, c.secret)
					}
					seen[string(c.secret)] = true
					if i == 0 {
						if err := c.begun("key", time.Minute); err != nil {
							t.Fatal(err)
						}
						if err := c.cancel(w.pooler.addr); err != nil {
							t.Fatal(err)
						}
						if err := c.expect("E[57014] Z[I]"); err != nil {
							t.Error(err)
						}
						if got := w.wire.Length.Load(); got != long {
							t.Errorf("a cancel request of %d bytes went to the server, want %d", got, long)
						}
					}
					c.close()
				}
			}
		})
	}
}

// A wrong key of either length, an unknown one, one of a session that is over: the connection is closed and nothing else
// happens.
func TestWrongCancelKeys(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18")
	for _, protocol := range []uint32{version30, version32} {
		c, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if err := c.begun("mine", time.Minute); err != nil {
			t.Fatal(err)
		}
		over, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		over.close()
		flipped := append([]byte(nil), c.secret...)
		flipped[len(flipped)-1] ^= 1
		for _, k := range []struct {
			name   string
			pid    uint32
			secret []byte
		}{
			{"last bit wrong", c.pid, flipped}, {"other process id", c.pid ^ 1, c.secret}, {"longer", c.pid, append(c.secret[:len(c.secret):len(c.secret)], 0)},
			{"first bytes only", c.pid, c.secret[:len(c.secret)-1]}, {"random", 1 << 20, flipped}, {"over", over.pid, over.secret}, {"zeros", 0, make([]byte, 4)},
			{"very long", c.pid, make([]byte, 256)},
		} {
			if n, err := silentCancel(w.pooler.addr, k.pid, k.secret); err != nil || n > 0 {
				t.Errorf("%s: %d bytes came back, %v", k.name, n, err)
			}
		}
		if w.wire.Seen.Load() > 0 {
			t.Fatal("a cancel request with a wrong key reached the server")
		}
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect("E[57014] Z[I]"); err != nil {
			t.Error(err)
		}
		w.wire.Seen.Store(0)
	}
	w.counted("delivered 2")
}

// silentCancel sends a CancelRequest and returns how much came back before the connection was closed.
func silentCancel(addr string, pid uint32, secret []byte) (int64, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	p := binary.BigEndian.AppendUint32(nil, uint32(12+len(secret)))
	p = binary.BigEndian.AppendUint32(p, 80877102)
	p = append(binary.BigEndian.AppendUint32(p, pid), secret...)
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := nc.Write(p); err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, nc)
}

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
	w.pooler.tolerate("cancel request failed")
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

// Field case 2.07: a server that gives no key can be used, and a cancel for it goes nowhere.
func TestServerWithoutKey(t *testing.T) {
	t.Parallel()
	f := startFake(t, func(c *fakeConn) error {
		if err := c.put(append(append([]byte(nil), authOK...), ready...)); err != nil {
			return err
		}
		return c.serve(func(byte, []byte) error {
			<-time.After(500 * time.Millisecond)
			return c.put(append(append([]byte(nil), complete...), ready...))
		})
	})
	w := startWired(t, f.addr, "any")
	for _, protocol := range []uint32{version30, version32} {
		c, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.secret); n != 4 && n != 32 {
			t.Errorf("the client's secret has %d bytes", n)
		}
		if err := c.send(query("SELECT 1")); err != nil {
			t.Fatal(err)
		}
		if err := poll(patience, func() (bool, error) { return w.active() == 1, nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect("C[SELECT 1] Z[I]"); err != nil {
			t.Error(err)
		}
		c.close()
	}
	if n := w.wire.Seen.Load() + f.cancels.Load(); n > 0 {
		t.Errorf("%d cancel requests without a key went to the server", n)
	}
	if got := w.outcomes(); strings.Contains(got, "delivered") {
		t.Errorf("cancels by outcome: %s", got)
	}
}
