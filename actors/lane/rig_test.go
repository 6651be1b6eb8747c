package lane

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/eventloop"
	"fencepost/internal/actortest"
	"fencepost/internal/fakepg"
	"fencepost/internal/fakepg/fakedial"
	"fencepost/pgerr"
	"fencepost/wire"
)

// rig is the lanes of one or two loops with a fake server behind them and clients that are only probes. All in a synctest
// bubble.
type rig struct {
	t       *testing.T
	system  *actor.ActorSystem
	group   *eventloop.Group
	server  *fakepg.Server
	deps    *Deps
	lanes   []*actor.PID
	parents []*Lanes
	root    *actor.PID
	shard   *shard.Shard
	spec    *PoolSpec
	after   func() // what else is to hold when everything has ended; may be nil
}

var key = PoolKey{"db", "u"}

func bubble(t *testing.T, loops int, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, server: fakepg.NewServer(1, fakepg.Faults{}), shard: shard.NewStatic("main", "server:5432")}
		var err error
		if r.group, err = eventloop.NewGroup(eventloop.Options{Kind: eventloop.Portable, Loops: loops, Panicked: r.panicked}); err != nil {
			t.Fatal(err)
		}
		r.system = actortest.NewSystem()
		dialer := &fakedial.Dialer{Server: r.server}
		ids, cancels := &atomic.Uint64{}, &atomic.Int64{}
		sink := r.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
		r.deps = &Deps{Budgets: NewBudgets(), Log: zerolog.Nop(), NextID: func() uint64 { return ids.Add(1) }, ShardOf: func(string) *actor.PID { return sink },
			Backend: &backend.Deps{Group: r.group, Dialer: dialer, Names: backend.BaseNames, Log: zerolog.Nop(), Cancels: cancels,
				CancelLimit: func() time.Duration { return time.Second }, CancelVanished: func() bool { return false },
				Leases: func() backend.Leases { return &cancellease.Machine{} }}}
		r.spec = r.newSpec(2)
		up := make(chan struct{})
		r.root = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); !ok {
				return
			}
			for i, l := range r.group.Loops() {
				parent := &Lanes{Deps: r.deps, Loop: l}
				r.parents = append(r.parents, parent)
				pid, err := ctx.SpawnNamed(LanesProps(parent), fmt.Sprintf("lanes-%d", i))
				if err != nil {
					t.Error(err)
				}
				r.lanes = append(r.lanes, pid)
			}
			close(up)
		}))
		<-up
		defer func() {
			if err := r.system.Root.StopFuture(r.root).Wait(); err != nil {
				t.Errorf("stop: %v", err)
			}
			time.Sleep(time.Second)
			if n := r.server.Open(); n != 0 {
				t.Errorf("%d server connections are left open", n)
			}
			if r.after != nil {
				r.after()
			}
			r.group.Stop()
			r.server.Close()
			time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
		}()
		f(r)
	})
}

func (r *rig) panicked(reason any, stack []byte) { r.t.Errorf("panic: %v\n%s", reason, stack) }

func (r *rig) newSpec(size int) *PoolSpec {
	return &PoolSpec{Shard: r.shard, Size: size, DBName: "db", Source: backend.FixedPassword(""), Dial: time.Second, WaitLimit: 5 * time.Second,
		Limits: pool.Config{RetryMax: time.Second, Concurrency: 8, PoolSize: size}}
}

// probe stands for a frontend.
type probe struct {
	r        *rig
	loop     int
	pid      *actor.PID
	lane     *actor.PID
	pool     PoolKey
	req      uint64
	attached chan *Attached
	refused  chan *AttachRefused
	granted  chan *Granted
	denied   chan *Refused
	checkout *Checkout
	lost     chan *pgerr.Error
	target   Target
	left     bool // it was detached
	cut      chan *Superseded
}

func (p *probe) ServerData([]byte, backend.Seen) {}
func (p *probe) ServerDrained()                  {}
func (p *probe) ServerLost(err *pgerr.Error)     { p.lost <- err }

