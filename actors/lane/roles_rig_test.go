package lane

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/fakepg"
	"fencepost/internal/fakepg/fakedial"
	"fencepost/role"
	"fencepost/wire"
)

// Hosts of a shard with roles. In a rig each has a server of its own.
const hostA, hostB, hostC = "10.0.0.1:5432", "10.0.0.2:5432", "10.0.0.3:5432"

// latency is how long a login and a fence take at least: what is asked in the same instant in which doubt rose proves
// nothing, and in a bubble the same instant may last for ever.
const latency = 10 * time.Microsecond

// fakeHost is a server whose answers to fences can be held back.
type fakeHost struct {
	server *fakepg.Server
	dialer *fakedial.Dialer

	mu     sync.Mutex // guards what follows
	gate   chan struct{}
	gates  []chan struct{} // all that were not opened
	fences int             // asked
}

func newFakeHost(seed uint64, id fakepg.Identity) *fakeHost {
	h := &fakeHost{server: fakepg.NewServer(seed, fakepg.Faults{})}
	h.dialer = &fakedial.Dialer{Server: h.server, Seed: seed}
	h.server.SetIdentity(id)
	h.server.Watch = func(e fakepg.Event) {
		if e.Text != role.IdentityQuery {
			return
		}
		time.Sleep(latency)
		h.mu.Lock()
		gate := h.gate
		h.fences++
		h.mu.Unlock()
		if gate != nil {
			<-gate
		}
	}
	return h
}

// hold keeps fences from being answered until the function that is returned is called.
func (h *fakeHost) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gate := make(chan struct{})
	h.gate, h.gates = gate, append(h.gates, gate)
	return func() { h.release(gate) }
}

func (h *fakeHost) release(gate chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.gates, gate)
	if i < 0 {
		return
	}
	h.gates = slices.Delete(h.gates, i, i+1)
	if close(gate); h.gate == gate {
		h.gate = nil
	}
}

// close lets everything end.
func (h *fakeHost) close() {
	h.mu.Lock()
	for _, gate := range h.gates {
		close(gate)
	}
	h.gates = nil
	h.mu.Unlock()
	h.server.Close()
}

func (h *fakeHost) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fences
}

func primary(timeline uint32) fakepg.Identity {
	id := fakepg.Ordinary()
	id.Timeline = timeline
	return id
}

func standby(timeline uint32) fakepg.Identity {
	id := primary(timeline)
	id.InRecovery = true
	return id
}

// roles are lanes of a shard with roles; the test is the shard's actor.
type roles struct {
	*rig
	hosts map[string]*fakeHost
	view  shard.View

	mu     sync.Mutex // guards what follows
	told   []any
	mute   bool           // the shard's actor settles no doubts
	counts map[string]int // connections by host, as the shard was told
	owing  int            // doubts that were not settled
}

func (r *roles) Dial(ctx context.Context, t backend.Target) (*backend.Login, error) {
	time.Sleep(latency)
	return r.hosts[t.Host].dialer.Dial(ctx, t)
}

func (r *roles) Cancel(net.Addr, wire.CancelKey, time.Duration) backend.CancelResult {
	return backend.CancelResult{Sent: true}
}

// inRoles runs f with a shard whose host A is the primary, and B and C its standbys.
func inRoles(t *testing.T, loops int, f func(r *roles)) {
	t.Helper()
	bubble(t, loops, func(base *rig) {
		r := &roles{rig: base, counts: map[string]int{}, hosts: map[string]*fakeHost{
			hostA: newFakeHost(1, primary(1)), hostB: newFakeHost(2, standby(1)), hostC: newFakeHost(3, standby(1))}}
		r.shard = shard.NewShard("main")
		r.spec = r.newSpec(4)
		r.deps.Backend.Dialer = r
		pid := r.system.Root.Spawn(actor.PropsFromFunc(r.listen))
		r.deps.ShardOf = func(string) *actor.PID { return pid }
		r.after = r.checkEnd
		r.view = shard.View{Elected: hostA, Floor: 1, SystemID: fakepg.Ordinary().SystemID, State: health.Healthy, Standbys: []string{hostB, hostC}}
		r.publish(func(*shard.View) {})
		f(r)
	})
}

