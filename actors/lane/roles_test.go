package lane

import (
	"io"
	"testing"
	"time"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/fakepg"
)

// Writes wait while no primary is known, and are served in the order in which they came as soon as one is elected.
func TestWritesWaitForAnElection(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		first := r.with(ReadWrite)
		r.elect("")
		first.ask()
		all := append([]*probe{first}, r.waits(ReadWrite, 4)...)
		none(r.rig, first.granted, 3*time.Second)
		if n := r.row(0, key).Waiting; n != 5 {
			t.Errorf("%d wait", n)
		}
		r.promote(hostB)
		r.served(hostB, all...)
		if row := r.row(0, key); row.Stats.PrimaryWait.Count() != 5 {
			t.Errorf("%d waits for a primary were counted", row.Stats.PrimaryWait.Count())
		}
	})
}

// A view that nobody has announced is acted on with the next message.
func TestAViewIsSeenWithoutWord(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, b := r.holding(ReadWrite)
		p.give(b, pool.Clean)
		r.settle()
		r.hosts[hostB].server.SetIdentity(primary(2))
		r.publishQuietly(func(v *shard.View) { v.Elected, v.Floor = hostB, 2 })
		p.ask()
		r.served(hostB, p)
	})
}

// When another host is elected, who waits for the old one is moved to the new one: order and deadlines are kept, also
// with those who wait there already, and connects to the old host are given up with their permits.
func TestWaitersFollowTheElection(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		w := r.with(ReadWrite)
		x, y := r.with(PreferStandby), r.with(PreferStandby)
		r.publish(func(v *shard.View) { v.Standbys = []string{hostB} })
		r.hosts[hostB].server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		r.hosts[hostB].server.KillIdle(0)
		r.hosts[hostA].server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		r.hosts[hostA].server.KillIdle(0)
		r.sleep(200 * time.Millisecond)
		x.ask() // waits at B
		r.sleep(time.Millisecond)
		w.ask() // waits at A
		r.sleep(time.Millisecond)
		y.ask() // waits at B
		r.sleep(time.Millisecond)
		if r.state(hostA, pool.Dialling) != 1 || r.used(hostA) != 1 {
			t.Errorf("%d connects to the old primary, %d permits", r.state(hostA, pool.Dialling), r.used(hostA))
		}
		r.hosts[hostB].server.SetFaults(fakepg.Faults{})
		r.promote(hostB) // and no standby is left: the reads stay where they are
		if r.state(hostA, pool.Dialling) != 0 || r.used(hostA) != 0 {
			t.Errorf("%d connects to the old primary, %d permits are left", r.state(hostA, pool.Dialling), r.used(hostA))
		}
		r.sleep(2 * time.Second) // the connect to B of before times out
		r.served(hostB, x, w, y)
	})
}

// Several elections later everybody still has the deadline of their own, and one answer.
func TestElectionsProlongNothing(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		for _, h := range r.hosts {
			h.server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		}
		r.elect("")
		r.deps.Budgets.joinParams(key).primary.Store(&StartupParams{})
		all := r.waits(ReadWrite, 3)
		began := time.Now()
		for i := range 23 {
			r.elect([]string{"", hostA, hostB, hostC}[i%4])
			r.sleep(200 * time.Millisecond)
		}
		for _, p := range all {
			none(r.rig, p.denied, 0)
		}
		for _, p := range all {
			if e := get(r.rig, p.denied).Err; e.Code != "57P03" {
				t.Errorf("refused with %v", e)
			}
			if took := time.Since(began); took < 4990*time.Millisecond || took > 5200*time.Millisecond {
				t.Errorf("refused after %v", took)
			}
			r.quiet(p)
		}
		r.deps.Budgets.leaveParams(key)
	})
}

// Whoever leaves while the election moves is answered by nobody, and holds nobody up.
func TestLeavingCrossesAnElection(t *testing.T) {
	for name, leave := range map[string]func(r *roles, p *probe){
		"abandon": func(r *roles, p *probe) { r.system.Root.Send(p.lane, &Abandon{Checkout: p.checkout}) },
		"detach":  func(_ *roles, p *probe) { p.detach() },
		"both":    func(r *roles, p *probe) { r.system.Root.Send(p.lane, &Abandon{Checkout: p.checkout}); p.detach() },
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(1)
				first := r.with(ReadWrite)
				r.elect("")
				first.ask()
				all := r.waits(ReadWrite, 3)
				leave(r, all[0]) // before
				r.publishQuietly(func(v *shard.View) { v.Elected = hostA })
				leave(r, first) // with
				r.settle()
				r.crossed(first)
				r.settle()
				leave(r, all[1]) // behind
				r.settle()
				r.crossed(all[1])
				r.served(hostA, all[2])
				for _, p := range []*probe{first, all[0], all[1]} {
					r.quiet(p)
				}
				r.elect("")
				r.elect(hostA)
				last := r.with(ReadWrite)
				last.ask()
				r.served(hostA, last)
			})
		})
	}
}

