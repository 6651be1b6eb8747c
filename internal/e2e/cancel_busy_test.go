package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/internal/relay"
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
	w.pooler.Tolerate("cancel request failed")
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
	// What a whole pool does in these seconds varies with what else runs on the machine: this tells a pool that stands still
	// from one that is a backend short. The figures are in docs/cancel.md.
	if slack := 0.4; during < slack*share*first || after < slack*first {
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
	return w.value("SELECT coalesce(string_agg(pid::text, ' ' ORDER BY backend_start), '') FROM pg_stat_activity WHERE datname = current_database() AND usename <> 'postgres' AND backend_type = 'client backend'")
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
