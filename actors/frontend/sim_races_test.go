package frontend

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A race is one short scenario, played with many seeds, so that every order of the few steps in question comes up.
const races = 240

// scenario plays f in a world without trouble of its own: a transaction pool of the given size on one loop.
func scenario(t *testing.T, seed uint64, size int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		w.calm, w.idleDeaths, w.busy, w.mode, w.plain = true, false, false, Transaction, size
		w.start(t)
		w.calm = false // the scenario says itself what may go wrong
		f(w)
		w.rest()
		w.stop()
		for _, p := range w.problems {
			t.Errorf("seed %d: %s\n%v", seed, p, w.lines())
		}
	})
}

func (w *world) loggedIn(id int) *client {
	c := w.newClient(id)
	if !c.login() {
		w.problem("client %d is refused", id)
	}
	return c
}

// A server connection that dies while it is being granted: the request is answered by another one, or the session is told.
// Nobody waits for ever.
func TestGrantOfADyingBackend(t *testing.T) {
	t.Parallel()
	answered := 0
	for seed := range uint64(races) {
		scenario(t, seed, 1, func(w *world) {
			c := w.loggedIn(0)
			defer c.close()
			c.simple(c.tag())
			time.Sleep(time.Second)
			w.later(int(seed%12), func() { w.server.KillIdle(time.Millisecond) })
			if c.simple(c.tag()) {
				answered++
			}
		})
	}
	if answered < races/4 || answered == races {
		t.Errorf("%d of %d requests were answered: that is not the race", answered, races)
	}
}

// A cancel that comes when its query is just over hits nobody else, whoever has the server connection by then.
func TestCancelOfAFinishedQueryHitsNobody(t *testing.T) {
	t.Parallel()
	for seed := range uint64(races) {
		scenario(t, seed, 1, func(w *world) {
			a, b := w.loggedIn(0), w.loggedIn(1)
			defer a.close()
			defer b.close()
			var both sync.WaitGroup
			both.Go(func() {
				a.cancelled = true
				w.later(int(seed%16), func() { w.system.Root.Send(w.deps.Cancel, &CancelRequest{Key: a.key, Done: func() {}}) })
			})
			both.Go(func() {
				time.Sleep(time.Nanosecond)
				tag := b.tag()
				b.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(0.2), '%s'", tag)})
				b.verify(request{rows: []string{tag}}, tag, b.read(1))
			})
			tag := a.tag()
			a.send(&pgproto3.Query{String: sel(tag)})
			a.verify(request{rows: []string{tag}}, tag, a.read(1))
			both.Wait()
		})
	}
}

// A client that leaves while it is being granted a connection leaves nothing behind.
func TestLeavingWhileGranted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(races) {
		scenario(t, seed, 1, func(w *world) {
			a, b := w.loggedIn(0), w.loggedIn(1)
			defer b.close()
			a.simple(a.tag())
			a.nc.Write(encode(&pgproto3.Query{String: sel(a.tag())}))
			time.Sleep(time.Duration(seed % 16))
			a.close()
			b.simple(b.tag())
		})
	}
}

// A request that follows a cancel in the queue at once is answered once, and nothing stays behind of the one before.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	canceled := 0
	for seed := range uint64(races) {
		scenario(t, seed, 1, func(w *world) {
			a, b := w.loggedIn(0), w.loggedIn(1)
			defer b.close()
			defer a.close()
			var holder sync.WaitGroup
			tag := b.tag()
			b.send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(0.000001), '%s'", tag)})
			holder.Go(func() { b.verify(request{rows: []string{tag}}, tag, b.read(1)) })
			time.Sleep(time.Microsecond - 20 + time.Duration(seed%30))
			a.cancelled = true
			first := a.tag()
			a.send(&pgproto3.Query{String: sel(first)})
			w.system.Root.Send(w.deps.Cancel, &CancelRequest{Key: a.key, Done: func() {}})
			if !a.verify(request{rows: []string{first}}, first, a.read(1)) {
				canceled++
			}
			a.simple(a.tag())
			holder.Wait()
		})
	}
	if canceled < races/20 || canceled > races*19/20 {
		t.Errorf("%d of %d were canceled: that is not the race", canceled, races)
	}
}
