package lane

import (
	"sync/atomic"
	"testing"
	"time"

	"fencepost/actors/lane/pool"
)

// Two loops share a pool: never more connections than its size, and a lane that has none gets one although the other is
// busy all the time.
func TestLanesShareAPool(t *testing.T) {
	bubble(t, 2, func(r *rig) {
		r.spec = r.newSpec(4)
		var busy []*probe
		for range 12 {
			busy = append(busy, r.login(0))
		}
		var stop atomic.Bool
		for _, p := range busy {
			go func() {
				for !stop.Load() {
					p.ask()
					b := (<-p.granted).Backend
					r.on(0, func() { b.Serve(p) })
					r.sleep(10 * time.Millisecond)
					p.give(b, pool.Clean)
				}
			}()
		}
		r.sleep(time.Second)
		q := r.login(1)
		for range 50 {
			q.ask()
			began := time.Now()
			b := q.take()
			if took := time.Since(began); took > time.Second {
				t.Errorf("served after %v", took)
			}
			q.give(b, pool.Clean)
			r.sleep(20 * time.Millisecond)
			if budget, _ := r.deps.Budgets.For(key, "server:5432", r.spec); budget.Used() > 4 {
				t.Errorf("%d permits are out", budget.Used())
			}
		}
		stop.Store(true)
		r.sleep(time.Second)
		n := 0
		for loop := range 2 {
			for st := pool.Dialling; st <= pool.Closing; st++ {
				n += r.row(loop, key).Counts[st]
			}
		}
		if budget, db := r.deps.Budgets.For(key, "server:5432", r.spec); budget.Used() != n || db.Used() != n {
			t.Errorf("%d and %d permits are out for %d backends", budget.Used(), db.Used(), n)
		}
	})
}

// Two pools under one max_db_connections: one that waits gets the other's idle connection, and a reserve is not worth
// taking another's: no connections are opened and closed for nobody.
func TestPoolsShareADatabase(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(4)
		r.spec.DBLimit = 1
		a := r.loginTo(0, PoolKey{"db", "a"})
		a.ask()
		held := a.take()
		b := r.newProbe(0, PoolKey{"db", "b"})
		b.attach()
		none(r, b.attached, 10*time.Second)
		a.give(held, pool.Clean)
		began := time.Now()
		get(r, b.attached)
		if took := time.Since(began); took > time.Second {
			t.Errorf("welcomed after %v", took)
		}
	})
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(4)
		r.spec.DBLimit, r.spec.Limits.MinSize = 3, 3
		r.system.Root.Send(r.lanes[0], &Ensure{Pool: PoolKey{"db", "a"}, Spec: r.spec})
		r.system.Root.Send(r.lanes[0], &Ensure{Pool: PoolKey{"db", "b"}, Spec: r.spec})
		r.sleep(time.Minute)
		if n := r.server.Logins(); n > 4 {
			t.Errorf("%d server logins in a minute for three connections", n)
		}
	})
}

// A raised limit is used at once, a lowered one as connections end.
func TestReloadOfTheSize(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(1)
		a, b := r.login(0), r.login(0)
		a.ask()
		held := a.take()
		b.ask()
		none(r, b.granted, time.Second)
		r.reload(r.newSpec(2))
		began := time.Now()
		other := b.take()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("served %v after the limit was raised", took)
		}
		r.reload(r.newSpec(1))
		a.give(held, pool.Broken)
		r.sleep(time.Second)
		a.ask()
		none(r, a.granted, time.Second)
		b.give(other, pool.Clean)
		a.take()
	})
}

// The lane of a made-up database name does not stay for ever.
func TestUnusedLaneEnds(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(1)
		r.spec.Auto = true
		r.spec.Limits.IdleTimeout = time.Minute
		p := r.login(0)
		p.ask()
		held := p.take()
		r.sleep(3 * time.Hour)
		p.give(held, pool.Clean)
		p.detach()
		if row := r.row(0, key); row.Pool != key {
			t.Fatal("no lane")
		}
		r.sleep(2 * time.Hour)
		if row := r.row(0, key); row.Pool == key {
			t.Errorf("the lane is still there: %+v", row)
		}
		r.login(0)
	})
}

// A detach that crosses a refusal counts once.
func TestDetachCrossesRefusal(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.server.Refuse(&refusal)
		p := r.newProbe(0, key)
		p.lane = r.lanes[0]
		p.attach()
		p.detach()
		r.sleep(time.Minute)
		if row := r.row(0, key); row.Clients != 0 {
			t.Errorf("%d clients", row.Clients)
		}
	})
}
