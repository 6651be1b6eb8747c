package lane

import (
	"testing"
	"time"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
	"fencepost/role"
)

// fencing puts a client into a fence that is not answered until release is called. The pool has one idle connection.
func (r *roles) fencing() (p *probe, release func()) {
	r.t.Helper()
	p, b := r.holding(ReadWrite)
	p.give(b, pool.Clean)
	r.settle()
	r.doubt()
	release = r.hosts[hostA].hold()
	p.ask()
	r.settle()
	if r.hosts[hostA].asked() != 1 || len(p.granted) != 0 {
		r.t.Fatalf("%d fences, %d grants", r.hosts[hostA].asked(), len(p.granted))
	}
	return p, release
}

// While there is no doubt nobody is fenced; in doubt every backend is, once; with fence = always every checkout.
func TestWhenFencesAreAsked(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		fences := func(want int) {
			t.Helper()
			if n := r.hosts[hostA].asked(); n != want {
				t.Errorf("%d fences instead of %d", n, want)
			}
		}
		p := r.with(ReadWrite)
		again := func(n int) {
			for range n {
				p.ask()
				r.served(hostA, p)
			}
		}
		again(3)
		fences(0)
		over := r.doubt()
		again(3)
		fences(1)
		r.doubt() // again
		again(3)
		fences(2)
		over()
		again(3)
		fences(2)
		r.shard.RaiseDoubt(time.Now()) // by somebody else, who has not told the shard's actor yet
		r.settle()
		again(3)
		fences(3)
		r.shard.ClearDoubt()
		spec := r.newSpec(4)
		spec.Fence = FenceAlways
		r.reload(spec)
		r.settle()
		again(3)
		fences(6)
		if seen := toldOf[*shard.Observed](r); len(seen) != 3 { // while in doubt each is news, afterwards not so soon again
			t.Errorf("the shard was told %+v", seen)
		}
		time.Sleep(newsEvery)
		again(3)
		fences(9)
		if seen := toldOf[*shard.Observed](r); len(seen) != 4 || seen[3].Observation.Verdict != role.Writable || seen[3].Observation.Host != hostA {
			t.Errorf("the shard was told %+v", seen)
		}
		if n := r.row(0, key).Stats.Fences[FenceOK]; n != 9 {
			t.Errorf("%d fences were counted", n)
		}
		read := r.with(Any)
		read.ask()
		read.take()
		fences(9)
	})
}

// A no, an error and a lost connection close the backend; the waiter keeps its turn and gets one that proves.
func TestFenceThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func(h *fakeHost)
		want FenceVerdict
	}{
		"no":        {func(h *fakeHost) { h.server.SetIdentity(standby(1)) }, FenceNo},
		"read only": {func(h *fakeHost) { id := primary(1); id.ReadOnly = true; h.server.SetIdentity(id) }, FenceNo},
		"below":     {func(h *fakeHost) { h.server.SetIdentity(fakepg.Identity{SystemID: 1, Timeline: 1}) }, FenceNo},
		"error": {func(h *fakeHost) {
			h.server.SetIdentity(fakepg.Identity{Trouble: &fakepg.Error{Severity: "ERROR", Code: "XX000", Message: "broken"}})
		}, FenceFailed},
		"garbage": {func(h *fakeHost) { h.server.SetIdentity(fakepg.Identity{Garbage: "what?"}) }, FenceFailed},
		"lost":    {func(h *fakeHost) { h.server.Kill(h.server.PIDs()[0]) }, FenceFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(1)
				p, release := r.fencing()
				q := r.waits(ReadWrite, 1)[0]
				tc.fail(r.hosts[hostA])
				release()
				r.sleep(time.Millisecond)
				if name != "lost" { // which is nothing to wait for
					none(r.rig, p.granted, 0)
				}
				if r.state(hostA, pool.Idle) != 0 || r.row(0, key).Stats.Fences[tc.want] != 1 {
					t.Errorf("%d idle, fences %v", r.state(hostA, pool.Idle), r.row(0, key).Stats.Fences)
				}
				r.hosts[hostA].server.SetIdentity(primary(1))
				r.served(hostA, p, q)
				none(r.rig, p.denied, 10*time.Second)
				none(r.rig, q.denied, 0)
			})
		})
	}
}

