package lane

import (
	"testing"
	"time"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/fakepg"
)

// Each target, each way to spread it.
func TestTargets(t *testing.T) {
	for name, tc := range map[string]struct {
		target   Target
		balance  shard.Balance
		standbys []string
		elected  string
		want     map[string]bool // the hosts that serve eight clients at a time, at least
		only     bool            // each of the hosts has the same share
	}{
		"read-write":                      {ReadWrite, shard.LeastWaiting, []string{hostB, hostC}, hostA, map[string]bool{hostA: true}, true},
		"standby, least waiting":          {Standby, shard.LeastWaiting, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, true},
		"standby, round robin":            {Standby, shard.RoundRobin, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, true},
		"standby, random":                 {Standby, shard.Random, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, false},
		"standby, no primary":             {Standby, shard.LeastWaiting, []string{hostC}, "", map[string]bool{hostC: true}, true},
		"prefer-standby, least waiting":   {PreferStandby, shard.LeastWaiting, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, true},
		"prefer-standby, round robin":     {PreferStandby, shard.RoundRobin, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, true},
		"prefer-standby, random":          {PreferStandby, shard.Random, []string{hostB, hostC}, hostA, map[string]bool{hostB: true, hostC: true}, false},
		"prefer-standby without standbys": {PreferStandby, shard.RoundRobin, nil, hostA, map[string]bool{hostA: true}, true},
		"any, least waiting":              {Any, shard.LeastWaiting, []string{hostB}, hostA, map[string]bool{hostA: true, hostB: true}, true},
		"any, round robin":                {Any, shard.RoundRobin, []string{hostB}, hostA, map[string]bool{hostA: true, hostB: true}, true},
		"any, random":                     {Any, shard.Random, []string{hostB}, hostA, map[string]bool{hostA: true, hostB: true}, false},
		"any without standbys":            {Any, shard.Random, nil, hostA, map[string]bool{hostA: true}, true},
		"any without a primary":           {Any, shard.LeastWaiting, []string{hostB, hostC}, "", map[string]bool{hostB: true, hostC: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(8)
				r.publish(func(v *shard.View) { v.Elected, v.Standbys, v.Balance = tc.elected, tc.standbys, tc.balance })
				seen := map[string]int{}
				for range 8 {
					_, b := r.holding(tc.target)
					seen[b.Host()]++
				}
				for host, n := range seen {
					if !tc.want[host] || tc.only && n != 8/len(tc.want) {
						t.Errorf("served by %v", seen)
					}
				}
			})
		})
	}
}

// Without standbys reads for standbys alone wait, and hear why at their deadline; one that appears serves them.
func TestNoStandby(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p := r.with(Standby)
		r.publish(func(v *shard.View) { v.Standbys, v.NoReads = nil, "they are away" })
		p.ask()
		e := get(r.rig, p.denied).Err
		if e.Code != "57P03" || e.Detail != "they are away" {
			t.Errorf("refused with %v (%s)", e, e.Detail)
		}
		if n := len(toldOf[*shard.Waiting](r)); n != 0 {
			t.Errorf("the shard was told %d times that a write waits", n)
		}
		p.ask()
		none(r.rig, p.granted, time.Second)
		r.publish(func(v *shard.View) { v.Standbys = []string{hostC} })
		r.served(hostC, p)
	})
}

// A standby vanishes while reads wait for it: they are served by those that are left, or the primary if they may be. Who
// may stay where they are stay.
func TestStandbyVanishes(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		s, f, a := r.with(Standby), r.with(PreferStandby), r.with(Any)
		r.publish(func(v *shard.View) { v.Standbys = []string{hostB} })
		r.hosts[hostB].server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		r.hosts[hostB].server.KillIdle(0)
		r.hosts[hostA].server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		r.hosts[hostA].server.KillIdle(0)
		r.settle()
		for _, p := range []*probe{s, f, a} { // the last at A
			p.ask()
			r.settle()
		}
		r.publish(func(v *shard.View) { v.Standbys = []string{hostC} })
		r.served(hostC, s, f)
		none(r.rig, a.granted, 0)
		s.ask()
		b := s.take()
		r.publish(func(v *shard.View) { v.Standbys = nil })
		none(r.rig, s.cut, 0)
		s.give(b, pool.Clean)
		f.ask()
		r.settle()
		r.hosts[hostA].server.SetFaults(fakepg.Faults{})
		r.sleep(1500 * time.Millisecond)
		r.served(hostA, a, f)
	})
}

