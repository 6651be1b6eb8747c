package lane

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"fencepost/actors/lane/placement"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/pgerr"
)

// waiters are the checkouts that have no answer yet, wherever they are.
type waiters struct {
	asked []*Checkout
	turn  uint64 // of the last checkout
	next  int    // round robin over standbys
}

// record has a checkout in the list of those that get an answer if the lane ends. Queues and fences do not do for that: on its
// way between them it is in none.
func (w *waiters) record(co *Checkout) {
	co.place = len(w.asked)
	w.asked = append(w.asked, co)
}

// answered takes a checkout that is over off the list. One that the lane before this one refused is not on it.
func (w *waiters) answered(co *Checkout) {
	i, last := co.place, len(w.asked)-1
	if i > last || w.asked[i] != co {
		return
	}
	w.asked[i] = w.asked[last]
	w.asked[i].place = i
	w.asked[last] = nil
	w.asked = w.asked[:last]
}

// checkout places a new checkout.
func (l *Lane) checkout(co *Checkout) {
	co.Owner = co
	l.waiters.turn++
	co.Turn = l.waiters.turn
	hp := l.aim(co.Target)
	co.at, co.unplaced = hp, hp == l.unplaced
	if l.place.Refuses(co.Target) {
		l.refuse(hp, co)
		return
	}
	hp.run(hp.machine.Checkout(l.loop.Now(), &co.Waiter))
	if co.unplaced {
		l.reportWaiting()
		l.probeCandidates()
	}
}

// aim is the host pool a checkout waits in: where its target and the view allow it, at a standby by the balance.
func (l *Lane) aim(t Target) *hostPool {
	p := l.place.Place(t)
	switch {
	case p.Unplaced:
		return l.unplaced
	case p.Standbys == 0:
		return l.write
	}
	host := func(i int) *hostPool {
		if i < p.Standbys {
			return l.hostPool(l.place.Standbys[i])
		}
		return l.write
	}
	n := p.Standbys
	if p.Primary {
		n++ // as the last of them
	}
	switch l.view.Balance {
	case shard.RoundRobin:
		l.waiters.next++
		return host(l.waiters.next % n)
	case shard.Random:
		return host(rand.IntN(n))
	}
	best := host(0)
	for i := 1; i < n; i++ {
		if hp := host(i); hp.load() < best.load() {
			best = hp
		}
	}
	return best
}

// requeue puts a checkout that is in no queue in the one it belongs to, at its turn.
func (l *Lane) requeue(co *Checkout) {
	hp := l.aim(co.Target)
	co.at, co.unplaced = hp, co.unplaced || hp == l.unplaced
	if l.place.Refuses(co.Target) {
		l.refuse(hp, co)
		return
	}
	hp.step(pool.Rejoin{Waiter: &co.Waiter})
}

// abandon forgets a checkout. Without an answer: its frontend does not wait for one.
func (l *Lane) abandon(co *Checkout) {
	l.waiters.answered(co)
	if co.Queued() {
		co.at.step(pool.Abandon{Waiter: &co.Waiter})
		return
	}
	for _, hp := range l.hostPools {
		hp.unfence(func(e *entry) bool { return e.fence.co == co })
	}
}

// placeView is what the placing needs of a view.
func placeView(v *shard.View) placement.View {
	return placement.View{Elected: v.Elected, Standbys: v.Standbys, Promoted: v.Promoted, Silent: v.Silent, Late: v.Late, Failover: v.State == health.Failover, ReadOnly: v.ReadOnly, Refuse: v.Refuse, Grants: grantView(v)}
}

// sync acts on the shard's present view. Everything the lane does begins with it, so that nothing is granted or opened
// by a view that is no longer the published one. anew: the shard is another one than that of the view before.
func (l *Lane) sync(anew bool) {
	v := l.spec.Shard.View()
	old := l.view
	l.view = v // also if lanes do the same under it: proofs are weighed against the published one (grant.Doubt)
	if !anew && v.ActsLike(old) {
		return
	}
	oldPlace := l.place
	l.place = placeView(v)
	// The pool of the elected host is made before anything moves: what follows may not find the host without one.
	l.write = l.hostPool(v.Elected)
	if old.Elected != v.Elected {
		l.reportedAt = time.Time{} // a write that waits is news to the shard again
	}
	for _, e := range placement.Move(&oldPlace, &l.place, l.spec.Session, l.snapshot()) {
		l.move(e)
	}
	l.hostPool(v.WarmHost())
	l.logins.aim()
	l.probeCandidates()
	if l.place.Refuses(ReadWrite) {
		l.refuseWrites()
	}
}

// snapshot is what the lane holds, for a move.
func (l *Lane) snapshot() (pools []*placement.Pool) {
	l.all(func(hp *hostPool) {
		p := &placement.Pool{Owner: hp, Host: hp.host, Writers: hp.writers}
		for _, w := range hp.machine.Waiters() {
			co := w.Owner.(*Checkout)
			p.Waiting = append(p.Waiting, placement.Waiter{Owner: co, Target: co.Target, Turn: co.Turn})
		}
		hp.entries(func(e *entry) {
			c := placement.Connection{Owner: e, Known: e.known(), Writes: e.writing(), Standby: e.lease.to != nil && e.lease.kind == standbyReads}
			if e.fence != nil && e.fence.co != nil {
				co := e.fence.co
				c.FencedFor = &placement.Waiter{Owner: co, Target: co.Target, Turn: co.Turn}
			}
			p.Connections = append(p.Connections, c)
		})
		pools = append(pools, p)
	})
	return pools
}

