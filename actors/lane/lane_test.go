package lane

import (
	"testing"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
)

// A client is welcomed with what the pool's servers report, in a fixed order, and the pool's first connection is opened
// for it.
func TestAttach(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		p := r.newProbe(0, key)
		p.attach()
		a := get(r, p.attached)
		if a.Req != p.req || len(a.Startup.Parameters) != len(fakepg.Reported()) {
			t.Errorf("%+v", a)
		}
		for i := 1; i < len(a.Startup.Parameters); i++ {
			if a.Startup.Parameters[i][0] <= a.Startup.Parameters[i-1][0] {
				t.Errorf("parameters out of order: %v", a.Startup.Parameters)
			}
		}
		for range 20 {
			r.login(0)
		}
		if n := r.server.Logins(); n != 1 {
			t.Errorf("%d server logins for clients that ask for nothing", n)
		}
		if row := r.row(0, key); row.Clients != 21 || row.Stats.Logins != 21 {
			t.Errorf("%d clients, %d logins", row.Clients, row.Stats.Logins)
		}
	})
}

// A server that refuses the login has its words passed on; the next client after the back-off tries again.
func TestAttachIsRefusedOnlyAsLongAsTheServerRefuses(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.server.Refuse(&fakepg.Error{Severity: "FATAL", Code: "3D000", Message: "no such database"})
		p := r.newProbe(0, key)
		p.attach()
		if e := get(r, p.refused).Err; e.Code != "3D000" || e.Disposition() != pgerr.End {
			t.Errorf("refused with %v", e)
		}
		q := r.newProbe(0, key)
		q.attach() // while the connects rest: told the same, without another connect
		if e := get(r, q.refused).Err; e.Code != "3D000" {
			t.Errorf("refused with %v", e)
		}
		if n := r.server.Logins(); n != 1 {
			t.Errorf("%d server logins", n)
		}
		p.lane, q.lane = r.lanes[0], r.lanes[0]
		p.detach()
		q.detach()
		r.server.Refuse(nil)
		r.sleep(time.Minute)
		r.login(0)
		if row := r.row(0, key); row.Clients != 1 {
			t.Errorf("%d clients", row.Clients)
		}
	})
}

// A server that cannot be reached, or is starting up, is waited for.
func TestAttachWaitsForAServer(t *testing.T) {
	for name, hold := range map[string]func(s *fakepg.Server){
		"unreached": func(s *fakepg.Server) { s.SetFaults(fakepg.Faults{Unreached: 1000}) },
		"starting up": func(s *fakepg.Server) {
			s.Refuse(&fakepg.Error{Severity: "FATAL", Code: "57P03", Message: "starting up"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(r *rig) {
				hold(r.server)
				p := r.newProbe(0, key)
				p.attach()
				none(r, p.attached, 10*time.Second)
				none(r, p.refused, 0)
				r.server.SetFaults(fakepg.Faults{})
				r.server.Refuse(nil)
				began := time.Now()
				get(r, p.attached)
				if took := time.Since(began); took > 1200*time.Millisecond {
					t.Errorf("welcomed %v after the server was back", took)
				}
			})
		})
	}
}

// One grant a checkout, in the order of the queue, and each connection to one client at a time.
func TestCheckoutInOrder(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		var all []*probe
		for range 6 {
			p := r.login(0)
			p.ask()
			all = append(all, p)
		}
		held := map[*backend.Backend]bool{}
		a, b := all[0].take(), all[1].take()
		if held[a] = true; a == b {
			t.Fatal("two hold one connection")
		}
		for i := 2; i < 6; i++ {
			none(r, all[i].granted, time.Millisecond)
			all[i-2].give(a, pool.Clean)
			if got := all[i].take(); got != a {
				t.Errorf("client %d got another connection than the one that came back", i)
			}
			a, b = b, a
		}
		if n := r.server.Logins(); n != 2 {
			t.Errorf("%d server logins, the pool's size is 2", n)
		}
	})
}