// failover_warm: connections to the first standby while the shard is not healthy. After its promotion they are granted,
// after a fence, without a login.
func TestWarmStandby(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec.Limits.IdleTimeout = time.Second
		r.publish(func(v *shard.View) { v.Warm = 3 })
		all := append([]*probe{r.with(ReadWrite)}, r.waits(ReadWrite, 2)...)
		for _, p := range all[1:] {
			p.give(p.take(), pool.Clean)
		}
		r.sleep(2 * time.Second)
		if r.hosts[hostB].server.Open()+r.hosts[hostC].server.Open() != 0 {
			t.Error("connections are kept warm while the shard is healthy")
		}
		r.publish(func(v *shard.View) { v.State = health.Unhealthy })
		r.sleep(5 * time.Second)
		if b, c := r.hosts[hostB].server.Open(), r.hosts[hostC].server.Open(); b != 3 || c != 0 || r.hosts[hostB].server.Logins() != 3 {
			t.Errorf("%d connections to the first standby after %d logins, %d to the other", b, r.hosts[hostB].server.Logins(), c)
		}
		r.elect("")
		for _, p := range all {
			p.ask()
		}
		r.settle()
		before := r.hosts[hostB].asked()
		r.promote(hostB)
		for _, p := range all {
			if b := p.take(); b.Host() != hostB {
				t.Errorf("granted %s", b.Host())
			}
		}
		if n := r.hosts[hostB].server.Logins(); n != 3 || r.hosts[hostB].asked()-before != 3 {
			t.Errorf("%d logins, %d fences", n, r.hosts[hostB].asked()-before)
		}
		if n := r.hosts[hostC].server.Open(); n != 3 {
			t.Errorf("%d connections to the standby that is the first now", n)
		}
		r.publish(func(v *shard.View) { v.State = health.Healthy })
		r.sleep(5 * time.Second)
		if n := r.hosts[hostC].server.Open(); n != 0 {
			t.Errorf("%d connections are still warm", n)
		}
	})
}

// min_pool_size is kept to the primary, whichever that is.
func TestMinSizeFollowsThePrimary(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec.Limits.MinSize, r.spec.Limits.IdleTimeout = 3, time.Second
		s := r.with(Standby)
		s.ask()
		s.give(s.take(), pool.Clean)
		r.sleep(5 * time.Second)
		open := func(a, b, c int) {
			t.Helper()
			if x, y, z := r.hosts[hostA].server.Open(), r.hosts[hostB].server.Open(), r.hosts[hostC].server.Open(); a != x || b != y || c != z {
				t.Errorf("%d, %d and %d open instead of %d, %d and %d", x, y, z, a, b, c)
			}
		}
		open(3, 0, 0)
		r.promote(hostC)
		r.sleep(5 * time.Second)
		open(0, 0, 3)
		r.elect("")
		r.sleep(5 * time.Second)
		open(0, 0, 0)
		spec := r.newSpec(4)
		spec.Limits.MinSize = 2
		r.reload(spec)
		r.settle()
		r.elect(hostC)
		r.sleep(5 * time.Second)
		open(0, 0, 2)
	})
}