// With another primary elected, writes on the old one are told, idle connections are closed, and leases that only read
// are left alone until they end.
func TestSuperseded(t *testing.T) {
	for name, between := range map[string]func(r *roles){
		"at once":           func(*roles) {},
		"after nobody was":  func(r *roles) { r.elect("") },
		"after some nobody": func(r *roles) { r.elect(""); r.publish(func(v *shard.View) { v.State = health.Unhealthy }) },
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.publish(func(v *shard.View) { v.Standbys = nil })
				w, b := r.holding(ReadWrite)
				read, rb := r.holding(Any)
				idle, ib := r.holding(ReadWrite)
				idle.give(ib, pool.Clean)
				r.settle()
				between(r)
				none(r.rig, w.cut, 0)
				if r.state(hostA, pool.Idle) != 1 {
					t.Error("while nobody is elected connections stay")
				}
				r.promote(hostB)
				if m := get(r.rig, w.cut); m.Backend != b || m.Why != r.view.Why {
					t.Errorf("%+v", m)
				}
				r.promote(hostC)
				none(r.rig, w.cut, 0)
				none(r.rig, read.cut, 0)
				if r.state(hostA, pool.Idle) != 0 || r.state(hostA, pool.Leased) != 2 {
					t.Errorf("%d idle, %d leased", r.state(hostA, pool.Idle), r.state(hostA, pool.Leased))
				}
				w.give(b, pool.Broken)
				read.give(rb, pool.Clean)
				r.settle()
				if n := r.hosts[hostA].server.Open(); n != 0 {
					t.Errorf("%d connections to the old primary are left", n)
				}
			})
		})
	}
}

// The floor rises and the host stays elected: only what is on a timeline below is superseded.
func TestFloorRises(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		old, ob := r.holding(ReadWrite)
		idle, ib := r.holding(ReadWrite)
		r.hosts[hostA].server.SetIdentity(primary(2))
		young, _ := r.holding(ReadWrite)
		idle.give(ib, pool.Clean)
		other, yb := r.holding(ReadWrite) // takes the idle one
		other.give(yb, pool.Clean)
		r.settle()
		r.publish(func(v *shard.View) { v.Floor = 2 })
		if m := get(r.rig, old.cut); m.Backend != ob {
			t.Errorf("%+v", m)
		}
		none(r.rig, young.cut, 0)
		if idle, leased := r.state(hostA, pool.Idle), r.state(hostA, pool.Leased); idle != 0 || leased != 2 {
			t.Errorf("%d idle, %d leased", idle, leased)
		}
		other.ask()
		b := other.take()
		if p := b.Proof(); p == nil || p.Timeline != 2 {
			t.Errorf("granted with proof %+v", p)
		}
	})
}

// The floor rises while nobody is elected: what is below it is superseded all the same.
func TestFloorRisesWithoutAPrimary(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, _ := r.holding(ReadWrite)
		r.elect("")
		none(r.rig, p.cut, time.Second)
		r.publish(func(v *shard.View) { v.Floor = 2 })
		get(r.rig, p.cut)
	})
}

// Failover closes what may write on the host that is given up, once; what is opened to it after that is not.
func TestFailoverClosesTheOldPrimarysConnections(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, b := r.holding(ReadWrite)
		idle, ib := r.holding(ReadWrite)
		idle.give(ib, pool.Clean)
		r.publish(func(v *shard.View) { v.State = health.Unhealthy })
		none(r.rig, p.cut, 0)
		r.publish(func(v *shard.View) { v.State, v.StateWhy = health.Failover, "its shutdown was announced" })
		if m := get(r.rig, p.cut); m.Why != "its shutdown was announced" { // not why it was elected once
			t.Errorf("told why: %q", m.Why)
		}
		p.give(b, pool.Broken)
		r.settle()
		if n := r.hosts[hostA].server.Open(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		p.ask()
		b = p.take()
		r.publish(func(v *shard.View) { v.Standbys = nil })
		none(r.rig, p.cut, 0)
		r.elect("") // in Failover it is given up for good
		get(r.rig, p.cut)
		p.give(b, pool.Broken)
	})
}

// Who waits for a fence is before who waits in the queue, also where the new primary has a connection for one of them.
func TestElectionKeepsTheOrderOfFences(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		r.publish(func(v *shard.View) { v.Standbys = []string{hostB} })
		s, b := r.holding(Standby)
		s.give(b, pool.Clean)
		p, _ := r.fencing()
		q := r.waits(ReadWrite, 1)[0]
		r.promote(hostB)
		r.served(hostB, p, q)
	})
}

// An election closes no connection to a standby.
func TestStandbysKeepTheirConnections(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.publish(func(v *shard.View) { v.Standbys = []string{hostC} })
		s, b := r.holding(Standby)
		s.give(b, pool.Clean)
		r.settle()
		r.elect("")
		r.promote(hostB)
		r.publish(func(v *shard.View) { v.State = health.Failover })
		s.ask()
		if s.take() != b {
			t.Error("another connection")
		}
	})
}

// A connection that has just died is not granted, although the lane has not heard of it yet.
func TestJustDeadBackend(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, old := r.holding(ReadWrite)
		p.give(old, pool.Clean)
		r.settle()
		r.on(0, func() {
			p.ask()
			old.OnClosed(nil, io.EOF)
		})
		if p.take() == old {
			t.Error("granted a dead connection")
		}
		r.quiet(p)
	})
}
