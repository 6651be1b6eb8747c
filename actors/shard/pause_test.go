package shard_test

import (
	"fmt"
	"testing"
	"time"

	"fencepost/actors/shard"
)

// pause gives an order and returns the answer.
func (p *place) pause(id string) shard.PauseState {
	p.t.Helper()
	reply := make(chan shard.PauseState, 1)
	p.send(&shard.PauseWrites{ID: id, For: 2 * time.Second, Reply: reply})
	return <-reply
}

func (p *place) wantPaused(id string, want bool) {
	p.t.Helper()
	if s := p.pause(id); s.Paused != want || s.From != hostA || s.Err != nil {
		p.t.Errorf("order %s: %+v, want paused %v from %s", id, s, want, hostA)
	}
}

// An order that has ended, in whatever way, begins nothing anew, however many orders were given since.
func TestPauseNeverBeginsAnew(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		p.wantPaused("released", true)
		p.wantElected("")
		p.send(&shard.ResumeWrites{ID: "released"})
		p.wantElected(hostA)
		p.wantPaused("over", true)
		p.run(3*time.Second, p.beat)
		p.wantElected(hostA)
		for i := range 20 {
			id := fmt.Sprint("another ", i)
			p.wantPaused(id, true)
			p.send(&shard.ResumeWrites{ID: id})
		}
		for _, id := range []string{"released", "over", "another 0", "another 19"} {
			p.wantPaused(id, false)
			p.wantElected(hostA)
		}
		p.wantPaused("new", true)
		p.wantPaused("over", false)
		p.send(&shard.ResumeWrites{ID: "over"}) // is not that one's
		p.wantElected("")
		p.wantPaused("new", true)
	})
}

// One whose time is over is not made longer by what is read before its timer, as in a process that was frozen.
func TestPauseIsOverBeforeItsTimer(t *testing.T) {
	inPlace(t, settings(hostA, hostB), func(p *place) {
		p.healthy()
		first, second := make(chan shard.PauseState), make(chan shard.PauseState, 1)
		p.send(&shard.PauseWrites{ID: "frozen", For: 2 * time.Second, Reply: first}) // the actor stands still until this is read
		p.send(&shard.PauseWrites{ID: "frozen", For: 2 * time.Second, Reply: second})
		p.pass(2500 * time.Millisecond) // less than makes the actor ask its hosts again
		if s := <-first; !s.Paused {
			t.Errorf("at first: %+v", s)
		}
		if s := <-second; s.Paused {
			t.Errorf("later: %+v", s)
		}
		p.settle()
		p.wantElected(hostA)
	})
}
