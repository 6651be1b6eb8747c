package cluster

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// TestCancelIsWaitedFor until the member it is for has dealt with it, and no longer than CancelWait; one that goes nowhere
// is over at once.
func TestCancelIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxies := memFleet(t, newMemnet(13), 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		took := make(chan func(), 8)
		proxies[1].office.does(func(ctx actor.Context) {
			if c, ok := ctx.Message().(*CancelFor); ok {
				took <- c.Done
			}
		})
		var done atomic.Int32
		ask := func(peer uint32) {
			proxies[0].send(&CancelFor{PeerID: peer, Key: []byte("key"), Done: func() { done.Add(1) }})
		}
		ask(2)
		time.Sleep(time.Second)
		if done.Load() != 0 {
			t.Error("over before the other member had dealt with it")
		}
		over := <-took
		over()
		over()
		time.Sleep(time.Second)
		if done.Load() != 1 {
			t.Errorf("%d times over after the other member had dealt with it", done.Load())
		}
		ask(77)
		time.Sleep(time.Second)
		if done.Load() != 2 {
			t.Error("one for nobody is not over")
		}
		ask(2)
		<-took // and never says so
		time.Sleep(CancelWait - time.Second)
		if done.Load() != 2 {
			t.Error("given up too early")
		}
		time.Sleep(2 * time.Second)
		if done.Load() != 3 {
			t.Error("never given up")
		}
		closeAll(proxies)
	})
}

// TestCancelsAreRepeated where streams come to nothing and packets get lost: each arrives once, and is over when it was dealt with.
func TestCancelsAreRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(37)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		n.stall()
		n.lose(0.3)
		const all = 30
		var arrived, over atomic.Int32
		proxies[1].office.does(func(ctx actor.Context) {
			if c, ok := ctx.Message().(*CancelFor); ok {
				arrived.Add(1)
				c.Done()
			}
		})
		for range all {
			proxies[0].send(&CancelFor{PeerID: 2, Key: []byte("key"), Done: func() { over.Add(1) }})
		}
		time.Sleep(CancelWait + time.Second)
		if arrived.Load() != all || over.Load() != all {
			t.Errorf("of %d cancels %d arrived and %d were over", all, arrived.Load(), over.Load())
		}
		if proxies[1].counter("fleet_dropped_total", "replayed") != 0 || strings.Contains(proxies[1].logs.String(), "duplicate message") {
			t.Error("what is sent again on purpose is taken for a replay")
		}
		closeAll(proxies)
	})
}

// TestFloodOfCancels: for a member that does not answer, or cannot be reached, no more of them wait than maxCancels; each is
// over once, and those for other members are not held up.
func TestFloodOfCancels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(23)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		deal := func(ctx actor.Context) {
			if c, ok := ctx.Message().(*CancelFor); ok {
				c.Done()
			}
		}
		proxies[2].office.does(deal)
		for _, reachable := range []bool{true, false} {
			if !reachable {
				n.split(addrs(proxies[:1]), addrs(proxies[1:2]))
			}
			const flood = 4 * maxCancels
			times := make([]atomic.Int32, flood)
			over := func() (once, more int) {
				for i := range times {
					switch times[i].Load() {
					case 0:
					case 1:
						once++
					default:
						more++
					}
				}
				return once, more
			}
			for i := range times {
				proxies[0].send(&CancelFor{PeerID: 2, Key: []byte("key"), Done: func() { times[i].Add(1) }})
			}
			var other atomic.Bool
			proxies[0].send(&CancelFor{PeerID: 3, Key: []byte("key"), Done: func() { other.Store(true) }})
			time.Sleep(100 * time.Millisecond)
			if once, _ := over(); once != flood-maxCancels {
				t.Errorf("reachable %v: of %d cancels %d wait", reachable, flood, flood-once)
			}
			if !other.Load() {
				t.Errorf("reachable %v: a cancel for another member is held up", reachable)
			}
			time.Sleep(CancelWait + time.Second)
			if once, more := over(); once != flood || more != 0 {
				t.Errorf("reachable %v: of %d cancels %d are over, and %d more than once", reachable, flood, once, more)
			}
		}
		n.split()
		eventually(t, 30*time.Second, "whole again", func() bool { return whole(proxies) })
		var done atomic.Bool
		proxies[1].office.does(deal)
		proxies[0].send(&CancelFor{PeerID: 2, Key: []byte("key"), Done: func() { done.Store(true) }})
		time.Sleep(time.Second)
		if !done.Load() {
			t.Error("after the flood nothing gets through")
		}
		closeAll(proxies)
	})
}
