package lane

import (
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
)

// sync acts on the shard's present view. Everything the lane does begins with it, so that nothing is granted or opened
// by a view that is no longer the published one. anew: the shard is another one than that of the view before.
//
// Whoever has to wait elsewhere is taken out of the queues first: what happens to the host pools after that neither opens
// connections for them where they do not belong, nor serves them out of turn.
func (l *Lane) sync(anew bool) {
	old, v := l.view, l.spec.Shard.View()
	l.view = v
	if !anew && v.ActsLike(old) {
		return
	}
	before := l.write
	l.write = l.hostPool(v.Elected)
	moved := append(l.misplaced(), l.supersede(old)...)
	if before != l.write {
		l.reportedAt = time.Time{}
		if before != l.unplaced {
			before.step(pool.Configure{Config: l.limits(before.host)})
			before.step(pool.Abort{})
		}
		if l.write != l.unplaced {
			l.write.primary = true
			l.write.step(pool.Kick{})
			l.write.step(pool.Configure{Config: l.limits(l.write.host)})
		}
	}
	l.rejoin(moved)
	l.hostPool(v.WarmHost())
	l.aimLogins()
	l.probeCandidates()
	if l.refuses(ReadWrite) {
		l.refuseWrites()
	}
}

// misplaced takes every waiter out of its queue whose host pool cannot serve it under the view, also those whose backend is
// being fenced there.
func (l *Lane) misplaced() (moved []*Checkout) {
	l.all(func(hp *hostPool) {
		if hp.machine.Waiting() > 0 {
			for _, w := range hp.machine.Withdraw(func(w *pool.Waiter) bool { return !l.serves(hp, w.Owner.(*Checkout).Target) }) {
				moved = append(moved, w.Owner.(*Checkout))
			}
		}
		if hp != l.write {
			moved = append(moved, hp.unfence(func(*entry) bool { return true })...)
		}
	})
	return moved
}

// unfence takes the checkouts of those backends back that are being fenced for one. The fences go on.
func (hp *hostPool) unfence(which func(*entry) bool) (taken []*Checkout) {
	if hp.lane.fencing == 0 {
		return nil
	}
	hp.entries(func(m *entry) {
		if m.fence != nil && m.fence.co != nil && which(m) {
			taken = append(taken, m.fence.co)
			m.fence.co = nil
		}
	})
	return taken
}

// supersede ends what may write on servers that are not the primary any more: idle backends now, leased ones by their
// holders, who know what is under way; leases that only read are left alone. That is every backend to a host that was the
// primary, when another one is elected or the shard gives it up (Failover); else those whose proof is no good under the view.
// While nobody is elected connections stay. It returns who waited for a fence on one of them.
func (l *Lane) supersede(old *shard.View) (waiters []*Checkout) {
	v := l.view
	if v.Static {
		return nil // no roles any more
	}
	givenUp := v.State == health.Failover && old.State != health.Failover && v.Elected == old.Elected
	l.each(func(hp *hostPool) {
		all := hp.primary && (hp != l.write && (v.Elected != "" || v.State == health.Failover) || hp == l.write && givenUp)
		if hp.primary && v.ReadOnly == hp.host && old.ReadOnly != hp.host {
			hp.endSessions(v.Why)
		}
		var outdated []*pool.Slot
		void := func(m *entry) bool { return all || outdates(v, m.known()) }
		hp.entries(func(m *entry) {
			if !void(m) {
				return
			}
			if !all {
				outdated = append(outdated, m.b.Slot)
			}
			m.supersede(v.Why)
		})
		waiters = append(waiters, hp.unfence(void)...)
		if all {
			hp.primary = hp == l.write
			hp.step(pool.Reconnect{})
		}
		for _, s := range outdated {
			hp.step(pool.Retire{Slot: s})
		}
	})
	return waiters
}

// endSessions has sessions that hold a backend of a host which is read-only now end with their transactions; in the other
// modes a lease does that anyway. Connections that are idle are opened anew when they are wanted.
func (hp *hostPool) endSessions(why string) {
	l := hp.lane
	hp.step(pool.Reconnect{})
	hp.entries(func(m *entry) {
		if l.spec.Session && m.to != nil && m.write && !m.superseded {
			l.root.Send(m.to, &Superseded{Backend: m.b, Why: why, AtBoundary: true})
		}
	})
}

// supersede tells who has a lease that may write that its server is not the primary any more.
func (m *entry) supersede(why string) {
	if m.to != nil && m.write && !m.superseded {
		m.superseded = true
		m.hp.lane.root.Send(m.to, &Superseded{Backend: m.b, Why: why})
	}
}