// At the deadline a waiter hears why: the pool is busy, its server cannot be reached or is starting up, or it is paused.
func TestRefusedAtTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(r *rig)
		code    string
	}{
		"busy": {func(r *rig) {
			for range 2 {
				p := r.login(0)
				p.ask()
				p.take()
			}
		}, pgerr.QueryWaitTimeout(0).Code},
		"unreached": {func(r *rig) {
			r.server.SetFaults(fakepg.Faults{Unreached: 1000})
			r.server.KillIdle(0)
		}, pgerr.CannotConnect(nil).Code},
		"starting up": {func(r *rig) {
			r.server.Refuse(&fakepg.Error{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"})
			r.server.KillIdle(0)
		}, "57P03"},
		"paused": {func(r *rig) { r.control(0, Pause) }, pgerr.Paused("db", 0).Code},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(r *rig) {
				p := r.login(0)
				tc.prepare(r)
				r.sleep(time.Second)
				p.ask()
				began := time.Now()
				e := get(r, p.denied).Err
				if took := time.Since(began); took < 5*time.Second || took > 5200*time.Millisecond {
					t.Errorf("refused after %v", took)
				}
				if e.Code != tc.code || e.Disposition() != pgerr.Continue && tc.code == "53300" {
					t.Errorf("refused with %v", e)
				}
				none(r, p.granted, 0)
				if row := r.row(0, key); row.Waiting != 0 || row.Stats.Refused != 1 {
					t.Errorf("%d wait, %d refused", row.Waiting, row.Stats.Refused)
				}
			})
		})
	}
}

// A client that leaves the queue is not granted; one that is granted as it leaves has its connection reclaimed.
func TestLeaving(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(1)
		a, b, c, d := r.login(0), r.login(0), r.login(0), r.login(0)
		a.ask()
		held := a.take()
		b.ask()
		c.ask()
		d.ask()
		r.system.Root.Send(b.lane, &Abandon{Checkout: b.checkout})
		c.detach() // without an Abandon: its session failed
		r.sleep(time.Second)
		a.give(held, pool.Clean)
		get(r, d.granted) // and d dies without having seen it
		d.detach()
		none(r, b.granted, time.Second)
		none(r, c.granted, 0)
		a.ask()
		a.take()
		if row := r.row(0, key); row.Clients != 2 || row.Waiting != 0 || r.server.Logins() != 1 {
			t.Errorf("%d clients, %d wait, %d server logins", row.Clients, row.Waiting, r.server.Logins())
		}
	})
}

// A connection that died while idle is not granted: the client gets another and notices nothing.
func TestDeadIdleBackend(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		p := r.login(0)
		p.ask()
		old := p.take()
		p.give(old, pool.Clean)
		r.sleep(time.Second)
		r.server.KillIdle(0)
		r.sleep(1) // the time it takes to arrive; what comes at the same instant is the simulation's business
		p.ask()
		if p.take() == old {
			t.Error("granted a dead connection")
		}
		none(r, p.lost, time.Second)
	})
}

// A dirty connection is cleaned before anybody else gets it, by the reset query in session mode.
func TestDirtyBackendIsCleaned(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(1)
		r.spec.ResetQuery = "DISCARD ALL"
		texts := make(chan string, 10)
		r.server.Watch = func(e fakepg.Event) { texts <- e.Text }
		a, b := r.login(0), r.login(0)
		a.ask()
		held := a.take()
		a.query(held, "BEGIN")
		r.sleep(time.Second)
		b.ask()
		a.give(held, pool.Dirty)
		if b.take() != held {
			t.Error("another connection")
		}
		for _, want := range []string{"BEGIN", "ROLLBACK", "DISCARD ALL"} {
			if got := get(r, texts); got != want {
				t.Errorf("the server saw %q instead of %q", got, want)
			}
		}
	})
}

// A lane that fails is restarted under its name: whoever waited is told, held connections end, permits come back, and its
// clients are served on.
func TestLaneFails(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		a, b, c, d := r.login(0), r.login(0), r.login(0), r.login(0)
		a.ask()
		held := a.take()
		b.ask()
		b.take()
		c.ask()
		none(r, c.granted, time.Second)
		r.control(0, Pause)
		r.control(0, Resume)
		r.system.Root.Send(a.lane, (*Checkout)(nil))
		get(r, c.denied)
		get(r, a.lost)
		get(r, b.lost)
		r.system.Root.Send(a.lane, &Checkin{Backend: held, Condition: pool.Broken}) // a's word crosses the restart
		r.sleep(time.Second)
		row := r.row(0, key)
		for st, n := range row.Counts {
			if n != 0 && st > 0 {
				t.Errorf("%d backends are %v after the restart", n, pool.State(st))
			}
		}
		if budget, _ := r.deps.Budgets.For(key, "server:5432", r.spec); budget.Used() != 0 || row.Clients != 4 {
			t.Errorf("%d permits are out, %d clients", budget.Used(), row.Clients)
		}
		for _, p := range []*probe{a, b, d} {
			p.ask()
			p.give(p.take(), pool.Clean)
		}
	})
}

