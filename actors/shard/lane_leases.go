package shard

import (
	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/shard/pool"
	"fencepost/pgerr"
)

func (l *Lane) grant(e pool.Effect) {
	m := e.Slot.Owner.(*member)
	if !m.b.Usable() {
		l.step(pool.Spoiled{Slot: e.Slot, Waiter: e.Waiter})
		return
	}
	co := e.Waiter.Owner.(*Checkout)
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Assignments++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	m.granted.Req, m.granted.Epoch = co.Req, l.spec.Shard.View().Epoch
	m.to = co.From
	l.root.Send(co.From, &m.granted)
}

// refuse tells a waiter why its time ran out: a pool that is busy, or a server that cannot be reached.
func (l *Lane) refuse(w *pool.Waiter) {
	co := w.Owner.(*Checkout)
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Refused++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	err := pgerr.QueryWaitTimeout(waited)
	switch {
	case l.machine.Paused():
		err = pgerr.Paused(l.key.Database, waited)
	case l.machine.Failing() && l.refusal != nil:
		err = pgerr.CannotConnect(l.refusal)
		if l.refusal.Code == pgerr.CannotConnectNow {
			err = l.refusal
		}
	}
	l.root.Send(co.From, &Refused{Req: co.Req, Err: err})
}

func (l *Lane) checkin(m *Checkin) {
	c := m.Condition
	switch {
	case m.Backend.Spoiled():
		c = pool.Broken
	case c == pool.Clean && m.Backend.Cancelling() > 0:
		c = pool.Dirty // it waits for the leases, then it is clean
	}
	if mem, ok := m.Backend.Slot.Owner.(*member); ok {
		mem.to, mem.patient = nil, m.Patient
	}
	l.run(l.machine.Checkin(l.loop.Now(), m.Backend.Slot, c))
}

// reclaim takes back what was granted to a client that is gone: its Granted met nobody.
func (l *Lane) reclaim(from *actor.PID) {
	var lost []*pool.Slot
	l.machine.Slots(func(s *pool.Slot) {
		if m, ok := s.Owner.(*member); ok && m.to != nil && m.to.Equal(from) {
			lost = append(lost, s)
		}
	})
	for _, s := range lost {
		m := s.Owner.(*member)
		c := pool.Broken
		if m.b.Resting() {
			c = pool.Clean
		}
		l.checkin(&Checkin{Backend: m.b, Condition: c})
	}
}

// cancel passes a cancel on to the backend's actor; if that is gone there is nothing left to cancel.
func (l *Lane) cancel(m *CancelLease) {
	if mem, ok := m.Backend.Slot.Owner.(*member); ok && mem.pid != nil {
		l.root.Send(mem.pid, m.Cancel)
		return
	}
	m.Cancel.Done()
}
