package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/cancelrace/relay"
)

// The pool is full, 60 clients run and 40 wait. All are cancelled at once, and all are released within a second (field
// case 2.02).
func TestCancelReleasesAll(t *testing.T) {
	t.Parallel()
	const running, waiting = 60, 40
	w := newWired(t, "18", fmt.Sprintf("default_pool_size = %d", running))
	var all []*raw
	for i := range running {
		c := mustLogin(t, w.transaction())
		if err := c.begun(fmt.Sprintf("r%d", i), time.Minute); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for i := range waiting {
		c := mustLogin(t, w.transaction())
		if err := c.send(query(sleepy(fmt.Sprintf("w%d", i), time.Minute))); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	w.waiting(waiting)
	began := time.Now()
	var slowest atomic.Int64
	w.each(len(all), func(i int) error {
		sent := make(chan error, 1)
		go func() { sent <- all[i].cancel(w.pooler.addr) }()
		got, err := all[i].answers(1)
		took := time.Since(began)
		for was := slowest.Load(); int64(took) > was && !slowest.CompareAndSwap(was, int64(took)); was = slowest.Load() {
		}
		// One that waited may have been given a connection that came free, and been cancelled there.
		if err != nil || got != "E[57014] Z[I]" && got != fmt.Sprintf("N[w%d] E[57014] Z[I]", i-running) {
			return fmt.Errorf("%s, %w", got, err)
		}
		return <-sent
	})
	limit := time.Second
	if raceDetector {
		limit = 3 * time.Second
	}
	if took := time.Duration(slowest.Load()); took > limit {
		t.Errorf("the last one was released after %v", took)
	} else {
		t.Logf("all released after %v; cancels: %s", took, w.outcomes())
	}
	for _, c := range all {
		c.close()
	}
	w.atRest()
	w.poolsAtRest()
	w.whole(w.transaction(), running)
}

// The server's cancel port hangs: the backend that the cancel was for is out until cancel_ack_timeout, and then replaced.
// Nobody else notices.
func TestHangingCancelPort(t *testing.T) {
	t.Parallel()
	const size, ack = 5, 5 * time.Second // the default of cancel_ack_timeout
	w := newWired(t, "18", fmt.Sprintf("default_pool_size = %d", size))
	w.pooler.tolerate("cancel request failed")
	w.whole(w.transaction(), size)
	before := w.pids()
	load := startLoad(t, w.transaction(), 4*size)
	defer load.stop()
	first := load.rate(2 * time.Second)

	w.treat(relay.Treatment{Fate: relay.Hang})
	c := mustLogin(t, w.transaction())
	if err := c.begun("not cancelled", 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	closed := make(chan time.Duration, 1)
	began := time.Now()
	go func() {
		c.cancel(w.pooler.addr) //nolint:errcheck // its time tells
		closed <- time.Since(began)
	}()
	if err := c.expect("C[DO] Z[I]"); err != nil { // its answer does not wait for the lease
		t.Fatal(err)
	}
	if err := c.hold(conversation{{script(query("SELECT 'another backend'")), "T D[another backend] C[SELECT 1] Z[I]"}}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the client that had cancelled went on after %v", took)
	}
	if n := w.beingCanceled(); n != 1 {
		t.Errorf("%d backends are being cancelled, want 1", n)
	}
	during := load.rate(3 * time.Second)
	if took := <-closed; took < ack-100*time.Millisecond || took > ack+2*time.Second {
		t.Errorf("the cancel connection was closed after %v, want %v", took, ack)
	}
	w.eventually(size, "true")
	if err := poll(patience, func() (bool, error) { return w.beingCanceled() == 0, nil }); err != nil {
		t.Errorf("%d backends are still being cancelled", w.beingCanceled())
	}
	after := load.rate(2 * time.Second)

	t.Logf("statements per second: %.0f before, %.0f during, %.0f after; longest %v", first, during, after, time.Duration(load.longest.Load()))
	const share = float64(size-1) / size
	if slack := 0.85; during < slack*share*first || after < slack*first {
		t.Errorf("statements per second: %.0f before, %.0f with a backend less (%.0f would be its share), %.0f after", first, during, share*first, after)
	}
	if longest := time.Duration(load.longest.Load()); longest > time.Second && !raceDetector {
		t.Errorf("a statement of another client took %v", longest)
	}
	load.stop()
	w.counted("timed_out 1")
	w.treat(relay.Treatment{})
	w.whole(w.transaction(), size)
	if kept := shared(before, w.pids()); kept != size-1 {
		t.Errorf("%d of %d backends were kept, want %d", kept, size, size-1)
	}
}

// pids are the backends of the test's database.
func (w *wired) pids() string {
	return w.value("SELECT coalesce(string_agg(pid::text, ' ' ORDER BY backend_start), '') FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
}

// shared is how many words two lists have in common.
func shared(a, b string) (n int) {
	for word := range strings.FieldsSeq(a) {
		if strings.Contains(" "+b+" ", " "+word+" ") {
			n++
		}
	}
	return n
}

// beingCanceled is sv_being_canceled of all pools.
func (w *wired) beingCanceled() (n int) {
	w.t.Helper()
	for _, row := range w.rows("SHOW POOLS") {
		n += atoi(w.t, row["sv_being_canceled"])
	}
	return n
}

// load is a number of clients that do the same short thing over and over.
type load struct {
	done    atomic.Int64
	longest atomic.Int64 // nanoseconds
	end     chan struct{}
	ended   sync.WaitGroup
	once    sync.Once
}

func startLoad(t *testing.T, at place, clients int) *load {
	t.Helper()
	l := &load{end: make(chan struct{})}
	for range clients {
		c := mustLogin(t, at)
		l.ended.Go(func() {
			for {
				select {
				case <-l.end:
					return
				default:
				}
				began := time.Now()
				if got, err := c.exchange(1, query("SELECT pg_sleep(0.02)")); err != nil || got != "T D[] C[SELECT 1] Z[I]" {
					t.Errorf("load: %s, %v", got, err)
					return
				}
				l.done.Add(1)
				if took := int64(time.Since(began)); took > l.longest.Load() {
					l.longest.Store(took)
				}
			}
		})
	}
	return l
}

// rate is how many statements a second are answered over a time.
func (l *load) rate(over time.Duration) float64 {
	began, from := time.Now(), l.done.Load()
	<-time.After(over)
	return float64(l.done.Load()-from) / time.Since(began).Seconds()
}

func (l *load) stop() {
	l.once.Do(func() { close(l.end) })
	l.ended.Wait()
}

// How a cancel ends decides whether its backend is used again; each end is counted.
func TestCancelOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		treat   relay.Treatment
		refuse  bool
		outcome string
		hit     bool // the statement is cancelled
		kept    bool // the backend is used again
	}{
		{"delivered", relay.Treatment{}, false, "delivered 1", true, true},
		{"delivered late", relay.Treatment{Wait: 200 * time.Millisecond}, false, "delivered 1", true, true},
		{"refused", relay.Treatment{}, true, "not_sent 1", false, true},
		{"never answered", relay.Treatment{Fate: relay.Mute}, false, "timed_out 1", true, false},
		{"lost", relay.Treatment{Fate: relay.Hang}, false, "timed_out 1", false, false},
		{"after cancel_ack_timeout", relay.Treatment{Wait: 700 * time.Millisecond}, false, "timed_out 1", true, false},
		{"reset, and passed on", relay.Treatment{Fate: relay.Reset, Wait: 100 * time.Millisecond}, false, "uncertain 1", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, "18", "default_pool_size = 1", `cancel_ack_timeout = "500ms"`)
			w.pooler.tolerate("cancel request failed")
			w.treat(c.treat)
			cl := mustLogin(t, w.transaction())
			// In a transaction: whatever becomes of the cancel, its holder keeps the backend to the end.
			if err := cl.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
				t.Fatal(err)
			}
			before := w.pids()
			if err := cl.begun("uncertain", 1500*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if c.refuse {
				w.wire.Refuse()
			}
			if err := cl.cancel(w.pooler.addr); err != nil {
				t.Fatal(err)
			}
			want := "C[DO] Z[T]"
			if c.hit {
				want = "E[57014] Z[E]"
			}
			if err := cl.expect(want); err != nil {
				t.Fatal(err)
			}
			w.counted(c.outcome)
			if after := w.pids(); after != before {
				t.Errorf("the backend was closed under its holder: %s, then %s", before, after)
			}
			if c.refuse {
				if err := w.wire.Accept(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cl.send(query("ROLLBACK")); err != nil {
				t.Fatal(err)
			}
			if err := cl.expect("C[ROLLBACK] Z[I]"); err != nil {
				t.Fatal(err)
			}
			next := mustLogin(t, w.transaction())
			if err := next.hold(conversation{{script(query("SELECT 'next', pg_sleep(0.3)")), "T D[next|] C[SELECT 1] Z[I]"}}); err != nil {
				t.Error(err)
			}
			if kept := w.pids() == before; kept != c.kept {
				t.Errorf("the backend was kept: %t", kept)
			}
			cl.close()
			next.close()
			w.poolsAtRest()
		})
	}
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
			if n := w.value("SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); n != "1" {
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
	if err := w.pooler.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := poll(patience, func() (bool, error) { return !w.pooler.running(), nil }); err != nil {
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
