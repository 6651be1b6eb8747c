package lane

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/shard"
)

// unsettledDoubts counts, by shard, backend and cause, the doubts that backends of a lane have raised and whose message the lane
// has not passed on yet. A doubt without its message would last for ever: a lane that ends before the message has come reports
// it at its end, and one that is restarted takes the count over.
type unsettledDoubts map[doubtKey]int

type doubtKey struct {
	shard   *shard.Shard
	host    string
	backend uint64
	lost    bool // else it was a hint
}

func (e *entry) doubtKey(lost bool) doubtKey { return doubtKey{e.shard, e.hp.host, e.b.ID, lost} }

// lossRaiser and hintRaiser are what a backend calls in the moment it sees a loss, or a hint. Both run on the lane's loop.
func (u unsettledDoubts) lossRaiser(e *entry) func(time.Time) {
	return func(at time.Time) {
		e.shard.RaiseDoubt(at)
		u[e.doubtKey(true)]++
	}
}

func (u unsettledDoubts) hintRaiser(e *entry) func(time.Time) bool {
	raise := e.shard.HintOn(e.hp.host)
	return func(at time.Time) bool {
		raised := raise(at)
		if raised {
			u[e.doubtKey(false)]++
		}
		return raised
	}
}

// lossRaised reports whether a backend's loss has raised doubt whose message is on its way.
func (u unsettledDoubts) lossRaised(e *entry) bool { return u[e.doubtKey(true)] > 0 }

// settle says that the message of a doubt has come, which is now passed on.
func (u unsettledDoubts) settle(k doubtKey) {
	if u[k]--; u[k] <= 0 {
		delete(u, k)
	}
}

// reportUnsettled reports the doubts whose messages will never come.
func (l *Lane) reportUnsettled() {
	for k, n := range l.unsettled {
		for ; n > 0; n-- {
			if now := l.loop.Now(); k.lost {
				l.reportTo(k.shard, &shard.HostLost{Host: k.host, Backend: k.backend, Doubts: true, At: now})
			} else {
				l.reportTo(k.shard, &shard.Hinted{Host: k.host, Doubts: true, At: now})
			}
		}
	}
	clear(l.unsettled)
}

func (l *Lane) report(m any) { l.reportTo(l.spec.Shard, m) }

// reportTo tells a shard's actor something about its hosts. One that was replaced under its name is not told: its doubts
// would be settled by its successor, which never had them.
func (l *Lane) reportTo(sh *shard.Shard, m any) {
	if sh != l.spec.Shard && sh.Name == l.spec.Shard.Name {
		return
	}
	if pid := l.deps.ShardOf(sh.Name); pid != nil {
		l.root.Send(pid, m)
	}
}

// reportLost passes the end of a connection on, also of one that a lane before this one has opened: that lane has reported the end
// of all but those whose message was on its way.
func (l *Lane) reportLost(m *backend.Lost) {
	e := owner(m.Backend)
	if e == nil || e.state == ended || e.hp.lane != l && !m.Doubts {
		return
	}
	now := l.loop.Now()
	if m.Doubts {
		l.unsettled.settle(e.doubtKey(true))
	}
	was := e.state
	e.state = was.closed()
	if !was.open() { // the shard does not know that it was there
		l.reportTo(e.shard, &shard.ConnectFailed{Host: e.hp.host, Code: m.Code, Err: m.Err, Doubts: m.Doubts, At: now})
		return
	}
	l.reportTo(e.shard, &shard.HostLost{Host: e.hp.host, Backend: e.b.ID, Code: m.Code, Expected: m.Expected, Doubts: m.Doubts, Opened: e.b.OpenedAt(), At: now})
}

// reportDialFailed passes a failed login on. One to the primary puts it in doubt, unless it is about the login and not about
// the server.
func (l *Lane) reportDialFailed(e *entry, m *backend.DialFailed) {
	code, now := "", time.Now()
	if m.Rejected {
		code = m.Err.Code
	}
	doubts := !l.view.Static && e.hp == l.write && e.shard == l.spec.Shard && !shard.AboutLogin(code)
	if doubts {
		e.shard.RaiseDoubt(now)
	}
	l.reportTo(e.shard, &shard.ConnectFailed{Host: e.hp.host, Code: code, Err: m.Err, Doubts: doubts, At: now})
}

// reportHint passes a hint on, also of a backend that a lane before this one has opened.
func (l *Lane) reportHint(m *backend.Hinted) {
	e := owner(m.Backend)
	if e == nil {
		return
	}
	l.unsettled.settle(e.doubtKey(false))
	l.reportTo(e.shard, &shard.Hinted{Host: e.hp.host, Code: m.Code, Doubts: true, At: m.At})
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

// reportConnections tells a shard that was restarted which connections there are.
func (l *Lane) reportConnections(m viewChanged) {
	if m.recount == nil {
		return
	}
	for _, hp := range l.hostPools {
		hp.entries(func(e *entry) {
			if e.state.open() && e.shard == l.spec.Shard {
				l.root.Send(m.recount, &shard.Connected{Host: hp.host, Backend: e.b.ID, At: l.loop.Now()})
			}
		})
	}
}
