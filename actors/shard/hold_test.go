package shard_test

import (
	"fmt"
	"testing"
	"time"

	"fencepost/actors/shard"
)

// hold gives an order and returns the answer.
func (p *place) hold(id string) shard.HoldState {
	p.t.Helper()
	reply := make(chan shard.HoldState, 1)
	p.send(&shard.Hold{ID: id, For: 2 * time.Second, Reply: reply})
	return <-reply
}

func (p *place) wantHeld(id string, want bool) {
	p.t.Helper()
	if s := p.hold(id); s.Held != want || s.From != hostA || s.Err != nil {
		p.t.Errorf("order %s: %+v, want held %v from %s", id, s, want, hostA)
	}
}

// An order that has ended, in whatever way, begins nothing anew, however many orders were given since.
func TestHoldNeverBeginsAnew(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.wantHeld("released", true)
		p.wantElected("")
		p.send(&shard.Release{ID: "released"})
		p.wantElected(hostA)
		p.wantHeld("over", true)
		p.run(3*time.Second, p.beat)
		p.wantElected(hostA)
		for i := range 20 {
			id := fmt.Sprint("another ", i)
			p.wantHeld(id, true)
			p.send(&shard.Release{ID: id})
		}
		for _, id := range []string{"released", "over", "another 0", "another 19"} {
			p.wantHeld(id, false)
			p.wantElected(hostA)
		}
		p.wantHeld("new", true)
		p.wantHeld("over", false)
		p.send(&shard.Release{ID: "over"}) // is not that one's
		p.wantElected("")
		p.wantHeld("new", true)
	})
}

// One whose time is over is not made longer by what is read before its timer, as in a process that was frozen.
func TestHoldIsOverBeforeItsTimer(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		first, second := make(chan shard.HoldState), make(chan shard.HoldState, 1)
		p.send(&shard.Hold{ID: "frozen", For: 2 * time.Second, Reply: first}) // the actor stands still until this is read
		p.send(&shard.Hold{ID: "frozen", For: 2 * time.Second, Reply: second})
		p.pass(5 * time.Second)
		if s := <-first; !s.Held {
			t.Errorf("at first: %+v", s)
		}
		if s := <-second; s.Held {
			t.Errorf("five seconds later: %+v", s)
		}
		p.settle()
		p.wantElected(hostA)
	})
}