// Who waits for a slow fence takes another backend after a second; the slow one is kept, and serves when it has answered.
func TestSlowFence(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, release := r.fencing()
		none(r.rig, p.granted, 900*time.Millisecond)
		if n := r.hosts[hostA].server.Logins(); n != 1 {
			t.Errorf("%d logins", n)
		}
		b := p.take()
		r.sleep(time.Second)
		if r.state(hostA, pool.Leased) != 2 {
			t.Errorf("%d leased", r.state(hostA, pool.Leased))
		}
		release()
		r.settle()
		if r.state(hostA, pool.Idle) != 1 {
			t.Errorf("%d idle", r.state(hostA, pool.Idle))
		}
		q := r.with(ReadWrite)
		q.ask()
		if q.take() == b {
			t.Error("granted twice")
		}
		r.quiet(p)
	})
}

// A fence that is not answered is given up at the deadline: 08006, and the backend is closed.
func TestUnansweredFence(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		p, _ := r.fencing()
		began := time.Now()
		e := get(r.rig, p.denied).Err
		if took := time.Since(began); e.Code != pgerr.FenceUnanswered(0).Code || took < 4900*time.Millisecond || took > 5200*time.Millisecond {
			t.Errorf("refused with %v after %v", e, took)
		}
		r.sleep(100 * time.Millisecond)
		if r.state(hostA, pool.Leased) != 0 {
			t.Error("the backend is still leased")
		}
		for _, m := range toldOf[*shard.HostLost](r) {
			if !m.Expected {
				t.Errorf("it counts as a loss: %+v", m)
			}
		}
		r.quiet(p)
	})
}

// Without a deadline a fence that is not answered ends all the same.
func TestUnansweredFenceWithoutADeadline(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		p, b := r.holding(ReadWrite)
		p.give(b, pool.Clean)
		r.settle()
		r.doubt()
		r.hosts[hostA].hold()
		p.req++
		p.checkout = &Checkout{From: p.pid}
		p.checkout.Req, p.checkout.Enqueued = p.req, time.Now()
		r.system.Root.Send(p.lane, p.checkout)
		none(r.rig, p.granted, 29*time.Second)
		r.sleep(1200 * time.Millisecond)
		if len(p.granted) != 1 {
			t.Error("not served by a new connection")
		}
		none(r.rig, p.denied, 10*time.Second)
	})
}

// Doubt that rises during a fence, or another view of the same host, has it asked again; patience does not begin anew.
func TestFenceIsAskedAgain(t *testing.T) {
	for name, change := range map[string]func(r *roles){
		"doubt":             func(r *roles) { r.doubt() },
		"view":              func(r *roles) { r.publish(func(v *shard.View) { v.Floor-- }) },
		"view without word": func(r *roles) { r.publishQuietly(func(v *shard.View) { v.Floor-- }) },
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(1)
				p, release := r.fencing()
				r.sleep(600 * time.Millisecond)
				change(r)
				release()
				again := r.hosts[hostA].hold()
				r.settle()
				none(r.rig, p.granted, 0)
				if n := r.hosts[hostA].asked(); n != 2 {
					t.Errorf("%d fences", n)
				}
				r.sleep(500 * time.Millisecond)
				if n := r.row(0, key).Waiting; n != 1 {
					t.Errorf("%d wait for another backend after more than a second", n)
				}
				again()
				r.served(hostA, p)
			})
		})
	}
}

// When the election moves, who waits for a fence is served by the new primary at once, at its turn.
func TestElectionDuringAFence(t *testing.T) {
	for name, between := range map[string]func(r *roles, p *probe){
		"at once": func(*roles, *probe) {},
		"after nobody was": func(r *roles, p *probe) {
			r.elect("")
			none(r.rig, p.granted, time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(1)
				p, release := r.fencing()
				q := r.waits(ReadWrite, 1)[0]
				between(r, p)
				r.promote(hostB)
				r.served(hostB, p, q)
				release()
				r.settle()
				if n := r.hosts[hostA].server.Open(); n != 0 {
					t.Errorf("%d connections to the old primary are left", n)
				}
				r.quiet(p)
			})
		})
	}
}

// Nobody is elected, and then the same host again: the connection whose fence was answered meanwhile is still good.
func TestFenceIsAnsweredWhileNobodyIsElected(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		p, release := r.fencing()
		r.elect("")
		if n := r.row(0, key).Waiting; n != 1 {
			t.Errorf("%d wait", n)
		}
		release()
		r.sleep(time.Second)
		none(r.rig, p.granted, 0)
		r.elect(hostA)
		r.served(hostA, p)
		if n := r.hosts[hostA].server.Logins(); n != 1 {
			t.Errorf("%d logins", n)
		}
	})
}