func (hp *hostPool) supersedeLeases(why string) {
	hp.entries(func(m *entry) { m.supersede(why) })
}

// rejoin puts checkouts that are in no queue in those they belong to, each at its turn: who came first chooses first.
func (l *Lane) rejoin(all []*Checkout) {
	slices.SortFunc(all, func(a, b *Checkout) int { return int(int64(a.Turn - b.Turn)) })
	for _, co := range all {
		l.requeue(co)
	}
}

// requeue puts a checkout that is not in a queue in the one it belongs to, at its turn.
func (l *Lane) requeue(co *Checkout) {
	hp := l.aim(co.Target)
	co.at, co.unplaced = hp, co.unplaced || hp == l.unplaced
	if l.refuses(co.Target) {
		l.refuse(hp, &co.Waiter)
		return
	}
	hp.step(pool.Rejoin{Waiter: &co.Waiter})
}

// refuses reports whether work for the primary is not to wait for it: failover_policy = refuse.
func (l *Lane) refuses(t Target) bool {
	v := l.view
	return v.Refuse && t == ReadWrite && !v.Static && (v.Elected == "" || v.State == health.Failover)
}

// refuseWrites answers all writes that wait, and the logins that do.
func (l *Lane) refuseWrites() {
	for _, w := range l.write.machine.Withdraw(func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite }) {
		l.refuse(l.write, w)
	}
	l.refuseLogins(func(a *login) bool { return a.Target == ReadWrite }, l.whyLate(l.write, ReadWrite, 0))
}

// lookEvery is how often a lane in which a write waits logs in to a candidate.
const lookEvery = time.Second

// probeCandidates has a backend opened to each host that may be the primary although its monitor cannot tell, as long as a write waits
// for one: what the server says of itself at login is what the shard waits for. One that said it some time ago is replaced.
func (l *Lane) probeCandidates() {
	for _, host := range l.view.Candidates {
		hp, now := l.hostPool(host), l.loop.Now()
		var old []*pool.Slot
		hp.entries(func(m *entry) {
			if p := m.known(); m.b.Slot.State() == pool.Idle && p != nil && now.Sub(p.Asked) >= lookEvery {
				old = append(old, m.b.Slot)
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

// primaryWanted reports whether anybody waits for a primary to be known.
func (l *Lane) primaryWanted() bool {
	if l.write != l.unplaced {
		return false
	}
	return slices.ContainsFunc(l.pending, func(a *login) bool { return a.Target == ReadWrite }) ||
		slices.ContainsFunc(l.unplaced.machine.Waiters(), func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite })
}

// reportWaiting tells the shard that a write waits for a primary, or for a connection to it, so that it looks more often.
func (l *Lane) reportWaiting() {
	if l.view.Static || l.paused {
		return
	}
	// Called every busyTick, or a little earlier or later.
	if now := l.loop.Now(); now.Sub(l.reportedAt) >= busyTick/2 {
		if since := l.oldestWrite(); !since.IsZero() {
			l.reportedAt = now
			l.report(&shard.Waiting{Since: since})
		}
	}
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
	hp.entries(func(m *entry) {
		if m.fence != nil && m.fence.co != nil {
			earlier(m.fence.co.Enqueued)
		}
	})
	if hp.machine.Waiting() > 0 {
		for _, w := range hp.machine.Waiters() {
			if w.Owner.(*Checkout).Target == ReadWrite {
				earlier(w.Enqueued)
			}
		}
	}
	for _, a := range l.pending {
		if a.Target == ReadWrite {
			earlier(a.Since)
		}
	}
	return since
}

// dropHostPools forgets hosts that are not wanted and have nothing left.
func (l *Lane) dropHostPools() {
	keep := l.hostPools[:0]
	for _, hp := range l.hostPools {
		if hp == l.write || hp.warm > 0 || hp.machine.Size() > 0 || hp.machine.Waiting() > 0 || slices.Contains(l.view.Standbys, hp.host) {
			keep = append(keep, hp)
		} else {
			hp.drop()
		}
	}
	clear(l.hostPools[len(keep):])
	l.hostPools = keep
}

// recount tells a shard that was restarted which connections there are.
func (l *Lane) recount(to *actor.PID) {
	if to == nil {
		return
	}
	l.each(func(hp *hostPool) {
		hp.entries(func(m *entry) {
			if m.connected && m.shard == l.spec.Shard {
				l.root.Send(to, &shard.Connected{Host: hp.host, Backend: m.b.ID, At: l.loop.Now()})
			}
		})
	})
}