func (r *roles) listen(ctx actor.Context) { r.listenFor(r.shard, ctx) }

func (r *roles) listenFor(sh *shard.Shard, ctx actor.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m := ctx.Message().(type) {
	case *shard.Connected:
		r.counts[m.Host]++
	case *shard.HostLost:
		r.counts[m.Host]--
	case *actor.Started, *actor.Stopping, *actor.Stopped:
		return
	}
	if shard.Doubts(ctx.Message()) {
		if r.mute {
			r.owing++
		} else {
			sh.ClearDoubt()
		}
	}
	r.told = append(r.told, ctx.Message())
}

// checkEnd is what has to hold after everything has ended: nothing is left open, no permit is out, and the shard was
// told of the end of each connection, and of each doubt, once.
func (r *roles) checkEnd() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for host, h := range r.hosts {
		defer h.close()
		if n := len(h.gates); n > 0 { // whose connections the server cannot see the end of
			continue
		}
		if n := h.server.Open(); n != 0 {
			r.t.Errorf("%d connections to %s are left open", n, host)
		}
		if n := r.counts[host]; n != 0 {
			r.t.Errorf("the shard believes in %d connections to %s", n, host)
		}
	}
	if p, d := len(r.deps.Budgets.pools), len(r.deps.Budgets.databases); p+d != 0 {
		r.t.Errorf("%d and %d budgets are left", p, d)
	}
	if n := r.shard.Uncleared(); n != int64(r.owing) {
		r.t.Errorf("%d doubts are pending, %d were not settled", n, r.owing)
	}
}

// publish changes the view as the shard's actor does, and lets the lanes take it in.
func (r *roles) publish(change func(v *shard.View)) {
	r.publishQuietly(change)
	for _, l := range r.lanes {
		r.system.Root.Send(l, &shard.ViewPublished{Shard: r.shard})
	}
	r.settle()
}

// publishQuietly leaves it to the lanes to notice.
func (r *roles) publishQuietly(change func(v *shard.View)) {
	v := r.view
	v.Standbys = slices.Clone(v.Standbys)
	change(&v)
	if v.Elected != r.view.Elected || v.Floor != r.view.Floor || r.view.Epoch == 0 {
		v.Epoch++
		v.Since = time.Now()
		v.Why = fmt.Sprintf("epoch %d", v.Epoch)
	}
	r.view = v
	r.shard.Publish(&v)
}

// settle lets everything come to rest that needs no time to speak of.
func (r *roles) settle() { r.sleep(100 * latency) }

// elect publishes another primary; "" for none.
func (r *roles) elect(host string) { r.publish(func(v *shard.View) { v.Elected = host }) }

// promote makes a host the primary on a new timeline, and the one before a standby of it.
func (r *roles) promote(host string) {
	old := r.view.Elected
	r.hosts[host].server.SetIdentity(primary(r.view.Floor + 1))
	if old != "" && old != host {
		r.hosts[old].server.SetIdentity(standby(r.view.Floor + 1))
	}
	r.publish(func(v *shard.View) {
		v.Floor++
		v.Elected = host
		v.Standbys = slices.DeleteFunc(v.Standbys, func(h string) bool { return h == host })
	})
}

// since are the messages of a type that the shard was told.
func toldOf[T any](r *roles) (all []T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.told {
		if m, ok := m.(T); ok {
			all = append(all, m)
		}
	}
	return all
}

func (r *roles) setMute(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = on
}

// with makes a client with a target that is logged in.
func (r *roles) with(t Target) *probe {
	r.t.Helper()
	p := r.newProbe(0, key)
	p.target = t
	p.attach()
	p.lane = get(r.rig, p.attached).Lane
	return p
}

// holding makes a client that has a backend.
func (r *roles) holding(t Target) (*probe, *backend.Backend) {
	r.t.Helper()
	p := r.with(t)
	p.ask()
	return p, p.take()
}