// Whoever leaves during a fence is not answered, and the backend is there for the next one.
func TestLeavingDuringAFence(t *testing.T) {
	for name, leave := range map[string]func(r *roles, p *probe){
		"abandon": func(r *roles, p *probe) { r.system.Root.Send(p.lane, &Abandon{Checkout: p.checkout}) },
		"detach":  func(_ *roles, p *probe) { p.detach() },
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				p, release := r.fencing()
				leave(r, p)
				r.settle()
				release()
				r.sleep(10 * time.Second)
				r.quiet(p)
				if r.state(hostA, pool.Idle) != 1 {
					t.Errorf("%d idle", r.state(hostA, pool.Idle))
				}
			})
		})
	}
}

// PAUSE waits for fences, and who was fenced for waits until RESUME, at its turn. RECONNECT replaces what is fenced.
func TestControlDuringAFence(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		p, release := r.fencing()
		r.control(0, Pause)
		r.settle()
		q := r.waits(ReadWrite, 1)[0]
		if n := r.unfinished(Pause); n != 1 {
			t.Errorf("%d unfinished during a fence", n)
		}
		release()
		r.sleep(time.Second)
		if n := r.unfinished(Pause); n != 0 {
			t.Errorf("%d unfinished after it", n)
		}
		r.quiet(p)
		r.control(0, Resume)
		r.served(hostA, p, q)

		release = r.hosts[hostA].hold()
		r.doubt()
		p.ask()
		r.settle()
		r.control(0, Reconnect)
		if n := r.unfinished(Reconnect); n != 1 {
			t.Errorf("%d unfinished", n)
		}
		release()
		r.served(hostA, p)
		r.settle()
		if n := r.unfinished(Reconnect); n != 0 || r.hosts[hostA].server.Open() != 0 {
			t.Errorf("%d unfinished, %d open", n, r.hosts[hostA].server.Open())
		}
	})
}

// A server that lets everybody in and never is what it should be is not dialled without end.
func TestUnfitServersAreNotDialledWithoutEnd(t *testing.T) {
	for name, spoil := range map[string]func(r *roles){
		"below the floor": func(r *roles) { r.publish(func(v *shard.View) { v.Floor = 2 }) },
		"another cluster": func(r *roles) { r.publish(func(v *shard.View) { v.SystemID = 1 }) },
		"in recovery":     func(r *roles) { r.hosts[hostA].server.SetIdentity(standby(1)) },
		"fences fail": func(r *roles) {
			r.spec.Fence = FenceAlways
			r.hosts[hostA].server.Watch = nil
			r.hosts[hostA].server.SetFaults(fakepg.Faults{Close: 1000})
		},
		"fences are refused": func(r *roles) {
			r.spec.Fence = FenceAlways
			r.hosts[hostA].server.SetFaults(fakepg.Faults{Terminate: 1000})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(8)
				r.spec.Limits.RetryMax = 15 * time.Second
				spoil(r)
				r.deps.Budgets.joinParams(key).primary.Store(&StartupParams{})
				all := r.waits(ReadWrite, 20)
				r.sleep(time.Second)
				before := r.hosts[hostA].server.Logins()
				if before > 20 { // those of the beginning, and one or two with each further attempt
					t.Errorf("%d logins in the first second", before)
				}
				r.sleep(3 * time.Second)
				if n := r.hosts[hostA].server.Logins() - before; n < 2 || n > 6 {
					t.Errorf("%d logins in three seconds", n)
				}
				for _, p := range all {
					if e := get(r.rig, p.denied).Err; e.Code != "57P03" && e.Code != "08006" {
						t.Errorf("refused with %v", e)
					}
					r.quiet(p)
				}
				r.hosts[hostA].server.SetFaults(fakepg.Faults{})
				r.hosts[hostA].server.SetIdentity(primary(2))
				r.publish(func(v *shard.View) { v.SystemID = fakepg.Ordinary().SystemID })
				began := time.Now()
				for _, p := range all {
					p.ask()
				}
				for _, p := range all {
					b := p.take()
					r.sleep(time.Millisecond)
					p.give(b, pool.Clean)
				}
				if took := time.Since(began); took > 1200*time.Millisecond {
					t.Errorf("all served only %v after the server was fit", took)
				}
				r.deps.Budgets.leaveParams(key)
			})
		})
	}
}

// Nor is one that lets everybody in and hangs up.
func TestServersThatHangUpAreNotDialledWithoutEnd(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec.Limits.MinSize = 4
		r.with(ReadWrite)
		r.settle()
		before := r.hosts[hostA].server.Logins()
		for range 400 {
			r.hosts[hostA].server.KillIdle(0)
			r.sleep(10 * time.Millisecond)
		}
		if n := r.hosts[hostA].server.Logins() - before; n < 3 || n > 20 {
			t.Errorf("%d logins in four seconds", n)
		}
	})
}