// A lane of a paused database that fails comes back paused, with the limits of the last reload.
func TestLaneFailsPausedAndReloaded(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		p := r.login(0)
		spec := r.newSpec(2)
		spec.Limits.MinSize = 2
		r.reload(spec)
		r.control(0, Pause)
		r.sleep(time.Second)
		r.system.Root.Send(p.lane, (*Checkout)(nil))
		p.ask()
		none(r, p.granted, time.Second)
		r.control(0, Resume)
		p.give(p.take(), pool.Clean)
		r.sleep(5 * time.Second)
		if row := r.row(0, key); row.Counts[pool.Idle] != 2 {
			t.Errorf("%d backends are idle, min_pool_size is 2", row.Counts[pool.Idle])
		}
	})
}

// A backend that fails is replaced.
func TestBackendFails(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(1)
		p := r.login(0)
		p.ask()
		held := p.take()
		r.system.Root.Send(r.system.NewLocalPID(p.lane.Id+"/b1"), (*backend.Close)(nil))
		get(r, p.lost)
		p.ask()
		if p.take() == held {
			t.Error("the same backend")
		}
	})
}

// PAUSE lets what runs finish, closes what is idle and holds the rest back; RECONNECT replaces every connection.
func TestPauseAndReconnect(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		quiet := func(v Verb) int {
			reply := make(chan int, 1)
			r.system.Root.Send(r.lanes[0], &Quiet{Wait: v, Database: "db", Reply: reply})
			return get(r, reply)
		}
		a, b := r.login(0), r.login(0)
		a.ask()
		held := a.take()
		b.ask()
		b.give(b.take(), pool.Clean)
		r.control(0, Pause)
		r.sleep(time.Second)
		if n := quiet(Pause); n != 1 {
			t.Errorf("%d connections while one is held in a paused pool", n)
		}
		b.ask()
		none(r, b.granted, time.Second)
		a.give(held, pool.Clean)
		r.sleep(time.Second)
		if n := quiet(Pause); n != 0 {
			t.Errorf("%d connections in a paused pool at rest", n)
		}
		late := r.newProbe(0, PoolKey{"db", "other"}) // lanes made later are paused, too
		late.attach()
		none(r, late.attached, time.Second)
		r.control(0, Resume)
		first := b.take()
		get(r, late.attached)
		r.control(0, Reconnect)
		r.sleep(time.Second)
		if n := quiet(Reconnect); n != 1 {
			t.Errorf("%d connections are still to be replaced, one is held", n)
		}
		b.give(first, pool.Clean)
		b.ask()
		if b.take() == first || quiet(Reconnect) != 0 {
			t.Error("not replaced")
		}
	})
}

// min_pool_size connections are there before the first client comes, and stay.
func TestMinSize(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		r.spec = r.newSpec(4)
		r.spec.Limits.MinSize, r.spec.Limits.IdleTimeout = 3, time.Second
		r.system.Root.Send(r.lanes[0], &Ensure{Pool: key, Spec: r.spec})
		r.sleep(time.Minute)
		if row := r.row(0, key); row.Counts[pool.Idle] != 3 || r.server.Logins() != 3 {
			t.Errorf("%d idle after %d logins", row.Counts[pool.Idle], r.server.Logins())
		}
		r.server.KillIdle(0)
		r.sleep(5 * time.Second)
		if row := r.row(0, key); row.Counts[pool.Idle] != 3 {
			t.Errorf("%d idle after all had died", row.Counts[pool.Idle])
		}
	})
}

// Changes of the database's name on the server replace the connections and the startup parameters.
func TestReloadReplacesConnections(t *testing.T) {
	bubble(t, 1, func(r *rig) {
		p := r.login(0)
		p.ask()
		old := p.take()
		spec := r.newSpec(2)
		spec.DBName = "elsewhere"
		r.reload(spec)
		r.sleep(time.Second)
		p.give(old, pool.Clean)
		p.ask()
		if p.take() == old {
			t.Error("a connection to the old database is granted")
		}
	})
}
