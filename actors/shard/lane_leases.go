package shard

import (
	"errors"
	"time"

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
	l.root.Send(co.From, &Refused{Req: co.Req, Err: l.whyLate(waited)})
}

// whyLate is why somebody waited in vain.
func (l *Lane) whyLate(waited time.Duration) *pgerr.Error {
	switch {
	case l.machine.Paused():
		return pgerr.Paused(l.key.Database, waited)
	case l.machine.Failing() && l.refusal != nil && l.refusal.Code == pgerr.CannotConnectNow:
		return l.refusal
	case l.machine.Failing() && l.refusal != nil:
		return pgerr.CannotConnect(l.refusal)
	case l.machine.Size() > 0 && l.machine.Size() == l.machine.Count(pool.Dialling):
		return pgerr.CannotConnect(errSlowLogin)
	}
	return pgerr.QueryWaitTimeout(waited)
}

var errSlowLogin = errors.New("the server has not answered the login yet")

// expireLogins refuses clients that could not be welcomed in time.
func (l *Lane) expireLogins() {
	now, still := l.loop.Now(), l.pending[:0]
	for _, a := range l.pending {
		if a.Deadline.IsZero() || now.Before(a.Deadline) {
			still = append(still, a)
			continue
		}
		l.stats.Refused++
		l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: l.whyLate(now.Sub(a.Since)).Fatal()})
	}
	clear(l.pending[len(still):])
	l.pending = still
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
