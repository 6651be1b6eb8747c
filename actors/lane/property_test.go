package lane

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
)

// waitLimit is query_wait_timeout in a random world.
const waitLimit = 2 * time.Second

// chaos is a shard whose hosts, views and clients do what they like.
type chaos struct {
	*roles
	rand    *rand.Rand
	clients []*client // by id; guarded by roles.mu
	holders map[*backend.Backend]*client
	views   map[uint64]shard.View // by epoch: the last of each
	gates   []func()
	crashed time.Time
	log     []string
	err     error

	grants, writes, superseded, spoiled, refusals int
}

func (w *chaos) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *chaos) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

func (w *chaos) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// held keeps who holds what: never two one.
func (w *chaos) held(b *backend.Backend, c *client, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.holders[b]; on && other != nil && w.err == nil {
		w.err = fmt.Errorf("clients %d and %d hold one backend", other.id, c.id)
	}
	if w.holders[b] = c; !on {
		delete(w.holders, b)
	}
}

// check is what has to hold of a grant.
func (w *chaos) check(c *client, g *Granted) {
	w.count(&w.grants)
	if c.target != ReadWrite {
		return
	}
	w.count(&w.writes)
	w.mu.Lock()
	v, known := w.views[g.Epoch]
	w.mu.Unlock()
	p := g.Backend.Proof()
	switch since, doubt := w.shard.InDoubt(); {
	case !known:
		w.fail("a grant of epoch %d, which there never was", g.Epoch)
	case g.Backend.Host() != v.Elected:
		w.fail("a write is granted on %s, elected is %q", g.Backend.Host(), v.Elected)
	case p == nil || p.InRecovery || p.ReadOnly:
		w.fail("a write is granted on proof %+v", p)
	case p.Timeline < v.Floor || p.SystemID != v.SystemID:
		w.fail("a write is granted on timeline %d of %d, the floor is %d of %d", p.Timeline, p.SystemID, v.Floor, v.SystemID)
	case doubt && !p.Asked.After(since) && since.Before(time.Now()):
		w.fail("a write is granted on a proof asked for at %v, in doubt since %v", p.Asked, since)
	}
}

// refused: nobody before their time, unless the lane has failed or nobody is to wait.
func (w *chaos) refused(c *client, e *pgerr.Error) {
	w.mu.Lock()
	w.refusals++
	crashed, refuse := w.crashed, w.view.Refuse
	w.mu.Unlock()
	early := time.Since(c.since) < waitLimit
	if early && !refuse && !(e.Code == pgerr.Shutdown().Code && !crashed.IsZero() && time.Since(crashed) < time.Second) {
		w.fail("client %d is refused after %v: %v", c.id, time.Since(c.since), e)
	}
}

func (w *chaos) spawn(id, loop int) *client {
	c := &client{w: w, id: id, loop: loop}
	l := w.group.Loop(loop)
	c.pid = w.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return c }, actor.WithDispatcher(l),
		actor.WithMailbox(func() actor.Mailbox { return l.NewMailbox() })))
	return c
}

func (w *chaos) replace(c *client) {
	fresh := w.spawn(c.id, c.loop)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients[c.id] = fresh
}

func (w *chaos) some() *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clients[w.rand.IntN(len(w.clients))]
}

func (w *chaos) tell(c *client, m any) { w.system.Root.Send(c.pid, m) }

func (w *chaos) aims() Target {
	return []Target{ReadWrite, ReadWrite, ReadWrite, ReadWrite, Standby, PreferStandby, Any}[w.rand.IntN(7)]
}

func (w *chaos) host() string { return []string{hostA, hostB, hostC}[w.rand.IntN(3)] }

// step is one thing that happens.
func (w *chaos) step() {
	k := w.rand.IntN(100)
	w.log = append(w.log, fmt.Sprint(k))
	switch {
	case k < 8:
		w.tell(w.some(), doAttach{w.aims(), w.spec})
	case k < 40:
		w.tell(w.some(), doAsk{w.aims()})
	case k < 44:
		w.tell(w.some(), doCancel{})
	case k < 62:
		w.tell(w.some(), doGive{[]pool.Condition{pool.Clean, pool.Clean, pool.Clean, pool.Broken, pool.Dirty}[w.rand.IntN(5)]})
	case k < 64:
		w.tell(w.some(), doDie{})
	case k < 76:
		w.change()
	case k < 84:
		w.trouble()
	case k < 89:
		w.doubts()
	case k < 92:
		w.control()
	default:
		w.sleep(time.Duration(w.rand.IntN(400)) * time.Millisecond)
	}
	if w.rand.IntN(3) == 0 { // else things cross
		w.settle()
		w.sleep(time.Duration(1 + w.rand.IntN(1e6))) // at an instant of its own, in which no timer fires
		w.examine()
	}
}