// A login is told what a server of the role that it asks for reports. With the primary lost new clients are told what it
// reported, at once; before there ever was one they wait, at most until their deadline.
func TestLogins(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.elect("")
		p := r.newProbe(0, key)
		p.attach()
		began := time.Now()
		e := get(r.rig, p.refused).Err
		if took := time.Since(began); e.Code != "57P03" || e.Severity != "FATAL" || took < 59*time.Second || took > 61*time.Second {
			t.Errorf("refused with %v after %v", e, took)
		}
		q := r.newProbe(0, key)
		q.attach()
		none(r.rig, q.attached, time.Second)
		r.elect(hostA)
		get(r.rig, q.attached)
		r.elect("")
		r.with(ReadWrite)
		r.with(Any)
		s := r.newProbe(0, key)
		s.target = Standby
		s.attach() // has a standby asked
		get(r.rig, s.attached)
		if n := r.hosts[hostB].server.Logins() + r.hosts[hostC].server.Logins(); n != 1 {
			t.Errorf("%d logins to standbys", n)
		}
		r.elect(hostA)
		r.settle()
		if a := r.hosts[hostA].server.Logins(); a != 1 {
			t.Errorf("%d logins to the primary", a)
		}
		for _, p := range []*probe{p, q} {
			p.lane = r.lanes[0]
		}
	})
}

// A login for standbys finds one whatever the way to spread them, and follows the view while it waits.
func TestLoginsToStandbys(t *testing.T) {
	for _, balance := range []shard.Balance{shard.LeastWaiting, shard.RoundRobin, shard.Random} {
		inRoles(t, 1, func(r *roles) {
			r.publish(func(v *shard.View) { v.Balance = balance })
			for _, h := range []string{hostB, hostC} {
				r.hosts[h].server.SetFaults(unreachable)
			}
			p := r.newProbe(0, key)
			p.target = Standby
			p.attach()
			none(r.rig, p.attached, 3*time.Second)
			if n := r.hosts[hostB].server.Logins() + r.hosts[hostC].server.Logins(); n < 3 {
				t.Errorf("balance %d: %d logins in three seconds", balance, n)
			}
			r.publish(func(v *shard.View) { v.Standbys = nil })
			none(r.rig, p.attached, 3*time.Second)
			r.hosts[hostC].server.SetFaults(fakepg.Faults{})
			r.publish(func(v *shard.View) { v.Standbys = []string{hostC} })
			began := time.Now()
			get(r.rig, p.attached)
			if took := time.Since(began); took > 1200*time.Millisecond {
				t.Errorf("balance %d: welcomed after %v", balance, took)
			}
		})
	}
}

// Where the connections to a host were opened while it had another role, nobody would ask it again: what it reported
// serves, but for the role.
func TestLoginAfterAPromotion(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.elect("")
		r.publish(func(v *shard.View) { v.Standbys = []string{hostB} })
		s, b := r.holding(Standby)
		s.give(b, pool.Clean)
		w := r.deps.Budgets.joinParams(key)
		told := w.standby.Load()
		w.standby.Store(&StartupParams{Parameters: append([][2]string{{hotStandby, "on"}}, told.Parameters...), Params: told.Params})
		r.deps.Budgets.leaveParams(key)
		p := r.newProbe(0, key)
		p.attach()
		none(r.rig, p.attached, time.Second)
		r.promote(hostB)
		a := get(r.rig, p.attached)
		if len(a.Startup.Parameters) != len(told.Parameters)+1 || a.Startup.Parameters[0] != [2]string{hotStandby, "off"} {
			t.Errorf("%v", a.Startup.Parameters)
		}
		if n := r.hosts[hostB].server.Logins(); n != 1 {
			t.Errorf("%d logins", n)
		}
	})
}

