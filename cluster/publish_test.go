package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fencepost/cluster/evidence"
)

// TestForgetDespiteAFlood: generations of any number of shards that nobody has leave room for those of the shards there are.
func TestForgetDespiteAFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxies := memFleet(t, newMemnet(29), 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		for i := range 2 * evidence.DefaultLimits.Shards {
			r, _ := evidence.NewGeneration(evidence.ShardOf(fmt.Sprint("nobody's ", i)), 1)
			proxies[0].send(&received{evidence.Append(append([]byte{evidenceMessage}, evidence.Header()...), time.Now(), r), time.Now()})
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(20 * time.Second) // a push/pull tells all
		proxies[1].send(forgetNow("main", 1))
		time.Sleep(time.Second)
		for _, p := range []*proxy{proxies[0], proxies[2]} {
			if !has(p.shard, func(f *ForgetOrdered) bool { return f.ForgetOrdered.Generation == 1 }) {
				t.Errorf("%s does not hear of it", p.cfg.Member)
			}
		}
		closeAll(proxies)
	})
}