// change publishes another view, true or not.
func (w *chaos) change() {
	quiet := w.rand.IntN(3) == 0
	v := w.view
	switch w.rand.IntN(8) {
	case 0:
		v.Elected = ""
	case 1, 2, 3: // a real promotion
		host := w.host()
		v.Floor++
		v.Elected = host
		w.hosts[host].server.SetIdentity(primary(v.Floor))
		w.hosts[host].server.SetFaults(fakepg.Faults{})
		w.open()
		v.State = health.Healthy
	case 4:
		v.Elected = w.host()
	case 5:
		v.Floor++
		if v.Elected != "" && w.rand.IntN(3) > 0 {
			w.hosts[v.Elected].server.SetIdentity(primary(v.Floor))
		}
	case 6:
		v.State = []health.State{health.Healthy, health.Unhealthy, health.Failover}[w.rand.IntN(3)]
		v.Warm, v.Balance = w.rand.IntN(3), shard.Balance(w.rand.IntN(3))
		v.Refuse = w.rand.IntN(20) == 0
		v.Candidates = nil
		if v.Elected == "" && w.rand.IntN(2) == 0 {
			v.Candidates = []string{w.host()}
		}
	}
	v.Standbys = nil
	for _, h := range []string{hostB, hostC, hostA} {
		if h != v.Elected && w.rand.IntN(3) > 0 {
			v.Standbys = append(v.Standbys, h)
		}
	}
	publish := w.publish
	if quiet {
		publish = w.publishQuietly
	}
	w.mu.Lock() // clients look at it
	next := v
	next.Epoch = w.view.Epoch
	if v.Elected != w.view.Elected || v.Floor != w.view.Floor {
		next.Epoch++
	}
	w.views[next.Epoch] = next
	w.mu.Unlock()
	publish(func(old *shard.View) { *old = v })
}

// trouble happens to a server.
func (w *chaos) trouble() {
	h := w.hosts[w.host()]
	switch w.rand.IntN(10) {
	case 8, 9:
		w.hangUp()
	case 0:
		h.server.SetIdentity(primary(w.view.Floor))
	case 1:
		h.server.SetIdentity(standby(w.view.Floor))
	case 2:
		id := primary(w.view.Floor)
		id.Timeline = max(id.Timeline, 2) - 1
		if id.ReadOnly = w.rand.IntN(2) == 0; w.rand.IntN(4) == 0 {
			id.Trouble = &fakepg.Error{Severity: "ERROR", Code: "XX000", Message: "broken"}
		}
		h.server.SetIdentity(id)
	case 3:
		h.server.KillIdle(0)
	case 4:
		if pids := h.server.PIDs(); len(pids) > 0 {
			h.server.Kill(pids[w.rand.IntN(len(pids))])
		}
	case 5:
		h.server.SetFaults([]fakepg.Faults{unreachable, {LoginDelay: time.Second}, {}, {}, {}}[w.rand.IntN(5)])
	case 6:
		w.gates = append(w.gates, h.hold())
	case 7:
		w.open()
	}
}

// hangUp ends the connection of a backend in the very turn in which it may have been granted.
func (w *chaos) hangUp() {
	loop := w.rand.IntN(2)
	for range 3 {
		w.tell(w.some(), doAsk{ReadWrite})
	}
	w.on(loop, func() {
		e := w.parents[loop].lanes[key]
		if e == nil || e.lane.stopped || e.lane.write == nil {
			return
		}
		var all []*backend.Backend
		e.lane.write.entries(func(e *entry) {
			if e.state.open() {
				all = append(all, e.b)
			}
		})
		if len(all) > 0 {
			all[w.rand.IntN(len(all))].OnClosed(nil, io.EOF)
		}
	})
}

// open answers all fences that were held back.
func (w *chaos) open() {
	for _, release := range w.gates {
		release()
	}
	w.gates = nil
}

func (w *chaos) doubts() {
	switch w.rand.IntN(4) {
	case 0:
		w.shard.Doubted(true, time.Now())
		w.sleep(1)
	case 1:
		w.shard.Doubted(false, time.Now())
	default:
		w.shard.RaiseDoubt(time.Now())
		w.system.Root.Send(w.deps.ShardOf("main"), &shard.Hinted{Host: hostA, Doubts: true, At: time.Now()})
	}
}

