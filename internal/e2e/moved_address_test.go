package e2e

import (
	"fmt"
	"testing"
	"time"

	"fencepost/internal/product"
	"fencepost/soak/fleet"
	"fencepost/soak/fleet/network"
)

// The one address of the shard is a service's: after a promotion beside the living primary new connections come to the new one,
// while those that are open stay with the old one, the monitors' among them. The newest connection is believed, also where it is
// another member's.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			t.Parallel()
			l := startFleet(t, fleet.Config{Members: members, Alone: members == 1, Lines: []string{`query_wait_timeout = "2s"`}, Change: func(_ int, s product.Settings) {
				main := s["shards"]["main"].(product.Section)
				main["hosts"] = main["hosts"].([]string)[:1]
			}})
			old, next := l.Servers[0], l.Servers[1]
			began := time.Now()
			var all []*fleet.Writers
			for _, m := range l.Members {
				w := l.Write("transaction", 4, m.Addr)
				defer w.End()
				all = append(all, w)
				if err := w.Await(t.Context(), 4, old, began); err != nil {
					t.Fatal(err)
				}
			}
			promotedAt(t, next)
			l.Net.(*network.Ports).Lead(l.ServerName(old), next.Addr())
			moved := time.Now()
			fresh := l.Write("session", 2, l.Members[0].Addr) // they need connections of their own
			defer fresh.End()
			for i, w := range append(all, fresh) {
				if err := w.Await(t.Context(), 2, next, moved); err != nil {
					t.Errorf("writers %d: %v", i, err)
				}
			}
			fresh.End()
			known := time.Now()
			if acks := fresh.Acks(); len(acks) > 0 {
				known = acks[0].Began
			}
			for i, w := range all {
				w.End()
				var late []time.Duration
				for _, a := range w.Acks() {
					if a.Port == old.Port && a.Began.After(known) {
						late = append(late, a.Began.Sub(known).Round(time.Millisecond))
					}
				}
				t.Logf("member %d: the old primary acknowledged %d writes that began after a member had seen the new one; errors %v", i+1, len(late), w.Codes())
				if n := len(late); n > 0 && late[n-1] > 500*time.Millisecond {
					t.Errorf("the last of them began %s after it", late[n-1])
				}
			}
		})
	}
}