// waits makes clients that have asked, one after the other.
func (r *roles) waits(t Target, n int) (all []*probe) {
	for range n {
		p := r.with(t)
		p.ask()
		all = append(all, p)
	}
	r.settle()
	return all
}

// served expects each to be granted a backend to host, in order, with one backend for all of them.
func (r *roles) served(host string, all ...*probe) {
	r.t.Helper()
	for i, p := range all {
		b := p.take()
		if b.Host() != host {
			r.t.Errorf("client %d is granted %s instead of %s", i, b.Host(), host)
		}
		for j, q := range all[i+1:] {
			if len(q.granted) > 0 {
				r.t.Errorf("client %d was granted before client %d", i+1+j, i)
			}
		}
		p.give(b, pool.Clean)
		r.settle()
	}
}

// crossed gives a grant back that was on its way when its client left the queue. One whose session has ended cannot.
func (r *roles) crossed(p *probe) {
	if len(p.granted) > 0 {
		g := get(r.rig, p.granted)
		if p.left {
			return
		}
		r.system.Root.Send(p.lane, &Checkin{Backend: g.Backend, Condition: pool.Clean})
		r.settle()
	}
}

// quiet expects that p is told nothing more.
func (r *roles) quiet(p *probe) {
	r.t.Helper()
	if n := len(p.granted) + len(p.denied); n > 0 {
		r.t.Errorf("%d answers too many", n)
	}
}

func (r *roles) unfinished(v Verb) int {
	reply := make(chan int, 1)
	r.system.Root.Send(r.lanes[0], &Quiet{Wait: v, Database: "db", Reply: reply})
	return get(r.rig, reply)
}

// state is how many backends to a host are in a state.
func (r *roles) state(host string, s pool.State) (n int) {
	for _, b := range r.row(0, key).Backends {
		if b.Host == host && b.State == s {
			n++
		}
	}
	return n
}

// used are the permits of the pool that are out on a host.
func (r *roles) used(host string) int {
	r.deps.Budgets.mu.Lock()
	b := r.deps.Budgets.pools[poolHost{key, host}]
	r.deps.Budgets.mu.Unlock()
	if b == nil {
		return 0
	}
	return b.Used()
}

// doubt raises doubt about the primary, as of now, and keeps it until the function that is returned is called.
func (r *roles) doubt() (over func()) {
	r.shard.Doubted(true, time.Now())
	r.settle()
	return func() { r.shard.Doubted(false, time.Now()) }
}

// fails has the lane panic.
func (r *roles) fails(p *probe) { r.system.Root.Send(p.lane, (*Checkout)(nil)) }

// lane is the lane that p is a client of; to be looked at on its loop only.
func (r *roles) lane(p *probe) *Lane { return r.parents[p.loop].lanes[p.pool].lane }

// fenced is the first backend that is being fenced.
func (hp *hostPool) fenced() (b *backend.Backend) {
	hp.entries(func(m *entry) {
		if m.fence != nil && b == nil {
			b = m.b
		}
	})
	return b
}

// settleFor has an actor of its own for each shard, that settles doubts. told is how much it was told.
func (r *roles) settleFor(shards map[string]*shard.Shard) (told func(name string) int) {
	pids, counts := map[string]*actor.PID{}, map[string]int{}
	for name, sh := range shards {
		pids[name] = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			r.listenFor(sh, ctx)
			if _, ok := ctx.Message().(*actor.Started); !ok {
				r.mu.Lock()
				counts[name]++
				r.mu.Unlock()
			}
		}))
	}
	r.deps.ShardOf = func(name string) *actor.PID { return pids[name] }
	return func(name string) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return counts[name]
	}
}

var unreachable = fakepg.Faults{Unreached: 1000}

// budgets is how many pools on hosts have one.
func (r *roles) budgets() int {
	r.deps.Budgets.mu.Lock()
	defer r.deps.Budgets.mu.Unlock()
	return len(r.deps.Budgets.pools)
}
