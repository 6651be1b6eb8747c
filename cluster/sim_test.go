package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fencepost/role"
)

// bubble runs f where time is simulated, and lets what was left behind run out.
func bubble(t *testing.T, f func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(time.Minute)
	})
}

// TestFleetSpreadsEvidence: what one member sees all members know at once.
func TestFleetSpreadsEvidence(t *testing.T) {
	for _, c := range []struct {
		members  int
		loss     float64
		p50, p99 time.Duration
	}{{3, 0, 20 * time.Millisecond, 250 * time.Millisecond}, {10, 0, 20 * time.Millisecond, 250 * time.Millisecond},
		{30, 0, 20 * time.Millisecond, 250 * time.Millisecond}, {10, 0.3, 20 * time.Millisecond, 500 * time.Millisecond},
		{50, 0.1, 20 * time.Millisecond, 400 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d members loss %v", c.members, c.loss), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newMemnet(uint64(c.members))
				proxies := memFleet(t, n, c.members, nil)
				took := eventually(t, 30*time.Second, "all see all", func() bool { time.Sleep(time.Second); return whole(proxies) })
				n.lose(c.loss)
				var late []time.Duration
				for trial := range 20 {
					from := proxies[trial*7%c.members]
					timeline, begin := uint32(100+trial), time.Now()
					from.saw("10.0.0.1:5432", role.Writable, timeline)
					time.Sleep(5 * time.Second)
					for _, p := range proxies {
						if p == from {
							continue
						}
						at, ok := p.knows("10.0.0.1:5432", timeline)
						if !ok {
							t.Fatalf("trial %d: %s does not know after 5 s", trial, p.cfg.Member)
						}
						late = append(late, at.Sub(begin))
					}
				}
				slices.Sort(late)
				p50, p99 := late[len(late)/2], late[len(late)*99/100]
				t.Logf("whole after %s; known by all: p50 %s p99 %s max %s; %d packets", took, p50, p99, late[len(late)-1], n.sent())
				if p50 > c.p50 || p99 > c.p99 {
					t.Errorf("p50 %s (at most %s), p99 %s (at most %s)", p50, c.p50, p99, c.p99)
				}
				n.lose(0)
				closeAll(proxies)
			})
		})
	}
}

// TestPartitionHeals: after 5 minutes apart the fleet is whole again within 15 s, and everybody knows what the others saw.
func TestPartitionHeals(t *testing.T) {
	for _, c := range []struct{ members, left int }{{3, 1}, {10, 4}, {30, 15}} {
		t.Run(fmt.Sprintf("%d of %d", c.left, c.members), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newMemnet(3)
				proxies := memFleet(t, n, c.members, nil)
				eventually(t, 30*time.Second, "all see all", func() bool { time.Sleep(time.Second); return whole(proxies) })
				left, right := proxies[:c.left], proxies[c.left:]
				n.split(addrs(left), addrs(right))
				time.Sleep(2 * time.Minute)
				left[0].saw("10.0.0.1:5432", role.Writable, 5)
				right[0].saw("10.0.0.2:5432", role.Writable, 6)
				right[0].send(&PublishFloorClaim{"main", "10.0.0.2:5432", role.Floor{SystemID: 7, Timeline: 6}, time.Now()})
				right[0].send(forgetNow("other", 3))
				time.Sleep(3 * time.Minute)
				for _, p := range proxies {
					if _, other := p.knows("10.0.0.2:5432", 6); other && slices.Contains(left, p) {
						t.Fatal("the partition leaks")
					}
				}
				if d := left[0].describe(); d.Alive != c.left {
					t.Fatalf("%d members alive on the left of %d", d.Alive, c.left)
				}
				n.split()
				took := eventually(t, 15*time.Second, "whole again", func() bool {
					if !whole(proxies) {
						return false
					}
					for _, p := range left {
						_, seen := p.knows("10.0.0.2:5432", 6)
						if !seen || !has(p.shard, func(m *PeerFloorClaim) bool { return m.FloorClaim.Record.Floor.Timeline == 6 }) {
							return false
						}
					}
					for _, p := range right {
						if _, seen := p.knows("10.0.0.1:5432", 5); !seen {
							return false
						}
					}
					return true
				})
				t.Logf("whole again after %s", took)
				closeAll(proxies)
			})
		})
	}
}

