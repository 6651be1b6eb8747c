package hasim

import (
	"bytes"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/role"
)

// What the shard's actor takes in, as the oracle sees it.

// watchShard looks at the shard's actor before and after each message.
func (o *oracle) watchShard(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
		o.mu.Lock()
		o.taking = doubtful(e.Message)
		switch m := e.Message.(type) {
		case *actor.Started:
			o.starts++
			if o.starts > 1 {
				o.counts.restarts++
				o.cut = time.Now()
			}
		case *shard.Forget: // before: the actor may panic behind it
			o.cut = time.Now()
			clear(o.known)
			clear(o.heard)
			clear(o.cluster)
			o.forgets = true
		default:
			if m := observation(m); m != nil && m.Asked.After(o.cut) && m.Verdict.OutOfRecovery() {
				o.heard[m.SystemID] = max(o.heard[m.SystemID], m.Timeline)
			}
		}
		o.mu.Unlock()
		defer func() {
			o.mu.Lock()
			o.taking = false
			o.mu.Unlock()
		}()
		next(c, e)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.taken(e.Message)
	}
}

func doubtful(message any) bool {
	switch m := message.(type) {
	case *shard.HostLost:
		return m.Doubts
	case *shard.ConnectFailed:
		return m.Doubts
	case *shard.Hinted:
		return m.Doubts
	}
	return false
}

// logged looks at a line of the log: while the shard's actor takes in what doubt was raised for, the doubt stands until
// the view that follows from it is there.
func (o *oracle) logged(line []byte) {
	if !bytes.Contains(line, []byte(`"message":"shard: `)) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taking {
		o.mustDoubt("doubt was settled before the view that follows from it")
	}
}

// taken: the shard's actor has taken a message in.
func (o *oracle) taken(message any) {
	v := o.w.shard.View()
	if m := observation(message); m != nil {
		o.observed(*m, v)
	}
	if m, ok := message.(*shard.Configure); ok {
		o.hosts = m.Settings.Hosts
	}
	if v.SystemID == o.last.SystemID && v.Floor < o.last.Floor || o.last.SystemID != 0 && v.SystemID != o.last.SystemID {
		if !o.forgets && o.last.SystemID != otherCluster { // a stranger that alone has answered is found out
			o.w.problem("without FORGET the floor went from %d of %d to %d of %d", o.last.Floor, o.last.SystemID, v.Floor, v.SystemID)
		}
		o.forgets = false
	}
	if v.Epoch < o.last.Epoch {
		o.w.problem("epoch %d came after %d", v.Epoch, o.last.Epoch)
	}
	if known := o.known[v.SystemID]; v.SystemID != 0 && known > v.Floor {
		o.w.problem("timeline %d was taken in and the floor is %d", known, v.Floor)
	}
	if heard := max(o.heard[v.SystemID], o.last.Floor); v.SystemID != 0 && v.Floor > heard && !o.forgets {
		o.w.problem("the floor is %d, and nobody was seen above %d since it counts", v.Floor, heard)
	}
	if v != o.last && v.Epoch != o.last.Epoch {
		o.w.trace("view", "epoch %d elected %q floor %d of %d, %s: %s", v.Epoch, v.Elected, v.Floor, v.SystemID, v.State, v.Why)
	}
	if v.Elected != "" && v.Elected != o.last.Elected {
		o.counts.elections++
	}
	o.last = v
	o.elected[v.Elected] = time.Now()
}

// observation is what a message to the shard's actor says of a host; nil: nothing.
func observation(message any) *role.Observation {
	switch m := message.(type) {
	case *monitor.Observed:
		return &m.Observation
	case *shard.Observed:
		return &m.Observation
	case *shard.Connected:
		return m.Observation
	}
	return nil
}

func (o *oracle) observed(m role.Observation, v *shard.View) {
	host := string(m.Host)
	writable := m.SystemID == v.SystemID && m.Verdict == role.Writable
	if writable {
		o.positive[host] = later(o.positive[host], m.Asked)
	}
	if m.SystemID != 0 && m.Asked.After(o.cut) {
		o.cluster[host] = m.SystemID
	}
	if !m.Asked.After(o.cut) || !o.listed(host) || v.SystemID == 0 {
		return
	}
	if !writable {
		o.against[host] = later(o.against[host], m.Answered)
	}
	if m.Verdict.OutOfRecovery() && m.SystemID == v.SystemID {
		o.known[m.SystemID] = max(o.known[m.SystemID], m.Timeline)
	}
}

// listed reports whether an address is a host of the shard for sure.
func (o *oracle) listed(host string) bool {
	if o.w.plan.named() {
		return time.Since(o.moved) > 10*time.Second
	}
	return slices.ContainsFunc(o.hosts, func(h shard.HostSetting) bool { return h.Addr == host })
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
