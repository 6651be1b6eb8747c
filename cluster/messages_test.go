package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/cluster/evidence"
	"fencepost/role"
)

// TestCancelReachesTheMemberOfItsKey, once, and nobody else; one for an unknown member goes nowhere.
func TestCancelReachesTheMemberOfItsKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(11)
		proxies := memFleet(t, n, 5, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		for i := range 100 {
			proxies[i%5].send(&CancelFor{PeerID: uint32(i*3%5 + 1), Key: []byte(fmt.Sprintf("key %d", i))})
		}
		proxies[0].send(&CancelFor{PeerID: 77, Key: []byte("key x")})
		time.Sleep(time.Second)
		for i := range 100 {
			from, to := i%5, i*3%5
			for j, p := range proxies {
				want := 0
				if j == to && from != to {
					want = 1
				}
				got := p.office.count(func(m any) bool { c, ok := m.(*CancelFor); return ok && string(c.Key) == fmt.Sprintf("key %d", i) })
				if got != want {
					t.Errorf("cancel %d from m%d to m%d: m%d got %d", i, from, to, j, got)
				}
			}
		}
		closeAll(proxies)
	})
}

// TestTwoMembersWithOnePeerID are reported by both, and refuse each other's cancels; others do not know which is meant.
func TestTwoMembersWithOnePeerID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(12)
		proxies := memFleet(t, n, 3, func(i int, c *Config) {
			if i == 2 {
				c.PeerID = 2
			}
		})
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		time.Sleep(2 * time.Second)
		for _, p := range proxies {
			if _, ok := p.problem("two members have peer_id 2"); !ok {
				t.Errorf("%s does not report it: %v", p.cfg.Member, p.describe().Problems)
			}
			p.send(&CancelFor{PeerID: 2, Key: []byte("key")})
			p.send(&CancelFor{PeerID: 1, Key: []byte("mine")})
		}
		time.Sleep(time.Second)
		for i, p := range proxies {
			got := p.office.count(func(m any) bool { _, ok := m.(*CancelFor); return ok })
			if want := map[int]int{0: 2}[i]; got != want {
				t.Errorf("%s got %d cancels, want %d", p.cfg.Member, got, want)
			}
		}
		// A member that does not know of its twin sends one all the same.
		forged := &message{kind: cancelMessage, from: proxies[2].cfg.Boot, to: proxies[1].cfg.Boot, number: 1000, peerID: 2, key: []byte("key")}
		b, _ := forged.encode()
		proxies[1].send(&received{b, time.Now()})
		if proxies[1].counter("fleet_cancels_total", "refused") != 2 || has(proxies[1].office, any1[*CancelFor]) {
			t.Error("a cancel of its twin was not refused")
		}
		if lines := strings.Count(proxies[0].logs.String(), "two members have peer_id 2: "); lines != 1 {
			t.Errorf("logged %d times", lines)
		}
		closeAll(proxies)
	})
}

// TestTwoMembersOfOneName are reported once that cannot be a restart.
func TestTwoMembersOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(13)
		proxies := memFleet(t, n, 3, func(i int, c *Config) {
			if i == 2 {
				c.Member = "m1"
			}
		})
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		if _, ok := proxies[0].problem("two members are named m1"); ok {
			t.Error("reported while it could be a restart")
		}
		time.Sleep(15 * time.Second)
		for _, p := range proxies {
			if _, ok := p.problem("two members are named m1"); !ok {
				t.Errorf("%s does not report it", p.cfg.Member)
			}
		}
		closeAll(proxies)
	})
}

// answering makes a proxy's office carry operations out.
func answering(p *proxy, f func(*Operation) *OperationDone) {
	p.office.does(func(ctx actor.Context) {
		if op, ok := ctx.Message().(*Operation); ok {
			if done := f(op); done != nil {
				ctx.Send(op.Reply, done)
			}
		}
	})
}

func (p *proxy) operate(verb string, timeout time.Duration, args ...string) []Answer {
	reply := make(chan OperationResult, 1)
	p.send(&Operate{Verb: verb, Args: args, Timeout: timeout, Reply: reply})
	return (<-reply).Answers
}

