package cluster

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// callbacks is what memberlist calls, on its own goroutines and with its own locks held: everything here copies what it
// was given, tells the actor and returns.
type callbacks link

var (
	_ memberlist.Delegate         = (*callbacks)(nil)
	_ memberlist.EventDelegate    = (*callbacks)(nil)
	_ memberlist.PingDelegate     = (*callbacks)(nil)
	_ memberlist.ConflictDelegate = (*callbacks)(nil)
)

// NodeMeta implements memberlist.Delegate.
func (c *callbacks) NodeMeta(limit int) []byte {
	m := *c.store.meta.Load()
	return m[:min(len(m), limit)]
}

// NotifyMsg implements memberlist.Delegate.
func (c *callbacks) NotifyMsg(b []byte) {
	if len(b) == 0 || len(b) > maxMessage || !c.store.admit() {
		return
	}
	c.send(&received{slices.Clone(b), time.Now()})
}

// GetBroadcasts implements memberlist.Delegate.
func (c *callbacks) GetBroadcasts(overhead, limit int) [][]byte {
	if b := c.store.gossip(time.Now(), limit-overhead); b != nil {
		return [][]byte{b}
	}
	return nil
}

// LocalState implements memberlist.Delegate.
func (c *callbacks) LocalState(bool) []byte { return c.store.state(time.Now()) }

// MergeRemoteState implements memberlist.Delegate.
func (c *callbacks) MergeRemoteState(b []byte, _ bool) {
	if len(b) > maxState || !c.store.admit() {
		return
	}
	c.send(&receivedState{slices.Clone(b), time.Now()})
}

// NotifyJoin implements memberlist.EventDelegate.
func (c *callbacks) NotifyJoin(n *memberlist.Node) {
	c.send(&nodeSeen{nodeOf(n), slices.Clone(n.Meta)})
}

// NotifyUpdate implements memberlist.EventDelegate.
func (c *callbacks) NotifyUpdate(n *memberlist.Node) { c.NotifyJoin(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (c *callbacks) NotifyLeave(n *memberlist.Node) { c.send(&nodeGone{n.Name}) }

// NotifyConflict implements memberlist.ConflictDelegate. Names differ for every run, so only an address that was changed
// under a running process comes here; memberlist logs it.
func (c *callbacks) NotifyConflict(_, _ *memberlist.Node) {}

// AckPayload implements memberlist.PingDelegate.
func (c *callbacks) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, c.store.load.Load())
}

// NotifyPingComplete implements memberlist.PingDelegate.
func (c *callbacks) NotifyPingComplete(n *memberlist.Node, trip time.Duration, payload []byte) {
	in := &input{b: payload}
	clients, servers := in.u32(), in.u32()
	c.send(&pinged{n.Name, trip, clients, servers})
}
