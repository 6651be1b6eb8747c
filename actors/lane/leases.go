package lane

import (
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
)

// recordAsked has a checkout in the list of those that are owed an answer. Queues and fences do not do for that: on its way
// between them it is in none.
func (l *Lane) recordAsked(co *Checkout) {
	co.place = len(l.asked)
	l.asked = append(l.asked, co)
}

// forgetAsked takes a checkout that is over off the list. One that the lane before this one refused is not on it.
func (l *Lane) forgetAsked(co *Checkout) {
	i, last := co.place, len(l.asked)-1
	if i > last || l.asked[i] != co {
		return
	}
	l.asked[i] = l.asked[last]
	l.asked[i].place = i
	l.asked[last] = nil
	l.asked = l.asked[:last]
}

func (l *Lane) checkout(co *Checkout) {
	co.Owner = co
	l.turn++
	co.Turn = l.turn
	hp := l.aim(co.Target)
	co.at, co.unplaced = hp, hp == l.unplaced
	if l.refuses(co.Target) {
		l.refuse(hp, &co.Waiter)
		return
	}
	hp.run(hp.machine.Checkout(l.loop.Now(), &co.Waiter))
	if co.unplaced {
		l.reportWaiting()
		l.probeCandidates()
	}
}

func (l *Lane) abandon(co *Checkout) {
	l.forgetAsked(co)
	if co.Queued() {
		co.at.step(pool.Abandon{Waiter: &co.Waiter})
		return
	}
	l.each(func(hp *hostPool) { hp.unfence(func(m *entry) bool { return m.fence.co == co }) })
}

// grant looks at a backend that is somebody's turn to get: it must be alive, and for a write proven to be the primary.
func (l *Lane) grant(e pool.Effect) {
	m := e.Slot.Owner.(*entry)
	co := e.Waiter.Owner.(*Checkout)
	if !m.b.Usable() {
		l.closeUnused(m, co)
		return
	}
	if co.Target == ReadWrite && !l.view.Static {
		switch l.weigh(m, false) {
		case worthNothing:
			l.unfit(m, co, "it is on a timeline below the shard's, or of another cluster")
			return
		case worthFence:
			l.ask(m, co)
			return
		}
	}
	l.give(m, co)
}

// give leases the backend.
func (l *Lane) give(m *entry, co *Checkout) {
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Assignments++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	if co.unplaced {
		l.stats.PrimaryWait.Observe(waited)
	}
	m.granted.Req, m.granted.Epoch = co.Req, l.view.Epoch
	m.to, m.write, m.superseded = co.From, co.Target == ReadWrite, false
	if m.write {
		m.hp.unfit = ""
	}
	l.forgetAsked(co)
	l.root.Send(co.From, &m.granted)
}

// refuse tells a waiter why its time ran out: a pool that is busy, or a server that cannot be reached.
func (l *Lane) refuse(hp *hostPool, w *pool.Waiter) {
	co := w.Owner.(*Checkout)
	l.refuseWith(co, l.whyLate(hp, co.Target, l.loop.Now().Sub(co.Enqueued)))
}

func (l *Lane) refuseWith(co *Checkout, e *pgerr.Error) {
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Refused++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	l.forgetAsked(co)
	l.root.Send(co.From, &Refused{Req: co.Req, Err: e})
}

// whyLate is why somebody waited in vain.
func (l *Lane) whyLate(hp *hostPool, t Target, waited time.Duration) *pgerr.Error {
	v := l.view
	switch m := hp.machine; {
	case l.paused:
		return pgerr.Paused(l.key.Database, waited)
	case hp == l.unplaced && t == Standby:
		return pgerr.NoStandby(l.spec.Shard.Name, v.NoReads)
	case hp == l.unplaced, l.refuses(t):
		return pgerr.NoPrimary(l.spec.Shard.Name, l.loop.Now().Sub(v.Since), v.State.String(), v.Explanation, v.Hint)
	case m.Failing() && hp.refusal != nil && hp.refusal.Code == pgerr.CannotConnectNow:
		return hp.refusal
	case m.Failing() && hp.refusal != nil:
		return pgerr.CannotConnect(hp.refusal)
	case m.Size() > 0 && m.Size() == m.Count(pool.Dialling):
		return pgerr.CannotConnect(errSlowLogin)
	case hp.allFencing():
		return pgerr.FenceUnanswered(waited)
	case t == ReadWrite && hp.unfit != "" && hp.busy() == 0:
		return pgerr.CannotConnect(errors.New(hp.host + ": " + hp.unfit))
	}
	return pgerr.QueryWaitTimeout(waited)
}

var errSlowLogin = errors.New("the server has not answered the login yet")

// allFencing reports whether the host pool has backends, and all of them are being fenced for nobody.
func (hp *hostPool) allFencing() bool {
	n, all := 0, true
	hp.entries(func(m *entry) {
		n++
		all = all && m.fence != nil
	})
	return n > 0 && all
}

func (l *Lane) checkin(m *Checkin) {
	c := m.Condition
	switch {
	case m.Backend.Spoiled():
		c = pool.Broken
	case c == pool.Clean && m.Backend.Cancelling() > 0:
		c = pool.Dirty // it waits for the leases, then it is clean
	}
	e := l.entryOf(m.Backend)
	if e == nil {
		return // lost meanwhile
	}
	e.to, e.patient, e.used = nil, m.Patient, true
	e.hp.run(e.hp.machine.Checkin(l.loop.Now(), m.Backend.Slot, c))
}

// spoiled takes back a backend that was gone when its holder came to it: the checkout keeps its turn.
func (l *Lane) spoiled(m *Spoiled) {
	if e := l.entryOf(m.Backend); e != nil {
		e.to = nil
		e.hp.run(e.hp.machine.Checkin(l.loop.Now(), m.Backend.Slot, pool.Broken))
	}
	l.requeue(m.Checkout)
}

// reclaim takes back what was granted to a client that is gone: its Granted met nobody.
func (l *Lane) reclaim(from *actor.PID) {
	var lost []*entry
	l.each(func(hp *hostPool) {
		hp.entries(func(m *entry) {
			if m.to != nil && m.to.Equal(from) {
				lost = append(lost, m)
			}
		})
	})
	for _, m := range lost {
		c := pool.Broken
		if m.b.Resting() {
			c = pool.Clean
		}
		l.checkin(&Checkin{Backend: m.b, Condition: c})
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