// TestOperations: every member answers, this one included; one that does not, or dies, does not hold up the rest for ever.
func TestOperations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(14)
		proxies := memFleet(t, n, 4, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		for i, p := range proxies {
			answering(p, func(op *Operation) *OperationDone {
				switch {
				case op.Verb == "SLEEP" && i == 2:
					return nil
				case op.Verb == "FAIL" && i == 1:
					return &OperationDone{ID: op.ID, Err: "no such database"}
				case op.Verb == "LONG":
					return &OperationDone{ID: op.ID, Rows: [][]string{{strings.Repeat("x", maxMessage)}}}
				}
				return &OperationDone{ID: op.ID, Rows: append([][]string{{op.Verb, op.From}}, op.Args)}
			})
		}
		for i, a := range proxies[1].operate("PAUSE", time.Second, "app", "now") {
			if want := fmt.Sprint([][]string{{"PAUSE", "m1"}, {"app", "now"}}); a.Member != fmt.Sprintf("m%d", i) || a.Err != "" || fmt.Sprint(a.Rows) != want {
				t.Errorf("answer %+v, want %s", a, want)
			}
		}
		if got := proxies[0].operate("FAIL", time.Second); len(got) != 4 || got[1].Err != "no such database" || got[2].Err != "" {
			t.Errorf("%+v", got)
		}
		begin := time.Now()
		got := proxies[0].operate("SLEEP", 2*time.Second)
		if took := time.Since(begin); took < 2*time.Second || took > 2200*time.Millisecond || got[2].Err != "no answer in time" || got[3].Err != "" {
			t.Errorf("%s: %+v", took, got)
		}
		if got := proxies[0].operate("LONG", 2*time.Second); got[1].Err == "" || got[1].Rows != nil {
			t.Errorf("%d bytes came through", maxMessage)
		}
		n.split(addrs(proxies[:3]), addrs(proxies[3:]))
		begin = time.Now()
		if got := proxies[0].operate("PAUSE", time.Minute); got[3].Err != "the member cannot be reached" && got[3].Err != "the member is gone" || got[2].Err != "" {
			t.Errorf("%+v", got)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("a dead member holds it up for %s", took)
		}
		n.split()
		closeAll(proxies)
	})
}

// TestReplay: packets and streams that are sent again do nothing. Cancels and operations count once.
func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(15)
		var mu sync.Mutex
		var packets [][]byte
		var streams [][]byte
		target := memAddr(1)
		n.tap = func(_, to netip.AddrPort, b []byte) {
			mu.Lock()
			defer mu.Unlock()
			if to == target {
				packets = append(packets, b)
			}
		}
		n.tapStreams = func(to netip.AddrPort, b []byte) {
			mu.Lock()
			defer mu.Unlock()
			if to == target {
				streams = append(streams, b)
			}
		}
		proxies := memFleet(t, n, 2, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		answering(proxies[1], func(op *Operation) *OperationDone { return &OperationDone{ID: op.ID} })
		proxies[0].send(&CancelFor{PeerID: 2, Key: []byte("key")})
		proxies[0].operate("PAUSE", time.Second)
		proxies[0].saw("10.0.0.1:5432", role.Writable, 3)
		time.Sleep(2 * time.Second)
		proxies[0].saw("10.0.0.1:5432", role.InRecovery, 4)
		time.Sleep(2 * time.Second)
		all := func(any) bool { return true }
		before := proxies[1].shard.count(all)
		mu.Lock()
		again, calls := packets, streams
		mu.Unlock()
		n.mu.Lock()
		peer := n.at[target]
		n.mu.Unlock()
		for _, b := range again {
			peer.inject(b, memAddr(9), 0)
		}
		// A stream begins with the label, written on its own.
		for i := 0; i+1 < len(calls); i++ {
			if c, err := (&port{net: n, addr: memAddr(9)}).DialTimeout(target.String(), time.Second); err == nil {
				_, _ = c.Write(calls[i])
				_, _ = c.Write(calls[i+1])
				time.AfterFunc(time.Second, func() { _ = c.Close() })
			}
		}
		time.Sleep(5 * time.Second)
		is := func(what string) func(any) bool {
			return func(m any) bool { return fmt.Sprintf("%T", m) == "*cluster."+what }
		}
		if got := proxies[1].office.count(is("CancelFor")); got != 1 {
			t.Errorf("%d cancels", got)
		}
		if got := proxies[1].office.count(is("Operation")); got != 1 {
			t.Errorf("%d operations", got)
		}
		if got := proxies[1].shard.count(all); got != before {
			t.Errorf("a replay is news: %d messages more", got-before)
		}
		if proxies[1].counter("fleet_dropped_total", "replayed") == 0 {
			t.Error("no replay was noticed: the test replays nothing")
		}
		if !whole(proxies) {
			t.Error("the fleet fell apart")
		}
		closeAll(proxies)
	})
}

