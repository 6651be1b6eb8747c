package cluster

import (
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
		proxies[1].office.do = func(ctx actor.Context) {
			if c, ok := ctx.Message().(*CancelFor); ok {
				took <- c.Done
			}
		}
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