// TestMemberDies: a member that is gone without a word is noticed, its records stay for a minute, and it comes back under
// its name and address at once.
func TestMemberDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(4)
		proxies := memFleet(t, n, 5, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		proxies[4].saw("10.0.0.9:5432", role.InRecovery, 1)
		time.Sleep(time.Second)
		n.split(addrs(proxies[:4]), addrs(proxies[4:])) // dead to the others
		took := eventually(t, 15*time.Second, "the death is seen", func() bool { return proxies[0].describe().Alive == 4 })
		t.Logf("seen after %s", took)
		if r := proxies[0].row("m4"); r.State != Dead {
			t.Errorf("it is %s", r.State)
		}
		if rows := proxies[0].describe().Evidence; len(rows) != 1 || rows[0].Member != "m4" {
			t.Errorf("its evidence went with it: %v", rows)
		}
		time.Sleep(61 * time.Second)
		if rows := proxies[0].describe().Evidence; len(rows) != 0 {
			t.Errorf("its evidence is still there: %v", rows)
		}
		proxies[4].close()
		n.split()
		again := memFleetMember(t, n, proxies[4], 4, nil)
		took = eventually(t, 10*time.Second, "it is back", func() bool { return proxies[0].describe().Alive == 5 && again.describe().Alive == 5 })
		t.Logf("back after %s", took)
		if rows := proxies[0].describe().Members; len(rows) != 5 {
			t.Errorf("%d rows of members: %+v", len(rows), rows)
		}
		again.close()
		eventually(t, 2*time.Second, "it left", func() bool { return proxies[0].row("m4").State == Left })
		closeAll(proxies[:4])
	})
}

// memFleetMember starts a member again, with a boot identifier of its own.
func memFleetMember(t *testing.T, n *memnet, old *proxy, i int, change func(*Config)) *proxy {
	cfg := old.cfg
	cfg.Transport = n.transport(memAddr(i))
	cfg.Boot[5]++
	cfg.Boot[6] = byte(i)
	if change != nil {
		change(&cfg)
	}
	return start(t, old.system, cfg)
}

// TestUnheard: a member that hears and is not heard, and is thought dead for long, is told what is new all the same.
func TestUnheard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(31)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		proxies[1].saw("10.0.0.1:5432", role.Writable, 1)
		time.Sleep(time.Second)
		n.mute(proxies[0].cfg.Bind)
		eventually(t, 30*time.Second, "it is thought dead", func() bool { return proxies[1].row("m0").State == Dead && proxies[2].row("m0").State == Dead })
		for range 5 * 60 {
			proxies[1].saw("10.0.0.1:5432", role.Writable, 1)
			time.Sleep(time.Second)
		}
		proxies[1].saw("10.0.0.2:5432", role.Writable, 2)
		took := eventually(t, 3*time.Second, "it hears", func() bool { _, ok := proxies[0].knows("10.0.0.2:5432", 2); return ok })
		t.Logf("heard after %s", took)
		if n := len(proxies[1].describe().Members); n != 3 {
			t.Errorf("%d members", n)
		}
		n.mute(netip.AddrPort{})
		eventually(t, 15*time.Second, "all see all again", func() bool { return whole(proxies) })
		closeAll(proxies)
	})
}

// TestMassRestart: all members start anew within two seconds, and all see all (field case 10.01).
func TestMassRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(5)
		proxies := memFleet(t, n, 20, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { time.Sleep(time.Second); return whole(proxies) })
		closeAll(proxies)
		for i, p := range proxies {
			proxies[i] = memFleetMember(t, n, p, i, nil)
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("after %s", eventually(t, 30*time.Second, "all see all again", func() bool { time.Sleep(time.Second); return whole(proxies) }))
		closeAll(proxies)
	})
}