func (r *rig) newProbe(loop int, pool PoolKey) *probe {
	p := &probe{r: r, loop: loop, pool: pool, attached: make(chan *Attached, 10), refused: make(chan *AttachRefused, 10), granted: make(chan *Granted, 10),
		denied: make(chan *Refused, 10), lost: make(chan *pgerr.Error, 10), cut: make(chan *Superseded, 10)}
	l := r.group.Loop(loop)
	p.pid = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *Attached:
			p.attached <- m
		case *AttachRefused:
			p.refused <- m
		case *Granted:
			p.granted <- m
		case *Refused:
			p.denied <- m
		case *Superseded:
			p.cut <- m
		}
	}, actor.WithDispatcher(l), actor.WithMailbox(func() actor.Mailbox { return l.NewMailbox() })))
	return p
}

// attach asks for the lane; the answer is in attached or refused.
func (p *probe) attach() {
	p.req++
	p.r.system.Root.Send(p.r.lanes[p.loop], &Attach{Req: p.req, From: p.pid, Pool: p.pool, Spec: p.r.spec, Target: p.target, Since: time.Now(),
		Deadline: time.Now().Add(time.Minute)})
}

// login attaches and waits for the welcome.
func (r *rig) login(loop int) *probe { return r.loginTo(loop, key) }

func (r *rig) loginTo(loop int, pool PoolKey) *probe {
	r.t.Helper()
	p := r.newProbe(loop, pool)
	p.attach()
	p.lane = get(r, p.attached).Lane
	return p
}

func (p *probe) detach() {
	p.left = true
	p.r.system.Root.Send(p.lane, &Detach{Req: p.req, From: p.pid, Pool: p.pool})
}

// ask puts the probe in the queue.
func (p *probe) ask() {
	p.req++
	p.checkout = &Checkout{From: p.pid, Target: p.target}
	p.checkout.Req, p.checkout.Enqueued = p.req, time.Now()
	p.checkout.Deadline = time.Now().Add(p.r.spec.WaitLimit)
	p.r.system.Root.Send(p.lane, p.checkout)
}

// take waits for the grant and holds the backend.
func (p *probe) take() *backend.Backend {
	p.r.t.Helper()
	g := get(p.r, p.granted)
	if g.Req != p.req {
		p.r.t.Errorf("granted %d, asked %d", g.Req, p.req)
	}
	p.r.on(p.loop, func() { g.Backend.Serve(p) })
	return g.Backend
}

func (p *probe) give(b *backend.Backend, c pool.Condition) {
	p.r.on(p.loop, b.Release)
	p.r.system.Root.Send(p.lane, &Checkin{Backend: b, Condition: c})
}

// query sends a query and leaves the answer alone.
func (p *probe) query(b *backend.Backend, sql string) {
	p.r.on(p.loop, func() {
		b.Tracker.Sent(wire.MsgQuery)
		b.Write(wire.AppendQuery(nil, sql))
	})
}

func (r *rig) sleep(d time.Duration) { time.Sleep(d) }

func (r *rig) on(loop int, f func()) {
	done := make(chan struct{})
	r.group.Loop(loop).Post(func() { defer close(done); f() })
	<-done
}

// get waits for something, not for ever.
func get[T any](r *rig, c <-chan T) T {
	r.t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Hour):
		r.t.Fatalf("no %T", *new(T))
		panic("unreachable")
	}
}

// none fails if something comes within d.
func none[T any](r *rig, c <-chan T, d time.Duration) {
	r.t.Helper()
	select {
	case v := <-c:
		r.t.Fatalf("%T %+v", v, v)
	case <-time.After(d):
	}
}

// row describes the lane of a pool.
func (r *rig) row(loop int, pool PoolKey) LaneRow {
	r.t.Helper()
	reply := make(chan []LaneRow, 1)
	r.system.Root.Send(r.lanes[loop], &Describe{Reply: reply})
	for _, row := range get(r, reply) {
		if row.Pool == pool {
			return row
		}
	}
	return LaneRow{}
}

func (r *rig) control(loop int, v Verb) {
	reply := make(chan int, 1)
	r.system.Root.Send(r.lanes[loop], &Control{Verb: v, Database: key.Database, Reply: reply})
	get(r, reply)
}

func (r *rig) reload(spec *PoolSpec) {
	r.spec = spec
	for _, l := range r.lanes {
		r.system.Root.Send(l, &Reload{Spec: func(PoolKey) *PoolSpec { return spec }})
	}
}

var refusal = fakepg.Error{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}
