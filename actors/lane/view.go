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
// Whoever has to wait elsewhere is taken out of the queues first: what happens to the branches after that neither opens
// connections for them where they do not belong, nor serves them out of turn.
func (l *Lane) sync(anew bool) {
	old, v := l.view, l.spec.Shard.View()
	l.view = v
	if !anew && v.ActsLike(old) {
		return
	}
	before := l.write
	l.write = l.branchOf(v.Elected)
	moved := append(l.misplaced(), l.supersede(old)...)
	if before != l.write {
		l.toldAt = time.Time{}
		if before != l.home {
			before.step(pool.Configure{Config: l.limits(before.host)})
			before.step(pool.Abort{})
		}
		if l.write != l.home {
			l.write.primary = true
			l.write.step(pool.Kick{})
			l.write.step(pool.Configure{Config: l.limits(l.write.host)})
		}
	}
	l.rejoin(moved)
	l.branchOf(v.WarmHost())
	l.aimLogins()
	l.look()
	if l.refuses(ReadWrite) {
		l.refuseWrites()
	}
}

// misplaced takes every waiter out of its queue whose branch cannot serve it under the view, also those whose backend is
// being fenced there.
func (l *Lane) misplaced() (moved []*Checkout) {
	l.all(func(br *branch) {
		if br.machine.Waiting() > 0 {
			for _, w := range br.machine.Withdraw(func(w *pool.Waiter) bool { return !l.serves(br, w.Owner.(*Checkout).Target) }) {
				moved = append(moved, w.Owner.(*Checkout))
			}
		}
		if br != l.write {
			moved = append(moved, br.unfence(func(*member) bool { return true })...)
		}
	})
	return moved
}

// unfence takes the checkouts of those backends back that are being fenced for one. The fences go on.
func (br *branch) unfence(which func(*member) bool) (taken []*Checkout) {
	if br.lane.fencing == 0 {
		return nil
	}
	br.members(func(m *member) {
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
	l.each(func(br *branch) {
		all := br.primary && (br != l.write && (v.Elected != "" || v.State == health.Failover) || br == l.write && givenUp)
		if br.primary && v.ReadOnly == br.host && old.ReadOnly != br.host {
			br.endSessions(v.Why)
		}
		var outdated []*pool.Slot
		void := func(m *member) bool { return all || outdates(v, m.known()) }
		br.members(func(m *member) {
			if !void(m) {
				return
			}
			if !all {
				outdated = append(outdated, m.b.Slot)
			}
			m.supersede(v.Why)
		})
		waiters = append(waiters, br.unfence(void)...)
		if all {
			br.primary = br == l.write
			br.step(pool.Reconnect{})
		}
		for _, s := range outdated {
			br.step(pool.Retire{Slot: s})
		}
	})
	return waiters
}

// endSessions has sessions that hold a backend of a host which is read-only now end with their transactions; in the other
// modes a lease does that anyway. Connections that are idle are opened anew when they are wanted.
func (br *branch) endSessions(why string) {
	l := br.lane
	br.step(pool.Reconnect{})
	br.members(func(m *member) {
		if l.spec.Session && m.to != nil && m.write && !m.superseded {
			l.root.Send(m.to, &Superseded{Backend: m.b, Why: why, AtBoundary: true})
		}
	})
}

// supersede tells who has a lease that may write that its server is not the primary any more.
func (m *member) supersede(why string) {
	if m.to != nil && m.write && !m.superseded {
		m.superseded = true
		m.br.lane.root.Send(m.to, &Superseded{Backend: m.b, Why: why})
	}
}

func (br *branch) supersedeLeases(why string) {
	br.members(func(m *member) { m.supersede(why) })
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
	br := l.aim(co.Target)
	co.at, co.homeless = br, co.homeless || br == l.home
	if l.refuses(co.Target) {
		l.refuse(br, &co.Waiter)
		return
	}
	br.step(pool.Rejoin{Waiter: &co.Waiter})
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

// look has a backend opened to each host that may be the primary although its monitor cannot tell, as long as a write waits
// for one: what the server says of itself at login is what the shard waits for. One that said it some time ago is replaced.
func (l *Lane) look() {
	for _, host := range l.view.Candidates {
		br, now := l.branchOf(host), l.loop.Now()
		var old []*pool.Slot
		br.members(func(m *member) {
			if p := m.known(); m.b.Slot.State() == pool.Idle && p != nil && now.Sub(p.Asked) >= lookEvery {
				old = append(old, m.b.Slot)
			}
		})
		if br.setWarm(); br.warm == 0 {
			continue
		}
		for _, s := range old {
			br.step(pool.Retire{Slot: s})
		}
	}
}

// wanted reports whether anybody waits for a primary to be known.
func (l *Lane) wanted() bool {
	if l.write != l.home {
		return false
	}
	return slices.ContainsFunc(l.pending, func(a *login) bool { return a.Target == ReadWrite }) ||
		slices.ContainsFunc(l.home.machine.Waiters(), func(w *pool.Waiter) bool { return w.Owner.(*Checkout).Target == ReadWrite })
}

// tellWaiting tells the shard that a write waits for a primary, or for a connection to it, so that it looks more often.
func (l *Lane) tellWaiting() {
	if l.view.Static || l.paused {
		return
	}
	// Called every busyTick, or a little earlier or later.
	if now := l.loop.Now(); now.Sub(l.toldAt) >= busyTick/2 {
		if since := l.oldestWrite(); !since.IsZero() {
			l.toldAt = now
			l.tellShard(&shard.Waiting{Since: since})
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
	br := l.write
	if br.busy() > 0 {
		return time.Time{} // they can write
	}
	br.members(func(m *member) {
		if m.fence != nil && m.fence.co != nil {
			earlier(m.fence.co.Enqueued)
		}
	})
	if br.machine.Waiting() > 0 {
		for _, w := range br.machine.Waiters() {
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

// dropBranches forgets hosts that are not wanted and have nothing left.
func (l *Lane) dropBranches() {
	keep := l.branches[:0]
	for _, br := range l.branches {
		if br == l.write || br.warm > 0 || br.machine.Size() > 0 || br.machine.Waiting() > 0 || slices.Contains(l.view.Standbys, br.host) {
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
			if m.connected && m.shard == l.spec.Shard {
				l.root.Send(to, &shard.Connected{Host: br.host, Backend: m.b.ID, At: l.loop.Now()})
			}
		})
	})
}