// failover_policy = refuse: without a primary, and in Failover, writes and logins for them are refused at once, those
// included that wait when it comes to that. Reads are not.
func TestRefuse(t *testing.T) {
	for name, lose := range map[string]func(v *shard.View){
		"no primary": func(v *shard.View) { v.Elected = "" },
		"failover":   func(v *shard.View) { v.State = health.Failover },
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.spec = r.newSpec(1)
				r.publish(func(v *shard.View) { v.Refuse = true })
				s := r.with(Standby)
				p, b := r.holding(ReadWrite)
				q := r.waits(ReadWrite, 1)[0]
				r.hosts[hostA].server.SetFaults(unreachable)
				r.deps.Budgets.joinParams(key).forget()
				r.deps.Budgets.leaveParams(key)
				l := r.newProbe(0, key)
				l.attach()
				none(r.rig, q.denied, time.Second)
				none(r.rig, l.refused, 0)
				r.publish(lose)
				for _, e := range []string{get(r.rig, q.denied).Err.Code, get(r.rig, l.refused).Err.Code} {
					if e != "57P03" {
						t.Errorf("refused with %s", e)
					}
				}
				q.ask()
				r.settle()
				if len(q.denied) != 1 {
					t.Error("not refused at once")
				}
				l = r.newProbe(0, key)
				l.attach()
				r.settle()
				if len(l.refused) != 1 {
					t.Error("a login is not refused at once")
				}
				s.ask()
				s.give(s.take(), pool.Clean)
				// a backend that dies under its client at this moment sends it back to the queue
				r.system.Root.Send(p.lane, &Spoiled{Backend: b, Checkout: p.checkout})
				r.settle()
				if len(p.denied) != 1 {
					t.Error("not refused at once")
				}
				r.hosts[hostA].server.SetFaults(fakepg.Faults{})
				r.sleep(2 * time.Second)
				proven := false
				for _, m := range toldOf[*shard.Connected](r) {
					proven = proven || m.Host == hostA && m.At.After(r.view.Since.Add(time.Second)) && m.Observation != nil
				}
				if name == "failover" && !proven {
					t.Error("nobody looks whether the primary is back")
				}
				r.publish(func(v *shard.View) { v.Elected, v.State = hostA, health.Healthy })
				get(r.rig, q.denied)
				q.ask()
				r.served(hostA, q)
			})
		})
	}
}

// While a write waits for a primary, or for a connection to it, the shard is told, within 100 ms and again and again.
func TestTheShardIsToldThatAWriteWaits(t *testing.T) {
	for name, prepare := range map[string]func(r *roles, p *probe) (told bool){
		"no primary": func(r *roles, p *probe) bool { r.elect(""); p.ask(); return true },
		"a login": func(r *roles, _ *probe) bool {
			r.elect("")
			q := r.newProbe(0, PoolKey{"db", "other"})
			q.attach()
			return true
		},
		"unreachable": func(r *roles, p *probe) bool {
			r.hosts[hostA].server.SetFaults(unreachable)
			r.hosts[hostA].server.KillIdle(0)
			r.settle()
			p.ask()
			return true
		},
		"a fence": func(r *roles, p *probe) bool {
			r.reload(r.newSpec(1))
			r.hosts[hostA].hold()
			r.doubt()
			p.ask()
			return true
		},
		"a busy pool": func(r *roles, p *probe) bool {
			for range 4 {
				r.holding(ReadWrite)
			}
			p.ask()
			return false
		},
		"a paused pool": func(r *roles, p *probe) bool { r.elect(""); r.control(0, Pause); r.settle(); p.ask(); return false },
		"reads": func(r *roles, p *probe) bool {
			r.publish(func(v *shard.View) { v.Elected, v.Standbys = "", nil })
			p.target = PreferStandby
			p.ask()
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				p := r.with(ReadWrite)
				before := len(toldOf[*shard.Waiting](r)) // of the login
				told := prepare(r, p)
				since := time.Now()
				r.sleep(120 * time.Millisecond)
				all := toldOf[*shard.Waiting](r)[before:]
				if !told {
					if len(all) > 0 {
						t.Error("told")
					}
					return
				}
				if len(all) == 0 || since.Sub(all[0].Since).Abs() > time.Second {
					t.Fatalf("not told after 120 ms: %v", all)
				}
				r.sleep(2 * time.Second)
				if n := len(toldOf[*shard.Waiting](r)) - before; n < 18 || n > 25 {
					t.Errorf("told %d times in two seconds", n)
				}
			})
		})
	}
}