// TestReady: a shard hears the fleet before it is told that it may grant writes.
func TestReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(6)
		begin := time.Now()
		proxies := memFleet(t, n, 2, nil)
		synctest.Wait()
		at, ok := when(proxies[0].shard, any1[*Ready])
		if !ok || at.Sub(begin) > 10*time.Millisecond {
			t.Errorf("who joins nobody is ready at once: %v %s", ok, at.Sub(begin))
		}
		proxies[0].saw("10.0.0.1:5432", role.Writable, 3)
		time.Sleep(3 * time.Second)
		late := memFleetMember(t, n, proxies[1], 2, func(c *Config) { c.Member, c.PeerID, c.Bind = "late", 3, memAddr(2) })
		eventually(t, time.Second, "who joins is ready", func() bool { return has(late.shard, func(m *Ready) bool { return m.Joined }) })
		knew, ok := late.knows("10.0.0.1:5432", 3)
		at, _ = when(late.shard, any1[*Ready])
		if !ok || knew.After(at) {
			t.Errorf("ready before it knew what the others know: %v", ok)
		}
		if n := late.shard.count(func(m any) bool { _, ok := m.(*Ready); return ok }); n != 1 {
			t.Errorf("ready %d times", n)
		}
		// Nobody can be reached: ready after JoinWait.
		n.split(addrs(proxies), []netip.AddrPort{memAddr(3)})
		alone := memFleetMember(t, n, proxies[1], 3, func(c *Config) { c.Member, c.PeerID, c.Bind = "alone", 4, memAddr(3) })
		begin = time.Now()
		time.Sleep(1900 * time.Millisecond)
		if has(alone.shard, any1[*Ready]) {
			t.Error("ready too early")
		}
		time.Sleep(200 * time.Millisecond)
		at, ok = when(alone.shard, func(m *Ready) bool { return !m.Joined })
		if !ok || at.Sub(begin) < 1900*time.Millisecond {
			t.Errorf("ready alone: %v after %s", ok, at.Sub(begin))
		}
		closeAll(append(proxies, late, alone))
	})
}

// TestLossyNetwork: where three packets in ten are lost, nobody's evidence is, whatever is thought of the members meanwhile
// (field case 10.09).
func TestLossyNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(8)
		proxies := memFleet(t, n, 10, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		n.lose(0.3)
		missing, flaps := 0, 0
		for range 120 {
			for i, p := range proxies {
				p.saw(role.Host(fmt.Sprintf("10.0.0.%d:5432", i+1)), role.InRecovery, 1)
			}
			time.Sleep(time.Second)
			for _, p := range proxies {
				d := p.describe()
				if len(d.Evidence) != 10 {
					missing++
				}
				flaps += 10 - d.Alive
			}
		}
		if missing > 10 { // the first second may be short
			t.Errorf("evidence was missing %d times", missing)
		}
		t.Logf("of 10 members over 2 minutes: %d member-seconds not alive, evidence missing %d times", flaps, missing)
		n.lose(0)
		eventually(t, 15*time.Second, "whole again", func() bool { return whole(proxies) })
		closeAll(proxies)
	})
}

// TestRestart: an actor that fails joins anew under the same boot identifier, and its subscribers go on as before.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(7)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		proxies[1].saw("10.0.0.1:5432", role.Writable, 1)
		proxies[2].saw("10.0.0.2:5432", role.InRecovery, 1)
		time.Sleep(5 * time.Second)
		proxies[1].send(&received{}) // which no callback lets through
		time.Sleep(100 * time.Millisecond)
		if d := proxies[1].describe(); d.Open || len(d.Evidence) != 2 || !d.Ready {
			t.Errorf("after the failure: open %v, ready %v, %v", d.Open, d.Ready, d.Evidence)
		}
		took := eventually(t, 30*time.Second, "whole again", func() bool { return whole(proxies) })
		t.Logf("whole again after %s", took)
		proxies[0].saw("10.0.0.3:5432", role.InRecovery, 9)
		proxies[1].saw("10.0.0.1:5432", role.Writable, 2)
		time.Sleep(time.Second)
		if _, ok := proxies[1].knows("10.0.0.3:5432", 9); !ok {
			t.Error("its subscribers hear nothing any more")
		}
		if _, ok := proxies[2].knows("10.0.0.1:5432", 2); !ok {
			t.Error("it is not heard any more")
		}
		if got := proxies[1].shard.count(func(m any) bool { _, ok := m.(*Ready); return ok }); got != 1 {
			t.Errorf("ready %d times", got)
		}
		if rows := proxies[0].describe().Members; len(rows) != 3 {
			t.Errorf("%+v", rows)
		}
		closeAll(proxies)
	})
}
