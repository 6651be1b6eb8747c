package lane

import (
	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane/grant"
	"fencepost/actors/lane/pool"
)

// grant looks at a backend that is a checkout's turn to get: it must be alive, and for a write proven to be the primary.
func (l *Lane) grant(g pool.Effect) {
	e := g.Slot.Owner.(*entry)
	co := g.Waiter.Owner.(*Checkout)
	if !e.b.Usable() {
		e.close(co)
		return
	}
	if co.Target == ReadWrite && !l.view.Static {
		switch worth, _ := e.weigh(grant.Earlier); worth {
		case grant.Nothing:
			e.closeUnfit(co, "it is on a timeline below the shard's, or of another cluster")
			return
		case grant.Ask:
			e.ask(co)
			return
		}
	}
	e.give(co)
}

// give leases the backend.
func (e *entry) give(co *Checkout) {
	l := e.hp.lane
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Assignments++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	if co.unplaced {
		l.stats.PrimaryWait.Observe(waited)
	}
	e.lease.to, e.lease.kind = co.From, reads
	switch co.Target {
	case ReadWrite:
		e.lease.kind, e.hp.unfit = writes, ""
	case Standby:
		e.lease.kind = standbyReads
	}
	e.lease.msg.Req, e.lease.msg.Epoch = co.Req, l.view.Epoch
	l.waiters.answered(co)
	l.root.Send(co.From, &e.lease.msg)
}

// supersede tells the holder of a lease that may write that its server is not the primary any more.
func (e *entry) supersede(why string) {
	if e.writing() {
		e.lease.kind = superseded
		e.hp.lane.root.Send(e.lease.to, &Superseded{Backend: e.b, Why: why})
	}
}

// checkin takes a backend back from its holder.
func (l *Lane) checkin(m *Checkin) {
	c := m.Condition
	switch {
	case m.Backend.Spoiled():
		c = pool.Broken
	case c == pool.Clean && m.Backend.Cancelling() > 0:
		c = pool.Dirty // it waits for the cancel leases, then it is clean
	}
	e := l.entryOf(m.Backend)
	if e == nil {
		return // lost meanwhile
	}
	e.lease.to = nil
	if e.state == fresh {
		e.state = used
	}
	e.clean.Patient = m.Patient
	e.hp.run(e.hp.machine.Checkin(l.loop.Now(), e.slot, c))
}

// spoiled takes back a backend that was gone when its holder came to it: the checkout keeps its turn.
func (l *Lane) spoiled(m *Spoiled) {
	if e := l.entryOf(m.Backend); e != nil {
		e.lease.to = nil
		e.close(nil)
	}
	l.requeue(m.Checkout)
}

// close closes a backend that was to be granted; the checkout, if any, goes on waiting.
func (e *entry) close(co *Checkout) {
	l := e.hp.lane
	e.hp.run(e.hp.machine.Checkin(l.loop.Now(), e.slot, pool.Broken))
	if co != nil {
		l.requeue(co)
	}
}

// closeUnfit closes a backend that cannot take writes although it was opened for that; the checkout goes on waiting.
// The next connects to the host wait as if this one had failed: else a server that lets everybody in and is never what it
// should be would be dialled without end.
func (e *entry) closeUnfit(co *Checkout, why string) {
	e.hp.unfit = why
	e.hp.step(pool.Setback{})
	e.close(co)
}

// reclaim takes back what was granted to a client that is gone: its Granted came to nobody.
func (l *Lane) reclaim(from *actor.PID) {
	var orphans []*entry
	for _, hp := range l.hostPools {
		hp.entries(func(e *entry) {
			if e.lease.to != nil && e.lease.to.Equal(from) {
				orphans = append(orphans, e)
			}
		})
	}
	for _, e := range orphans {
		c := pool.Broken
		if e.b.Resting() {
			c = pool.Clean
		}
		l.checkin(&Checkin{Backend: e.b, Condition: c})
	}
}

// cancel passes a cancel on to the backend's actor; if that is gone there is nothing left to cancel.
func (l *Lane) cancel(m *CancelLease) {
	if e := l.entryOf(m.Backend); e != nil && e.pid != nil {
		l.root.Send(e.pid, m.Cancel)
		return
	}
	m.Cancel.Done()
}

func (l *Lane) cancelEnded(m *backend.CancelEnded) {
	l.stats.Cancels[m.Outcome]++
	if m.Outcome != cancellease.Dropped {
		l.stats.CancelLease.Observe(m.Took)
	}
}