// A connect to the primary that fails raises doubt; one that is refused for what the client is, or to another host, does not.
func TestConnectFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		target Target
		host   string
		fail   func(s *fakepg.Server)
		doubts bool
		code   string
	}{
		"unreachable":         {ReadWrite, hostA, func(s *fakepg.Server) { s.SetFaults(unreachable) }, true, ""},
		"starting up":         {ReadWrite, hostA, func(s *fakepg.Server) { s.Refuse(&fakepg.Error{Severity: "FATAL", Code: "57P03"}) }, true, "57P03"},
		"too many clients":    {ReadWrite, hostA, func(s *fakepg.Server) { s.Refuse(&refusal) }, false, "53300"},
		"unreachable standby": {Standby, hostB, func(s *fakepg.Server) { s.SetFaults(unreachable) }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) {
				r.publish(func(v *shard.View) { v.Standbys = []string{hostB} })
				p := r.with(tc.target)
				p.ask()
				p.give(p.take(), pool.Clean)
				r.settle()
				tc.fail(r.hosts[tc.host].server)
				r.hosts[tc.host].server.KillIdle(0)
				r.settle()
				risen := r.shard.Risen()
				r.setMute(true)
				p.ask()
				r.settle()
				all := toldOf[*shard.ConnectFailed](r)
				if len(all) != 1 || all[0].Doubts != tc.doubts || all[0].Code != tc.code || all[0].Host != tc.host {
					t.Fatalf("the shard was told %+v", all)
				}
				if rose := r.shard.Risen().After(risen); rose != tc.doubts {
					t.Errorf("doubt rose: %v", rose)
				}
			})
		})
	}
}

// Hosts that are not wanted any more are forgotten when nothing is left of them, with their budgets.
func TestVanishedHostsAreForgotten(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		s, b := r.holding(Standby)
		host := b.Host()
		r.publish(func(v *shard.View) { v.Standbys = nil })
		r.sleep(3 * time.Second)
		s.give(b, pool.Broken)
		r.sleep(3 * time.Second)
		if n := r.budgets(); n != 1 {
			t.Errorf("%d budgets are left", n)
		}
		r.publish(func(v *shard.View) { v.Standbys = []string{host} })
		s.ask()
		if s.take().Host() != host {
			t.Error("another host")
		}
	})
}

// While no primary is known, the login of a client that waits looks at the hosts whose monitors cannot.
func TestCandidates(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p := r.with(ReadWrite)
		r.publish(func(v *shard.View) { v.Elected, v.Standbys, v.Candidates = "", nil, []string{hostB} })
		r.sleep(3 * time.Second)
		if n := r.hosts[hostB].server.Logins(); n != 0 {
			t.Errorf("%d logins although nobody waits", n)
		}
		p.ask()
		r.sleep(2500 * time.Millisecond)
		if n := r.hosts[hostB].server.Logins(); n < 2 || n > 3 || r.hosts[hostB].server.Open() != 1 {
			t.Errorf("%d logins, %d open", n, r.hosts[hostB].server.Open())
		}
		r.hosts[hostB].server.SetIdentity(primary(2))
		r.sleep(1200 * time.Millisecond)
		all := toldOf[*shard.Connected](r)
		if o := all[len(all)-1].Observation; o == nil || o.Timeline != 2 || o.Host != hostB {
			t.Fatalf("the shard was told %+v", o)
		}
		logins := r.hosts[hostB].server.Logins()
		r.promote(hostB)
		r.served(hostB, p)
		if n := r.hosts[hostB].server.Logins(); n != logins || r.hosts[hostB].asked() != 0 {
			t.Errorf("%d more logins, %d fences", n-logins, r.hosts[hostB].asked())
		}
	})
}
