package shard

import (
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/shard/health"
	"fencepost/actors/shard/pool"
)

// sync acts on the shard's present view. Everything the lane does begins with it, so that nothing is granted or opened
// by a view that is no longer the published one.
func (l *Lane) sync() {
	old, v := l.view, l.spec.Shard.View()
	l.view = v
	before := l.write
	if v.Elected == "" {
		l.write = l.home
	} else {
		l.write = l.branchOf(v.Elected)
	}
	gaveUp := v.State == health.Failover && old.State != health.Failover && v.Elected == old.Elected
	switch {
	case before != l.home && before != l.write:
		before.leave(v)
	case before != l.home && (gaveUp || v.Floor > old.Floor):
		before.supersede(v, gaveUp)
	}
	if before != l.write {
		if l.write != l.home {
			l.write.step(pool.Kick{})
			l.write.step(pool.Configure{Config: l.limits(l.write.host)})
		}
		l.toldAt = time.Time{}
	}
	l.aimAll()
	l.home.setWarm()
	l.each((*branch).setWarm)
	if v.Refuse {
		l.refuseHomeless()
	}
}

// leave turns the branch of a host that is not elected any more into one that serves reads at most. With another host
// elected the backends that may write are superseded; with none connections stay, and whoever waits, waits elsewhere.
func (br *branch) leave(v *View) {
	br.step(pool.Configure{Config: br.lane.limits(br.host)})
	br.step(pool.Abort{})
	if v.Elected != "" {
		br.supersede(v, true)
	}
}

// supersede ends what may write on a server that is not the primary any more: idle backends now, leased ones by their
// holders, who know what is under way. all: every backend; else those on a timeline below the floor.
func (br *branch) supersede(v *View, all bool) {
	l := br.lane
	old := func(m *member) bool {
		p := m.b.Proof()
		return all || p == nil || !p.NoTimelines && p.Timeline < v.Floor
	}
	if all {
		br.step(pool.Reconnect{})
	}
	var waiters []*Checkout
	br.members(func(m *member) {
		switch {
		case m.b == nil || !old(m):
		case m.fence != nil && m.fence.co != nil:
			waiters = append(waiters, m.fence.co)
			m.fence.co = nil
		case m.to != nil && m.write:
			l.root.Send(m.to, &Superseded{Backend: m.b, Why: v.Why})
		}
	})
	for _, co := range waiters {
		l.requeue(co)
	}
}

// aim is the branch a checkout waits in: by its target, the view, and who has least to do.
func (l *Lane) aim(t Target) *branch {
	v := l.view
	if t == ReadWrite || v.Static {
		return l.write
	}
	n := len(v.Standbys)
	if t == Any && v.Elected != "" {
		n++ // the primary takes its part, as the last of them
	}
	switch {
	case n == 0 && t == Standby:
		return l.home
	case n == 0:
		return l.write
	}
	host := func(i int) *branch {
		if i < len(v.Standbys) {
			return l.branchOf(v.Standbys[i])
		}
		return l.write
	}
	switch v.Balance {
	case RoundRobin:
		l.next++
		return host(l.next % n)
	case Random:
		return host(rand.IntN(n))
	}
	best := host(0)
	for i := 1; i < n; i++ {
		if br := host(i); br.load() < best.load() {
			best = br
		}
	}
	return best
}

// load is how busy a branch is: who waits counts before what is leased.
func (br *branch) load() int {
	return br.machine.Waiting()<<20 + br.machine.Count(pool.Leased)
}

// serves reports whether a checkout may stay in the queue it is in.
func (l *Lane) serves(br *branch, t Target) bool {
	v := l.view
	switch {
	case v.Static || t == ReadWrite:
		return br == l.write
	case br == l.home:
		return l.aim(t) == l.home
	case br == l.write && t != Standby && (t == Any || len(v.Standbys) == 0):
		return true
	}
	for _, h := range v.Standbys {
		if h == br.host {
			return true
		}
	}
	return false
}

// aimAll moves every waiter whose branch cannot serve it under the view; nobody loses their turn.
func (l *Lane) aimAll() {
	move := func(br *branch) []*pool.Waiter {
		if br.machine.Waiting() == 0 {
			return nil
		}
		return br.machine.Withdraw(func(w *pool.Waiter) bool { return !l.serves(br, w.Owner.(*Checkout).Target) })
	}
	moved := move(l.home)
	for _, br := range l.branches {
		moved = append(moved, move(br)...)
	}
	for _, w := range moved {
		l.requeue(w.Owner.(*Checkout))
	}
}

// requeue puts a checkout that is not in a queue in the one it belongs to, at its turn.
func (l *Lane) requeue(co *Checkout) {
	br := l.aim(co.Target)
	co.at, co.homeless = br, co.homeless || br == l.home
	br.step(pool.Rejoin{Waiter: &co.Waiter})
}

// refuseHomeless answers writes that have no primary at once: failover_policy = refuse.
func (l *Lane) refuseHomeless() {
	for _, w := range l.home.machine.Withdraw(func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite }) {
		l.refuse(l.home, w)
	}
}

// tellWaiting tells the shard that a write waits for a primary, or for a connection to it, so that it looks more often.
func (l *Lane) tellWaiting() {
	since := l.home.oldestWrite()
	if since.IsZero() && !l.view.Static && l.write.machine.Count(pool.Leased) == 0 {
		since = l.write.oldestWrite()
	}
	if now := l.loop.Now(); !since.IsZero() && now.Sub(l.toldAt) >= busyTick {
		l.toldAt = now
		l.tellShard(&Waiting{Since: since})
	}
}

func (br *branch) oldestWrite() time.Time {
	if br.machine.Waiting() == 0 {
		return time.Time{}
	}
	for _, w := range br.machine.Waiters() {
		if w.Owner.(*Checkout).Target == ReadWrite {
			return w.Enqueued
		}
	}
	return time.Time{}
}

// dropBranches forgets hosts that are not wanted and have nothing left.
func (l *Lane) dropBranches() {
	keep := l.branches[:0]
	for _, br := range l.branches {
		wanted := br == l.write || br.machine.Size() > 0 || br.machine.Waiting() > 0
		for _, h := range l.view.Standbys {
			wanted = wanted || h == br.host
		}
		if wanted {
			keep = append(keep, br)
		} else {
			br.drop()
		}
	}
	clear(l.branches[len(keep):])
	l.branches = keep
}

// recount tells a shard that was restarted which connections there are.
func (l *Lane) recount(to *actor.PID) {
	if to == nil {
		return
	}
	l.each(func(br *branch) {
		br.members(func(m *member) {
			if m.b != nil && m.b.Login() != nil {
				l.root.Send(to, &Connected{Host: br.host, At: l.loop.Now()})
			}
		})
	})
}
