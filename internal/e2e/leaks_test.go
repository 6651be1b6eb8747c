package e2e

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/internal/product"
	"fencepost/supervisor"
)

// held is what a process could lose.
type held struct{ descriptors, goroutines, actors int }

func holdsNow(t testing.TB, s *supervisor.Fencepost) held {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return held{len(fds), runtime.NumGoroutine(), s.Actors()}
}

// holds is what is held when nothing changes any more.
func holds(t testing.TB, s *supervisor.Fencepost) held {
	t.Helper()
	last, same := held{}, 0
	err := poll(15*time.Second, func() (bool, error) {
		now := holdsNow(t, s)
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 30, nil
	})
	if err != nil {
		t.Fatalf("what is held keeps changing: %v", err)
	}
	return last
}

// settlesAt waits until what is held is what was held before.
func settlesAt(t testing.TB, what string, s *supervisor.Fencepost, before held) {
	t.Helper()
	var now held
	if err := poll(15*time.Second, func() (bool, error) { now = holdsNow(t, s); return now == before, nil }); err != nil {
		buf := make([]byte, 1<<20)
		t.Errorf("%s: before %+v, after %+v\n%s", what, before, now, short(string(buf[:runtime.Stack(buf, true)])))
	}
}

// startInside starts Fencepost in this process, so that it can be looked into.
func startInside(t testing.TB, s settings) (*supervisor.Fencepost, string) {
	t.Helper()
	log, err := os.CreateTemp(workDir, "inside-")
	if err != nil {
		t.Fatal(err)
	}
	laid, err := product.Lay(product.Config{Dir: workDir, Settings: s.data(t)})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(laid.File)
	if err != nil {
		t.Fatal(err)
	}
	f, err := supervisor.Start(cfg, "test", zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Shutdown(admin.Immediate)
		if err := f.Wait(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(log.Name())
		if err := errors.Join(err, log.Close(), product.Errors("Fencepost", string(text))); err != nil {
			t.Error(err)
		}
	})
	return f, laid.Addr
}

// Thousands of clients come and go in every way, then everything that clients can do wrong is done: descriptors,
// goroutines and actors are what they were, and at the end nothing is left at all. Not parallel: it counts what the whole
// process holds.
func TestNothingLeaks(t *testing.T) {
	for _, loops := range []struct {
		kind           string
		loops, clients int
	}{{"epoll", 1, 10000}, {"epoll", 2, 2000}, {"portable", 2, 2000}} {
		t.Run(fmt.Sprintf("%s, %d loops", loops.kind, loops.loops), func(t *testing.T) {
			n, db := newDatabase(t, "18")
			ignore := goleak.IgnoreCurrent()
			t.Cleanup(func() { // behind the end of Fencepost
				if err := goleak.Find(ignore); err != nil {
					t.Error(err)
				}
			})
			s, addr := startInside(t, settings{host: n.Addr(), dbname: db, lines: []string{"default_pool_size = 8", fmt.Sprintf("event_loop = %q", loops.kind),
				fmt.Sprintf("event_loops = %d", loops.loops)}})
			l := &lab{t: t, node: n, db: db, pooler: &pooler{nil, addr}}
			l.sql("CREATE TABLE held AS SELECT id, 0 AS n FROM generate_series(1, 100) id", "CREATE TABLE copied (n int, t text)", "GRANT ALL ON held, copied TO PUBLIC")
			l.fill(8)
			for range 2 * loops.loops { // a pool that was asked for once keeps its lanes
				greet(addr, startupPacket(version30, "user", anyUser, "database", "missing")) //nolint:errcheck // it is refused
			}
			before := holds(t, s)
			l.comeAndGo(loops.clients)
			l.fill(8)
			settlesAt(t, "after clients that came and went", s, before)
			l.misbehave()
			l.fill(8)
			settlesAt(t, "after clients that misbehaved", s, before)
		})
	}
}

// fill opens every connection the pools may have.
func (l *lab) fill(n int) {
	l.t.Helper()
	l.atRest()
	l.whole(l.transaction(), n)
	l.whole(l.session(), n)
	l.poolsAtRest()
}

// comeAndGo has n clients come, half of them ask something, and go.
func (l *lab) comeAndGo(n int) {
	l.t.Helper()
	const together = 20
	l.each(together, func(i int) error {
		for k := range n / together {
			at := []place{l.transaction(), l.session()}[k%2]
			c, err := at.login()
			if err != nil {
				return err
			}
			if k%4 < 2 {
				if got, err := c.query("SELECT 'here'"); err != nil || got != "here" {
					return fmt.Errorf("%s, %w", got, err)
				}
			}
			departures[(i+k)%3].go_(c)
			c.nc.Close()
		}
		return nil
	})
}

// misbehave does what other tests do one by one.
func (l *lab) misbehave() {
	l.t.Helper()
	var open []*raw
	for i, p := range predicaments {
		if p.finishes || i%7 == 6 { // no more than the pool has
			continue
		}
		for _, d := range departures {
			c, err := []place{l.transaction(), l.session()}[i%2].login()
			if err != nil {
				l.t.Fatal(err)
			}
			if err := c.hold(p.talk(i + 1)); err != nil {
				l.t.Fatalf("%s: %v", p.name, err)
			}
			if err := c.write([]byte(p.rest)); err != nil {
				l.t.Fatal(err)
			}
			d.go_(c)
			open = append(open, c)
		}
	}
	for _, bad := range badGreetings {
		if _, err := greet(l.pooler.addr, bad.packet); err != nil {
			l.t.Errorf("%s: %v", bad.name, err)
		}
	}
	for _, p := range badMessages {
		c, err := l.transaction().login()
		if err != nil {
			l.t.Fatal(err)
		}
		if err := c.write([]byte(p)); err != nil {
			l.t.Fatal(err)
		}
		c.first("") //nolint:errcheck // to the end, whatever comes
		open = append(open, c)
	}
	l.terminate()
	for _, c := range open {
		c.nc.Close()
	}
}
