package shard_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	fleet "fencepost/cluster"
	"fencepost/cluster/evidence"
	"fencepost/role"
)

// inFleet is inPlace with a fleet that says nothing but that it was heard.
func inFleet(t *testing.T, s shard.Settings, f func(p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, s)
		p.cfg.Fleet = actor.NewPID("nonhost", "fleet")
		p.open()
		p.send(&fleet.Ready{Joined: true})
		f(p)
		p.close()
		time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
	})
}

// What this process has seen itself outlives a restart of the actor, also if another member had said it before.
func TestShardRestartKeepsWhatItSaw(t *testing.T) {
	inFleet(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.claims(hostB, 5)
		p.wantElected("")
		p.probed(answer(hostB, role.ReadOnly, 5)) // out of recovery, and cannot be elected
		p.send(crash{})
		if f := p.shard.View().Floor; f != 5 {
			t.Fatalf("floor %d", f)
		}
		p.probed(primary(hostA, 1), standby(hostB)) // b is another one now: the member's word is void
		p.wantElected("")
		if f := p.shard.View().Floor; f != 5 {
			t.Errorf("floor %d, after this process has seen timeline 5", f)
		}
	})
}

// claims has another member claim that it saw a host on a timeline.
func (p *place) claims(host role.Host, timeline uint32) {
	p.t.Helper()
	r, ok := evidence.NewClaimed(evidence.ShardOf("main"), evidence.Boot{1}, 1, host, role.Floor{SystemID: cluster, Timeline: timeline}, time.Now())
	if !ok {
		p.t.Fatal("no claim")
	}
	p.send(&fleet.PeerFloorClaim{Shard: "main", FloorClaim: evidence.FloorClaim{Record: r, Member: "b"}})
}

// A floor that another member has seen outlives its host's leaving the list, also over a restart of the actor and of the process.
func TestShardRestartKeepsTheFloorOfAHostThatLeft(t *testing.T) {
	s := settings(hostA, hostB, hostC)
	s.StateFile = filepath.Join(t.TempDir(), "state.json")
	inFleet(t, s, func(p *place) {
		p.healthy()
		p.claims(hostB, 5)
		p.wantElected("")
		p.settings = settings(hostA, hostC)
		p.settings.StateFile = s.StateFile
		p.cfg.Settings = p.settings
		p.send(&shard.Configure{Settings: p.settings})
		for _, again := range []func(){func() {}, func() { p.send(crash{}) }, func() { p.reopen(); p.send(&fleet.Ready{Joined: true}) }} {
			again()
			p.beat()
			p.wantElected("")
			if f := p.shard.View().Floor; f != 5 {
				t.Errorf("floor %d", f)
			}
		}
	})
}

// Whoever is about to grant a write while the actor has handled nothing for evidence_ttl finds no primary, and the actor asks
// all hosts before there is one again.
func TestShardStoodStill(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.run(10*time.Second, p.beat)
		if v := p.shard.Current(); v.Elected != hostA {
			t.Fatalf("without a standstill %q is elected", v.Elected)
		}
		blocked := make(chan shard.PauseState)
		p.send(&shard.PauseWrites{ID: "frozen", For: time.Second, Reply: blocked}) // the actor stands still until this is read
		time.Sleep(4 * time.Second)
		if v := p.shard.Current(); v.Elected != "" || p.shard.View() != v || v.Explanation == "" {
			t.Errorf("after 4 s %q is elected", v.Elected)
		}
		<-blocked
		p.send(&monitor.Late{})
		p.wantElected("")
		p.probed(primary(hostA, 1))
		p.wantElected("") // b has not answered yet
		p.probed(primary(hostB, 2))
		p.wantElected(hostB)
	})
}

// A standby that tells a connection that it is one no longer has all hosts asked, and puts the primary in doubt.
func TestShardHearsOfAPromotion(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.probes(hostA)
		p.probes(hostB)
		p.send(&shard.Promoted{Host: hostB, At: time.Now()})
		if a, b := p.probes(hostA), p.probes(hostB); a == 0 || b == 0 {
			t.Errorf("%d and %d probes were asked for", a, b)
		}
		if _, doubted := p.shard.InDoubt(); !doubted {
			t.Error("the primary is not in doubt")
		}
	})
}
