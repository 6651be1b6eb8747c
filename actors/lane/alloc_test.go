package lane

import (
	"runtime"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane/pool"
)

// turner is a client that does nothing but take a connection and give it back, with messages that it uses again, as
// sessions do.
type turner struct {
	lane    *actor.PID
	co      Checkout
	checkin Checkin
	target  Target
	left    int
	done    chan struct{}
}

func (p *turner) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Granted:
		p.checkin.Backend, p.checkin.Condition = m.Backend, pool.Clean
		ctx.Send(p.lane, &p.checkin)
		if p.left--; p.left == 0 {
			p.done <- struct{}{}
			return
		}
		p.ask(ctx)
	case int:
		p.left = m
		p.ask(ctx)
	}
}

func (p *turner) ask(ctx actor.Context) {
	p.co.Req++
	p.co.From, p.co.Target, p.co.Enqueued = ctx.Self(), p.target, time.Time{}
	ctx.Send(p.lane, &p.co)
}

// A checkout and its checkin allocate nothing, with and without roles.
func TestLeasesAllocateNothing(t *testing.T) {
	count := func(r *rig, p *probe) {
		tr := &turner{lane: p.lane, target: p.target, done: make(chan struct{}, 1)}
		l := r.group.Loop(0)
		pid := r.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return tr }, actor.WithDispatcher(l),
			actor.WithMailbox(func() actor.Mailbox { return l.NewMailbox() })))
		run := func(n int) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.system.Root.Send(pid, n)
			<-tr.done
			runtime.ReadMemStats(&after)
			return after.Mallocs - before.Mallocs
		}
		run(1000)
		const n = 20000
		if got := run(n); got > n/100 {
			t.Errorf("%d allocations in %d turns", got, n)
		}
		r.sleep(time.Second)
		r.system.Root.Stop(pid)
	}
	t.Run("static", func(t *testing.T) {
		bubble(t, 1, func(r *rig) { count(r, r.login(0)) })
	})
	for name, target := range map[string]Target{"read-write": ReadWrite, "standby": Standby, "any": Any} {
		t.Run(name, func(t *testing.T) {
			inRoles(t, 1, func(r *roles) { count(r.rig, r.with(target)) })
		})
	}
}
