package lane

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/lane/grant"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/pgerr"
	"fencepost/role"
)

// fence is a question to a backend that is about to be leased for writes: can you take them now? The backend is leased in
// the pool's books meanwhile; its checkout is in no queue.
type fence struct {
	id       uint64
	epoch    uint64
	began    time.Time // when the checkout began to wait for this backend, also if it is asked again
	deadline time.Time // of the checkout it was begun for, or grant.Limit after began
	co       *Checkout // nil: it waits elsewhere, or has left
}

// grantView is what the rule for write grants needs of a view.
func grantView(v *shard.View) grant.View {
	return grant.View{Static: v.Static, Floor: v.Floor, SystemID: v.SystemID, NoTimelines: v.NoTimelines}
}

// weigh says what a backend is worth for a write now.
func (e *entry) weigh(a grant.Answer) (grant.Worth, grant.Reason) {
	l := e.hp.lane
	sh := l.spec.Shard
	var d grant.Doubt
	// Doubt first, then the view: doubt ends only after the view that settles it was published. Read the other way round, both
	// could change in between, and a proof of before would look as if nothing had happened.
	d.Since, d.Raised = sh.InDoubt()
	d.Republished = sh.View() != l.view
	d.StoodStill = l.view.Elected != "" && sh.Current().Elected == ""
	return grant.Weigh(l.place.Grants, l.spec.Fence, d, grant.Connection{
		Elected: e.hp == l.write && e.shard == sh, Known: e.known(), Proof: e.b.Proof(), Shadowed: e.b.Shadowed(), Answer: a,
	})
}

// ask fences a backend for the checkout that is to get it.
func (e *entry) ask(co *Checkout) {
	now := e.hp.lane.loop.Now()
	f := &fence{began: now, deadline: co.Deadline, co: co}
	if co.Deadline.IsZero() {
		f.deadline = now.Add(grant.Limit)
	}
	e.sendFence(f)
}

func (e *entry) sendFence(f *fence) {
	l := e.hp.lane
	l.fenceID++
	f.id, f.epoch = l.fenceID, l.view.Epoch
	e.fence = f
	l.fencing++
	l.root.Send(e.pid, &backend.Fence{ID: f.id})
}

// fenced takes a fence's answer. The shard is told first: a no demotes the host, and the checkout keeps its turn and deadline.
func (l *Lane) fenced(m *backend.Fenced) {
	e := l.entryOf(m.Backend)
	if e == nil || e.fence == nil || e.fence.id != m.ID {
		return // of a lane before this one
	}
	f := e.endFence()
	if m.Err != nil {
		l.stats.Fences[FenceFailed]++
		l.deps.Log.Warn().Err(m.Err).Str("pool", l.name()).Uint64("backend", e.b.ID).Str("host", e.hp.host).Msg("fence failed")
		e.closeUnfit(f.co, "its fence failed: "+m.Err.Error())
		return
	}
	l.stats.FenceTime.Observe(m.Answered.Sub(m.Asked))
	p := e.b.Proof() // nil: something the server said behind the answer has made it void
	if p != nil && e.hp.news(e.shard, p) {
		l.reportTo(e.shard, &shard.Observed{Observation: p.Observation(role.Host(e.hp.host), role.Fence)})
	}
	// The view of this moment decides, not that of the question: sync has acted on it before this message was looked at.
	answer := grant.ForThis
	if f.epoch != l.view.Epoch {
		answer = grant.UnderOtherView
	}
	worth, why := e.weigh(answer)
	next := grant.After(grant.Fenced{
		Worth: worth, Elected: e.hp == l.write && e.shard == l.spec.Shard, Waiting: f.co != nil, Retiring: e.slot.Retiring(), Paused: l.paused,
	})
	switch next {
	case grant.Close:
		l.stats.Fences[FenceNo]++
		e.closeUnfit(f.co, "its fence said no")
		l.deps.Log.Debug().Str("pool", l.name()).Uint64("backend", e.b.ID).Str("host", e.hp.host).Stringer("reason", why).Msg("fence said no")
	case grant.AskAgain: // not counted: the checkout has had no answer yet
		e.sendFence(f)
	case grant.Lease:
		l.stats.Fences[FenceOK]++
		e.give(f.co)
	case grant.PutBack:
		l.stats.Fences[verdict(p)]++
		e.putBack(f.co)
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

// putBack takes a backend back that was fenced for a checkout that has left, or that has to wait on.
func (e *entry) putBack(co *Checkout) {
	l := e.hp.lane
	e.hp.run(e.hp.machine.Checkin(l.loop.Now(), e.slot, pool.Clean))
	if co != nil {
		l.requeue(co)
	}
}

func (e *entry) endFence() *fence {
	f := e.fence
	e.fence = nil
	e.hp.lane.fencing--
	return f
}

// unfence takes the checkouts of those backends back that are being fenced for one. The fences go on.
func (hp *hostPool) unfence(which func(*entry) bool) (taken []*Checkout) {
	if hp.lane.fencing == 0 {
		return nil
	}
	hp.entries(func(e *entry) {
		if e.fence != nil && e.fence.co != nil && which(e) {
			taken = append(taken, e.fence.co)
			e.fence.co = nil
		}
	})
	return taken
}

// tickFences looks at the fences that have no answer. They are collected first: what is done about one may end another (a
// checkout that is released is granted, and fenced, somewhere else).
func (l *Lane) tickFences() {
	if l.fencing == 0 {
		return
	}
	now := l.loop.Now()
	var fencing []*entry
	for _, hp := range l.hostPools {
		hp.entries(func(e *entry) {
			if e.fence != nil {
				fencing = append(fencing, e)
			}
		})
	}
	for _, e := range fencing {
		f := e.fence
		if f == nil {
			continue // a step below has ended it
		}
		co := f.co
		switch grant.Unanswered(now, f.began, f.deadline, co != nil) {
		case grant.GiveUp:
			// The backend goes first, without its checkout: the refusal below is its answer, and it must not be granted
			// something in between.
			e.endFence()
			l.stats.Fences[FenceSlow]++
			e.closeUnfit(nil, "it did not answer its fence")
			if co != nil {
				l.refuseWith(co, pgerr.FenceUnanswered(now.Sub(f.began)))
			}
		case grant.Release:
			f.co = nil
			l.requeue(co)
		}
	}
}