// move executes one effect of a move.
func (l *Lane) move(e placement.Effect) {
	var hp *hostPool
	if e.Pool != nil {
		hp = e.Pool.Owner.(*hostPool)
	}
	switch e.Kind {
	case placement.Withdraw:
		co := e.Waiter.Owner.(*Checkout)
		hp.step(pool.Abandon{Waiter: &co.Waiter})
	case placement.Unfence:
		e.Connection.Owner.(*entry).fence.co = nil
	case placement.EndSessions:
		if e.Connection == nil {
			hp.step(pool.Reconnect{})
			return
		}
		x := e.Connection.Owner.(*entry)
		l.root.Send(x.lease.to, &Superseded{Backend: x.b, Why: l.view.Why, AtBoundary: true})
	case placement.EndReads:
		x := e.Connection.Owner.(*entry)
		x.lease.kind = superseded
		l.root.Send(x.lease.to, &Superseded{Backend: x.b, Why: "its server, " + hp.host + ", is out of recovery", AtBoundary: true, Promoted: true})
	case placement.Cut:
		hp.cut()
	case placement.Supersede:
		x, why := e.Connection.Owner.(*entry), l.view.Why
		if l.view.State == health.Failover && x.b.Host() == l.view.Elected {
			why = l.view.StateWhy // it is given up; the view's is why it was elected
		}
		x.supersede(why)
	case placement.Replace:
		hp.writers = hp == l.write
		hp.step(pool.Reconnect{})
	case placement.Retire:
		hp.step(pool.Retire{Slot: e.Connection.Owner.(*entry).slot})
	case placement.Demote:
		hp.step(pool.Configure{Config: l.limits(hp.host)})
		hp.step(pool.Abort{})
	case placement.Promote:
		hp.writers = true
		hp.step(pool.Kick{})
		hp.step(pool.Configure{Config: l.limits(hp.host)})
	case placement.Requeue:
		l.requeue(e.Waiter.Owner.(*Checkout))
	}
}

// refuse answers a checkout with why it waited in vain: a pool that is busy, a server that cannot be reached, no primary.
func (l *Lane) refuse(hp *hostPool, co *Checkout) {
	l.refuseWith(co, l.whyLate(hp, co.Target, l.loop.Now().Sub(co.Enqueued)))
}

func (l *Lane) refuseWith(co *Checkout, e *pgerr.Error) {
	waited := l.loop.Now().Sub(co.Enqueued)
	l.stats.Refused++
	l.stats.WaitTime += waited
	l.stats.Wait.Observe(waited)
	l.waiters.answered(co)
	l.root.Send(co.From, &Refused{Req: co.Req, Err: e})
}

// refuseWrites answers all writes that wait, and the logins that do.
func (l *Lane) refuseWrites() {
	for _, w := range l.write.machine.Withdraw(func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite }) {
		l.refuse(l.write, w.Owner.(*Checkout))
	}
	l.logins.refuse(func(a *login) bool { return a.Target == ReadWrite }, l.whyLate(l.write, ReadWrite, 0))
}

// whyLate is why a checkout or login waited in vain in a host pool.
func (l *Lane) whyLate(hp *hostPool, t Target, waited time.Duration) *pgerr.Error {
	v := l.view
	switch m := hp.machine; {
	case l.paused:
		return pgerr.Paused(l.key.Database, waited)
	case hp == l.unplaced && t == Standby:
		return pgerr.NoStandby(l.spec.Shard.Name, v.NoReads)
	case hp == l.unplaced, l.place.Refuses(t):
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

// probeEvery is how often a lane in which a write waits logs in to a candidate.
const probeEvery = time.Second

// probeCandidates has a backend opened to each host that may be the primary although its monitor cannot tell, as long as a
// write waits for one: what the server says of itself at login is what the shard waits for. One that said it some time ago is
// replaced.
func (l *Lane) probeCandidates() {
	for _, host := range l.view.Candidates {
		hp, now := l.hostPool(host), l.loop.Now()
		var old []*pool.Slot
		hp.entries(func(e *entry) {
			if p := e.known(); e.slot.State() == pool.Idle && p != nil && now.Sub(p.Asked) >= probeEvery {
				old = append(old, e.slot)
			}
		})
		if hp.setWarm(); hp.warm == 0 {
			continue
		}
		for _, s := range old {
			hp.step(pool.Retire{Slot: s})
		}
	}
}

// primaryWanted reports whether a checkout or login waits for a primary to be known.
func (l *Lane) primaryWanted() bool {
	if l.write != l.unplaced {
		return false
	}
	return slices.ContainsFunc(l.logins.pending, func(a *login) bool { return a.Target == ReadWrite }) ||
		slices.ContainsFunc(l.unplaced.machine.Waiters(), func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite })
}

// oldestWrite is since when the first write waits for a primary, or for the first connection to it that can take writes;
// zero if none does.
func (l *Lane) oldestWrite() (since time.Time) {
	earlier := func(t time.Time) {
		if since.IsZero() || t.Before(since) {
			since = t
		}
	}
	hp := l.write
	if hp.busy() > 0 {
		return time.Time{} // they can write
	}
	hp.entries(func(e *entry) {
		if e.fence != nil && e.fence.co != nil {
			earlier(e.fence.co.Enqueued)
		}
	})
	for _, w := range hp.machine.Waiters() {
		if w.Owner.(*Checkout).Target == ReadWrite {
			earlier(w.Enqueued)
		}
	}
	for _, a := range l.logins.pending {
		if a.Target == ReadWrite {
			earlier(a.Since)
		}
	}
	return since
}