// TestGarbageAndFloods: bytes that are no message, messages that are no records and more of them than anybody can take are
// dropped, counted and logged once; the fleet goes on.
func TestGarbageAndFloods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(16)
		proxies := memFleet(t, n, 2, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		n.mu.Lock()
		peer := n.at[memAddr(1)]
		n.mu.Unlock()
		for i := range 3000 {
			b := bytes.Repeat([]byte{byte(i)}, i%1400)
			peer.inject(b, memAddr(8), time.Duration(i)*time.Millisecond/10)
		}
		time.Sleep(2 * time.Second)
		problems := proxies[1].describe().Problems
		if len(problems) == 0 || len(problems) > 20 {
			t.Errorf("%d problems: %v", len(problems), problems)
		}
		if lines := strings.Count(proxies[1].logs.String(), "\n"); lines > 30 {
			t.Errorf("%d lines of log", lines)
		}
		// With the right key: a member that floods.
		link := &link{store: newStore(proxies[1].cfg.Boot), send: func(any) {}}
		for i := range 3 * maxWaiting {
			(*callbacks)(link).NotifyMsg([]byte{evidenceMessage, byte(i)})
		}
		if link.store.waiting.Load() != maxWaiting || link.store.dropped.Load() != 2*maxWaiting {
			t.Errorf("%d waiting, %d dropped", link.store.waiting.Load(), link.store.dropped.Load())
		}
		for i := range 100000 {
			var b evidence.Boot
			b[0], b[1], b[2] = byte(i>>14)+1, byte(i>>8), 1
			if i%1000 == 0 {
				synctest.Wait()
			}
			r, _ := evidence.NewObserved(evidence.ShardOf("main"), b, uint64(i+1), role.Observation{
				Host: role.Host(fmt.Sprintf("10.%d.%d.%d:5432", i>>16, i>>8&255, i&255)), Verdict: role.Writable, Asked: time.Now()}, 0)
			proxies[1].send(&received{evidence.Append(append([]byte{evidenceMessage}, evidence.Header()...), time.Now(), r), time.Now()})
		}
		time.Sleep(time.Second)
		if d := proxies[1].describe(); d.Records > evidence.DefaultLimits.Total {
			t.Errorf("%d records", d.Records)
		}
		proxies[0].saw("10.0.0.1:5432", role.Writable, 3)
		eventually(t, 5*time.Second, "the fleet goes on", func() bool { _, ok := proxies[1].knows("10.0.0.1:5432", 3); return ok })
		if !whole(proxies) {
			t.Error("the fleet fell apart")
		}
		closeAll(proxies)
	})
}

// TestStrangers: with another key, without one or with another name nobody gets in or hears anything.
func TestStrangers(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"another key": func(c *Config) { c.Keys = [][]byte{key(2)} }, "no key": func(c *Config) { c.Keys = nil },
		"another name": func(c *Config) { c.Name = "staging" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newMemnet(17)
				proxies := memFleet(t, n, 3, func(i int, c *Config) {
					if i == 2 {
						change(c)
					}
				})
				eventually(t, 30*time.Second, "the two see each other", func() bool { return proxies[0].describe().Alive == 2 })
				proxies[0].saw("10.0.0.1:5432", role.Writable, 3)
				proxies[2].saw("10.0.0.1:5432", role.Writable, 9)
				time.Sleep(2 * time.Minute)
				if a, b := proxies[0].describe(), proxies[2].describe(); a.Alive != 2 || b.Alive != 1 || len(a.Problems) == 0 {
					t.Errorf("%d and %d members, problems %v", a.Alive, b.Alive, a.Problems)
				}
				_, in := proxies[0].knows("10.0.0.1:5432", 9)
				_, out := proxies[2].knows("10.0.0.1:5432", 3)
				if in || out {
					t.Errorf("heard: %v, told: %v", in, out)
				}
				// Each problem is logged at most once a minute.
				if lines := strings.Count(proxies[0].logs.String(), `"level":"warn"`); lines > 3*len(proxies[0].describe().Problems) {
					t.Errorf("%d lines:\n%s", lines, proxies[0].logs)
				}
				closeAll(proxies)
			})
		})
	}
}

// TestKeyRotation: a new key is added everywhere, then used everywhere, then the old one is removed; nobody is missing
// meanwhile.
func TestKeyRotation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(18)
		proxies := memFleet(t, n, 4, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		for step, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
			for i, p := range proxies {
				p.send(&Configure{Join: p.cfg.Join, Keys: keys})
				time.Sleep(5 * time.Second)
				timeline := uint32(100 + step*10 + i)
				p.saw("10.0.0.1:5432", role.Writable, timeline)
				time.Sleep(time.Second)
				for _, q := range proxies {
					if _, ok := q.knows("10.0.0.1:5432", timeline); q != p && !ok {
						t.Errorf("step %d: %s does not hear %s", step, q.cfg.Member, p.cfg.Member)
					}
				}
				if !whole(proxies) {
					t.Errorf("step %d: the fleet fell apart", step)
				}
			}
		}
		if k := proxies[0].describe().Keys; k != 1 {
			t.Errorf("%d keys", k)
		}
		closeAll(proxies)
	})
}

