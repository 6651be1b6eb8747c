package lane

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/pgerr"
	"fencepost/role"
)

// fence is a question to a backend that is about to be leased for writes: can you take them now? The backend is leased in
// the pool's books meanwhile; its waiter is in no queue.
type fence struct {
	id       uint64
	epoch    uint64
	began    time.Time // when the checkout began to wait for this backend, also if it is asked again
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

// claim is what there is to say for a backend.
type claim struct {
	elected  bool           // its host is
	known    *backend.Proof // the last one there was
	proof    *backend.Proof // … if it is not void
	shadowed bool
	asked    bool // the proof was given just now, for the very grant that it is weighed for
}

func (l *Lane) weigh(m *entry, asked bool) worth {
	return l.value(claim{elected: m.hp == l.write && m.shard == l.spec.Shard, known: m.known(), proof: m.b.Proof(), shadowed: m.b.Shadowed(), asked: asked})
}

// value applies the rule for write grants (docs/failover.md): host elected, timeline not below the floor, proof, and while in doubt a
// proof asked for after the last rise.
func (l *Lane) value(c claim) worth {
	v, p := l.view, c.proof
	if v.Elected != "" && l.spec.Shard.Current().Elected == "" {
		return worthFence // it waits for the primary: what was known before this process stood still is not to be granted by
	}
	switch {
	case !c.elected || outdates(v, c.known):
		return worthNothing
	case l.spec.Fence == FenceOff && (p == nil || p.NoTimelines || p.Timeline == 0 || p.Timeline >= v.Floor):
		return worthGrant
	case p == nil:
		return worthFence
	case p.InRecovery || p.ReadOnly:
		if c.asked {
			return worthNothing
		}
		return worthFence
	}
	since, doubt := l.spec.Shard.InDoubt()
	switch {
	case doubt && !p.Asked.After(since):
		return worthFence
	case l.spec.Shard.View() != v: // doubt may be over because of what the lane does not know yet
		return worthFence
	case !c.asked && (l.spec.Fence == FenceAlways || v.NoTimelines || c.shadowed):
		return worthFence
	}
	return worthGrant
}

// outdates reports whether what a server said of itself rules out that it may write under the view, now and later: it is
// on a timeline below the floor, or of another cluster. One in recovery may have been promoted since.
func outdates(v *shard.View, p *backend.Proof) bool {
	if p == nil {
		return false
	}
	return !p.NoTimelines && !p.InRecovery && p.Timeline < v.Floor || v.SystemID != 0 && p.SystemID != 0 && p.SystemID != v.SystemID
}

// ask fences a backend for the checkout that is to get it.
func (l *Lane) ask(m *entry, co *Checkout) {
	now := l.loop.Now()
	f := &fence{began: now, deadline: co.Deadline, co: co}
	if co.Deadline.IsZero() {
		f.deadline = now.Add(fenceLimit)
	}
	l.send(m, f)
}

func (l *Lane) send(m *entry, f *fence) {
	l.fenceID++
	f.id, f.epoch = l.fenceID, l.view.Epoch
	m.fence = f
	l.fencing++
	l.root.Send(m.pid, &backend.Fence{ID: f.id})
}

// fenced takes a fence's answer. A no closes the backend and tells the shard, which demotes the host; the waiter keeps its
// turn and deadline.
func (l *Lane) fenced(e *backend.Fenced) {
	m := l.entryOf(e.Backend)
	if m == nil || m.fence == nil || m.fence.id != e.ID {
		return
	}
	f := l.endFence(m)
	if e.Err != nil {
		l.stats.Fences[FenceFailed]++
		l.deps.Log.Warn().Err(e.Err).Str("pool", l.name()).Uint64("backend", e.Backend.ID).Str("host", m.hp.host).Msg("fence failed")
		l.unfit(m, f.co, "its fence failed: "+e.Err.Error())
		return
	}
	l.stats.FenceTime.Observe(e.Answered.Sub(e.Asked))
	if p := e.Backend.Proof(); p != nil && m.hp.news(m.shard, p) { // nil: what it said was made void behind the answer
		l.reportTo(m.shard, &shard.Observed{Observation: p.Observation(role.Host(m.hp.host), role.Fence, e.Asked, e.Answered)})
	}
	w := l.weigh(m, true)
	if w == worthGrant && f.epoch != l.view.Epoch {
		w = worthFence // what was true under another view is asked again
	}
	switch {
	case m.hp != l.write, m.shard != l.spec.Shard, f.co == nil && m.b.Slot.Retiring(): // no writes are wanted of it any more
		l.stats.Fences[verdict(e.Backend.Proof())]++
		l.putBack(m, f.co)
	case w == worthNothing:
		l.stats.Fences[FenceNo]++
		l.unfit(m, f.co, "its fence said no")
	case f.co == nil || l.paused:
		l.stats.Fences[FenceOK]++
		l.putBack(m, f.co)
	case w == worthFence:
		l.send(m, f)
	default:
		l.stats.Fences[FenceOK]++
		l.give(m, f.co)
	}
}

// newsEvery is how often the shard is told that a host is still what it was: with fence = always each checkout asks.
const newsEvery = 100 * time.Millisecond

// news reports whether the shard is to be told what a fence showed: everything but that the host still is what it was.
func (hp *hostPool) news(sh *shard.Shard, p *backend.Proof) bool {
	_, doubted := sh.InDoubt()
	same := !doubted && verdict(p) == FenceOK && p.Timeline == hp.reported.Timeline && p.SystemID == hp.reported.SystemID
	if same && p.Asked.Sub(hp.reported.Asked) < newsEvery {
		return false
	}
	hp.reported = *p
	return true
}

// verdict is what a server said of itself.
func verdict(p *backend.Proof) FenceVerdict {
	if p == nil || p.InRecovery || p.ReadOnly {
		return FenceNo
	}
	return FenceOK
}

// putBack takes a backend back that was fenced for nobody, or for somebody who has to wait on.
func (l *Lane) putBack(m *entry, co *Checkout) {
	m.hp.run(m.hp.machine.Checkin(l.loop.Now(), m.b.Slot, pool.Clean))
	if co != nil {
		l.requeue(co)
	}
}

func (l *Lane) endFence(m *entry) *fence {
	f := m.fence
	m.fence = nil
	l.fencing--
	return f
}

// unfit closes a backend that cannot take writes although it was opened for that; whoever waited for it goes on waiting.
// The next connects to the host wait as if this one had failed: else a server that lets everybody in and is never what it
// should be would be dialled without end.
func (l *Lane) unfit(m *entry, co *Checkout, why string) {
	m.hp.unfit = why
	m.hp.step(pool.Setback{})
	l.closeUnused(m, co)
}

// closeUnused closes a backend that was to be granted.
func (l *Lane) closeUnused(m *entry, co *Checkout) {
	m.hp.run(m.hp.machine.Checkin(l.loop.Now(), m.b.Slot, pool.Broken))
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
	var all []*entry
	l.each(func(hp *hostPool) {
		hp.entries(func(m *entry) {
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
			l.unfit(m, nil, "it did not answer its fence")
			if co != nil {
				l.refuseWith(co, pgerr.FenceUnanswered(now.Sub(f.began)))
			}
		case co != nil && now.Sub(f.began) >= fencePatience:
			f.co = nil
			l.requeue(co)
		}
	}
}
