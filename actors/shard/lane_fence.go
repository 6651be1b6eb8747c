package shard

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/shard/pool"
	"fencepost/pgerr"
	"fencepost/role"
)

// fence is a question to a backend that is about to be leased for writes: can you take them now? The backend is leased in
// the pool's books meanwhile; its waiter is in no queue.
type fence struct {
	id       uint64
	epoch    uint64
	began    time.Time
	deadline time.Time // of the checkout it was begun for; zero: none
	co       *Checkout // nil: the waiter has gone elsewhere, or has left
}

// fencePatience is how long a waiter stays with a backend that does not answer its fence before it may take another one,
// fenceLimit how long such a backend is kept where the checkout has no deadline.
const (
	fencePatience = time.Second
	fenceLimit    = 30 * time.Second
)

// worth is what a backend's proof is worth for a write under the present view.
type worth uint8

const (
	worthNothing worth = iota // it is not to be leased for writes: close it
	worthFence                // ask it
	worthGrant                // it can take writes
)

// weigh applies DESIGN's rule for write grants: host elected, timeline not below the floor, proof, and while in doubt a
// proof asked for after the last rise. asked: the proof was given just now for this very grant.
func (l *Lane) weigh(m *member, asked bool) worth {
	v, p := l.view, m.b.Proof()
	switch {
	case m.br != l.write:
		return worthNothing
	case l.spec.Fence == FenceOff && (p == nil || v.NoTimelines || p.Timeline == 0 || p.Timeline >= v.Floor):
		return worthGrant
	case p == nil:
		return worthFence
	case !p.NoTimelines && !p.InRecovery && p.Timeline < v.Floor, v.SystemID != 0 && p.SystemID != 0 && p.SystemID != v.SystemID:
		return worthNothing
	case p.InRecovery || p.ReadOnly:
		if asked {
			return worthNothing
		}
		return worthFence
	}
	if since, doubt := l.spec.Shard.InDoubt(); doubt && !p.Asked.After(since) {
		return worthFence
	}
	if !asked && (l.spec.Fence == FenceAlways || v.NoTimelines || m.b.Shadowed()) {
		return worthFence
	}
	return worthGrant
}

// ask fences a backend for the checkout that is to get it.
func (l *Lane) ask(m *member, co *Checkout) {
	l.fenceID++
	now := l.loop.Now()
	m.fence = &fence{id: l.fenceID, epoch: l.view.Epoch, began: now, deadline: co.Deadline, co: co}
	if co.Deadline.IsZero() {
		m.fence.deadline = now.Add(fenceLimit)
	}
	l.fencing++
	l.root.Send(m.pid, &backend.Fence{ID: l.fenceID})
}

// fenced takes a fence's answer. A no closes the backend and tells the shard, which demotes the host; the waiter keeps its
// turn and deadline.
func (l *Lane) fenced(e *backend.Fenced) {
	m := memberOf(e.Backend)
	if m == nil || m.fence == nil || m.fence.id != e.ID {
		return
	}
	f := l.endFence(m)
	if e.Err != nil {
		l.stats.Fences[FenceFailed]++
		l.deps.Log.Warn().Err(e.Err).Str("pool", l.name()).Uint64("backend", e.Backend.ID).Str("host", m.br.host).Msg("fence failed")
		l.unfit(m, f.co)
		return
	}
	l.stats.FenceTime.Observe(e.Answered.Sub(e.Asked))
	if p := e.Backend.Proof(); p != nil { // else what it said was made void behind the answer
		l.tellShard(&Observed{Observation: p.Observation(role.Host(m.br.host), role.Fence, e.Asked, e.Answered)})
	}
	w := l.weigh(m, true)
	if w == worthGrant && f.epoch != l.view.Epoch {
		w = worthFence // what was true under another view is asked again
	}
	switch {
	case w == worthNothing:
		l.stats.Fences[FenceNo]++
		l.unfit(m, f.co)
	case f.co == nil || m.b.Slot.State() != pool.Leased:
		l.stats.Fences[FenceOK]++
		m.br.run(m.br.machine.Checkin(l.loop.Now(), m.b.Slot, pool.Clean))
	case w == worthFence:
		l.ask(m, f.co)
	default:
		l.stats.Fences[FenceOK]++
		l.give(m, f.co)
	}
}

func (l *Lane) endFence(m *member) *fence {
	f := m.fence
	m.fence = nil
	l.fencing--
	return f
}

// unfit closes a backend that was to be granted; whoever waited for it goes on waiting.
func (l *Lane) unfit(m *member, co *Checkout) {
	m.br.run(m.br.machine.Checkin(l.loop.Now(), m.b.Slot, pool.Broken))
	if co != nil {
		l.requeue(co)
	}
}

// tickFences lets waiters go to other backends after a while, refuses them at their deadline, and closes backends that
// have not answered by then.
func (l *Lane) tickFences() {
	if l.fencing == 0 {
		return
	}
	now := l.loop.Now()
	var all []*member
	l.each(func(br *branch) {
		br.members(func(m *member) {
			if m.fence != nil {
				all = append(all, m)
			}
		})
	})
	for _, m := range all {
		f := m.fence
		if f == nil {
			continue // a step below has ended it
		}
		co := f.co
		switch {
		case !now.Before(f.deadline):
			l.endFence(m)
			l.stats.Fences[FenceSlow]++
			l.unfit(m, nil)
			if co != nil {
				l.refuseWith(co, pgerr.FenceUnanswered(now.Sub(f.began)))
			}
		case co != nil && now.Sub(f.began) >= fencePatience:
			f.co = nil
			l.requeue(co)
		}
	}
}

// leaveFence takes a checkout that is over back from the backend that is being fenced for it.
func (l *Lane) leaveFence(mine func(*Checkout) bool) {
	if l.fencing == 0 {
		return
	}
	l.each(func(br *branch) {
		br.members(func(m *member) {
			if m.fence != nil && m.fence.co != nil && mine(m.fence.co) {
				m.fence.co = nil
			}
		})
	})
}