// TestSettingsThatDiffer are named on both sides.
func TestSettingsThatDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(19)
		proxies := memFleet(t, n, 2, nil)
		proxies[0].send(&SetSettings{map[string]string{"shards.main.hosts": "10.0.0.1:5432", "evidence_ttl": "3s"}})
		proxies[1].send(&SetSettings{map[string]string{"shards.main.hosts": "10.0.0.2:5432", "evidence_ttl": "3s"}})
		proxies[1].send(&SetDraining{true})
		proxies[1].send(&SetLoad{Clients: 12, Servers: 3})
		eventually(t, 30*time.Second, "told", func() bool { return len(proxies[0].row("m1").Differs) > 0 && proxies[0].row("m1").Clients == 12 })
		r := proxies[0].row("m1")
		if want := `shards.main.hosts: "10.0.0.1:5432" here, "10.0.0.2:5432" there`; !r.SettingsDiffer || len(r.Differs) != 1 || r.Differs[0] != want {
			t.Errorf("%+v", r)
		}
		if !r.Draining || r.Servers != 3 || r.RoundTrip == 0 || r.PeerID != 2 || r.Version != "v1" || r.State != Alive {
			t.Errorf("%+v", r)
		}
		proxies[1].send(&SetSettings{map[string]string{"shards.main.hosts": "10.0.0.1:5432", "evidence_ttl": "3s"}})
		eventually(t, 30*time.Second, "the same", func() bool { r := proxies[0].row("m1"); return !r.SettingsDiffer && r.Differs == nil })
		closeAll(proxies)
	})
}

// forgetNow is a FORGET that is given now.
func forgetNow(shard string, generation uint64) *ForgetOrdered {
	return &ForgetOrdered{shard, evidence.ForgetOrdered{Generation: generation, Order: evidence.Order{byte(generation)}, At: time.Now()}}
}

// TestForgetAndLies: FORGET reaches everybody, claims of before are gone with it, and a record forged in a member's name is
// taken back by that member.
func TestForgetAndLies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(20)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		proxies[0].send(&PublishFloorClaim{"main", "10.0.0.1:5432", role.Floor{SystemID: 7, Timeline: 9}, time.Now()})
		time.Sleep(time.Second)
		if !has(proxies[2].shard, func(m *PeerFloorClaim) bool {
			return m.FloorClaim.Record.Floor.Timeline == 9 && m.FloorClaim.Member == "m0"
		}) {
			t.Fatal("the claim did not arrive")
		}
		proxies[1].send(forgetNow("main", 1))
		time.Sleep(time.Second)
		for i, p := range proxies {
			wanted := 1
			if i == 1 {
				wanted = 0 // it was given there
			}
			if got := p.shard.count(func(m any) bool { f, ok := m.(*ForgetOrdered); return ok && f.ForgetOrdered.Generation == 1 }); got != wanted {
				t.Errorf("%s: told %d times", p.cfg.Member, got)
			}
			for _, r := range p.describe().Evidence {
				if r.Claim.Timeline != 0 {
					t.Errorf("%s keeps %+v", p.cfg.Member, r)
				}
			}
		}
		proxies[0].saw("10.0.0.1:5432", role.InRecovery, 2)
		time.Sleep(time.Second)
		lie, _ := evidence.NewObserved(evidence.ShardOf("main"), proxies[0].cfg.Boot, 1000, role.Observation{Host: "10.0.0.1:5432", Verdict: role.Writable, Timeline: 99, Asked: time.Now()}, 0)
		proxies[2].send(&received{evidence.Append(append([]byte{evidenceMessage}, evidence.Header()...), time.Now(), lie), time.Now()})
		time.Sleep(2 * time.Second)
		for _, p := range proxies {
			for _, r := range p.describe().Evidence {
				if r.Observation.Timeline == 99 || r.Seq <= 1000 {
					t.Errorf("%s believes %+v", p.cfg.Member, r)
				}
			}
		}
		if _, ok := proxies[0].problem("another process sent evidence in this member's name"); !ok {
			t.Error("not reported")
		}
		closeAll(proxies)
	})
}