func (w *chaos) control() {
	loop := w.rand.IntN(2)
	switch w.rand.IntN(7) {
	case 0:
		for i := range 2 {
			w.roles.control(i, Pause)
		}
	case 1, 2, 3:
		for i := range 2 {
			w.roles.control(i, Resume)
		}
	case 4:
		w.roles.control(loop, Reconnect)
	case 5:
		spec := *w.spec
		spec.DBName = fmt.Sprint("db", w.rand.IntN(2))
		spec.Fence = FenceMode(w.rand.IntN(2))
		spec.Limits.MinSize = w.rand.IntN(3)
		w.reload(&spec)
	case 6:
		if w.rand.IntN(3) > 0 {
			return
		}
		looks := 1 + w.rand.IntN(20)
		w.on(loop, func() {
			if e := w.parents[loop].lanes[key]; e != nil && !e.lane.stopped {
				newFuse(e.lane, looks, func() {
					w.mu.Lock()
					w.crashed = time.Now()
					w.mu.Unlock()
				})
			}
		})
	}
}

// examine looks whether everything is as it must be between any two things that happen.
func (w *chaos) examine() {
	sizes, current, lanes := map[string]int{}, [2]bool{}, 0 // current: whether a lane knows the view
	for loop := range 2 {
		w.on(loop, func() {
			e := w.parents[loop].lanes[key]
			if e == nil || e.lane.stopped || e.lane.unplaced == nil {
				return
			}
			lanes++
			w.examineLane(e.lane, sizes)
			current[loop] = e.lane.view == w.shard.View()
		})
	}
	for _, host := range []string{hostA, hostB, hostC} {
		if used := w.used(host); used > w.spec.Size || used < sizes[host] || lanes == 2 && used > sizes[host] {
			w.fail("%d permits to %s are out, there are %d backends, pool_size is %d", used, host, sizes[host], w.spec.Size)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		if late := time.Since(c.since); c.waiting && late > waitLimit+150*time.Millisecond && w.err == nil {
			w.err = fmt.Errorf("client %d has waited for %v", c.id, late)
		}
		if !current[c.loop] {
			continue
		}
		if b := c.backend; b != nil && c.target == ReadWrite && w.view.Elected != "" && b.Host() != w.view.Elected && w.err == nil {
			w.err = fmt.Errorf("client %d still holds %s, elected is %s", c.id, b.Host(), w.view.Elected)
		}
		if b := c.backend; b != nil && c.target == ReadWrite && belowFloor(b.Proof(), w.view.Floor) && w.err == nil {
			w.err = fmt.Errorf("client %d still holds a backend on timeline %d, the floor is %d", c.id, b.Proof().Timeline, w.view.Floor)
		}
	}
}

func belowFloor(p *backend.Proof, floor uint32) bool {
	return p != nil && !p.NoTimelines && !p.InRecovery && p.Timeline < floor
}

func (w *chaos) examineLane(l *Lane, sizes map[string]int) {
	fencing := 0
	queued := map[*Checkout]bool{} // or waiting for a fence
	l.all(func(hp *hostPool) {
		if m := hp.machine; m.Waiting() > 0 && m.Count(pool.Idle) > 0 && !m.Paused() {
			w.fail("%d wait at %s, %d backends are idle", m.Waiting(), hp.host, m.Count(pool.Idle))
		}
		if hp.host != "" && hp.permits != hp.machine.Size() {
			w.fail("%d permits for %d backends to %s", hp.permits, hp.machine.Size(), hp.host)
		}
		sizes[hp.host] += hp.machine.Size()
		turn := uint64(0)
		for _, x := range hp.machine.Waiters() {
			co := x.Owner.(*Checkout)
			if co.Turn <= turn {
				w.fail("turn %d waits behind %d", co.Turn, turn)
			}
			if !l.place.Serves(hp.host, co.Target) && l.view == l.spec.Shard.View() {
				w.fail("target %d waits at %q", co.Target, hp.host)
			}
			if turn = co.Turn; queued[co] || co.at != hp {
				w.fail("turn %d waits in two places", co.Turn)
			}
			queued[co] = true
		}
		hp.entries(func(e *entry) {
			if e.fence == nil {
				return
			}
			fencing++
			if co := e.fence.co; co != nil && (queued[co] || co.Queued()) {
				w.fail("turn %d waits for a fence and in a queue", co.Turn)
			} else if co != nil {
				queued[co] = true
			}
			if e.lease.to != nil || e.slot.State() != pool.Leased {
				w.fail("a backend that is being fenced is %v", e.slot.State())
			}
		})
	})
	for i, co := range l.waiters.asked {
		if !queued[co] || co.place != i {
			w.fail("turn %d waits nowhere, or is kept at %d instead of %d", co.Turn, co.place, i)
		}
	}
	if len(l.waiters.asked) != len(queued) {
		w.fail("%d wait, %d are owed an answer", len(queued), len(l.waiters.asked))
	}
	if fencing != l.fencing {
		w.fail("%d fences, counted %d", fencing, l.fencing)
	}
}

// calm ends all troubles: whoever waits is served.
func (w *chaos) calm() {
	w.open()
	for _, h := range w.hosts {
		h.server.SetFaults(fakepg.Faults{})
		h.server.SetIdentity(standby(w.view.Floor))
	}
	w.hosts[hostB].server.SetIdentity(primary(w.view.Floor + 1))
	for i := range 2 {
		w.roles.control(i, Resume)
	}
	w.shard.Doubted(false, time.Now())
	w.mu.Lock()
	v := w.view
	v.Epoch, v.Floor, v.Elected, v.Refuse, v.State, v.Candidates = v.Epoch+1, v.Floor+1, hostB, false, health.Healthy, nil
	v.Standbys = []string{hostA, hostC}
	w.views[v.Epoch] = v
	w.mu.Unlock()
	w.publish(func(old *shard.View) { e := old.Epoch; *old = v; old.Epoch = e })
	for range 60 {
		for id := range w.clients {
			w.mu.Lock()
			c := w.clients[id]
			w.mu.Unlock()
			w.tell(c, doGive{pool.Clean})
		}
		w.sleep(100*time.Millisecond + time.Duration(w.rand.IntN(1e6)))
		w.examine()
	}
	w.mu.Lock()
	refusals := w.refusals
	w.mu.Unlock()
	for _, c := range w.clients {
		w.tell(c, doAttach{ReadWrite, w.spec})
		w.settle()
		w.tell(c, doAsk{ReadWrite})
		w.sleep(time.Second)
		w.tell(c, doGive{pool.Clean})
		w.settle()
		waits := true
		w.on(c.loop, func() { waits = c.waiting || c.lane == nil })
		if waits {
			w.fail("client %d is not served although all is well: %s", c.id, w.dump())
		}
	}
	if w.refusals != refusals {
		w.fail("refused although all is well")
	}
}

func (w *chaos) dump() (s string) {
	for loop := range 2 {
		w.on(loop, func() {
			e := w.parents[loop].lanes[key]
			if e == nil {
				return
			}
			l := e.lane
			s += fmt.Sprintf("\n  loop %d: paused %v draining %v stopped %v pending %d fencing %d interval %v", loop, l.paused, l.draining, l.stopped, len(l.logins.pending), l.fencing, l.interval)
			for _, a := range l.logins.pending {
				s += fmt.Sprintf(" login at %s for %d", a.at.host, a.Target)
			}
			l.all(func(hp *hostPool) {
				s += fmt.Sprintf("\n    %q write %v waiting %d permits %d warm %d backing off %v unfit %q refusal %v:", hp.host, hp == l.write, hp.machine.Waiting(), hp.permits, hp.warm, hp.machine.BackingOff(time.Now()), hp.unfit, hp.refusal)
				hp.machine.Slots(func(x *pool.Slot) { s += fmt.Sprintf(" %v(retiring %v)", x.State(), x.Retiring()) })
				if hp.host != "" {
					s += fmt.Sprintf(" used %d hungry %d reserved %d", hp.poolBud.Used(), len(hp.poolBud.hungry), len(hp.poolBud.reserved))
				}
			})
		})
	}
	return s
}

// Whatever views, servers, clients, operators and failing lanes do: a write is granted only under a proof that holds, a
// backend has one holder, each checkout is answered once and in time, elections keep the order, and nothing is lost.
func TestLanesInRandomWorlds(t *testing.T) {
	seeds, steps := uint64(24), 2500
	if testing.Short() {
		seeds = 4
	}
	var grants, writes, superseded, refusals, spoiled int
	for seed := range seeds {
		inRoles(t, 2, func(r *roles) {
			w := &chaos{roles: r, rand: rand.New(rand.NewPCG(seed, 3)), holders: map[*backend.Backend]*client{}, views: map[uint64]shard.View{}}
			w.views[r.view.Epoch] = r.view
			w.spec = w.newSpec(1 + w.rand.IntN(4))
			w.spec.WaitLimit, w.spec.Fence = waitLimit, FenceMode(w.rand.IntN(2))
			for id := range 12 {
				w.clients = append(w.clients, w.spawn(id, id%2))
			}
			for i := 0; i < steps && w.failed() == nil; i++ {
				w.step()
			}
			if w.failed() == nil {
				w.calm()
			}
			if err := w.failed(); err != nil {
				t.Errorf("seed %d, after %s: %v", seed, strings.Join(w.log[max(len(w.log)-30, 0):], " "), err)
			}
			grants, writes, superseded = grants+w.grants, writes+w.writes, superseded+w.superseded
			refusals, spoiled = refusals+w.refusals, spoiled+w.spoiled
			for _, c := range slices.Clone(w.clients) {
				r.system.Root.Stop(c.pid)
			}
			r.settle()
		})
	}
	t.Logf("%d grants, %d of them to write, %d superseded, %d refused, %d spoiled", grants, writes, superseded, refusals, spoiled)
	if n := int(seeds); grants < 50*n || writes < 20*n || superseded < n || refusals < 5*n || spoiled < n/4 {
		t.Error("too little happened")
	}
}
