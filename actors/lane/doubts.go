package lane

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/shard"
)

// unsettledDoubts counts, by shard, backend and cause, the doubts that backends of a lane have raised and whose message the lane has not
// passed on yet. A doubt without its message would last for ever: a lane that ends before the message has come passes the
// word on at its end.
type unsettledDoubts map[doubtKey]int

type doubtKey struct {
	shard   *shard.Shard
	host    string
	backend uint64
	lost    bool // else it was a hint
}

// raiser and hinter are what a backend calls in the moment it sees a loss, or a hint. Both run on the lane's loop.
func (l *Lane) raiser(m *entry) func(time.Time) {
	return func(at time.Time) {
		m.shard.RaiseDoubt(at)
		m.losing = true
		l.unsettled[m.doubtKey(true)]++
	}
}

func (l *Lane) hinter(m *entry) func(time.Time) bool {
	raise := m.shard.HintOn(m.hp.host)
	return func(at time.Time) bool {
		raised := raise(at)
		if raised {
			l.unsettled[m.doubtKey(false)]++
		}
		return raised
	}
}

func (m *entry) doubtKey(lost bool) doubtKey { return doubtKey{m.shard, m.hp.host, m.b.ID, lost} }

// doubtReported says that the message of a doubt has come, which is now passed on.
func (l *Lane) doubtReported(to doubtKey) {
	if l.unsettled[to]--; l.unsettled[to] <= 0 {
		delete(l.unsettled, to)
	}
}

// reportUnsettledDoubts passes the doubts on whose messages will never come.
func (l *Lane) reportUnsettledDoubts() {
	for to, n := range l.unsettled {
		for ; n > 0; n-- {
			if now := l.loop.Now(); to.lost {
				l.reportTo(to.shard, &shard.HostLost{Host: to.host, Backend: to.backend, Doubts: true, At: now})
			} else {
				l.reportTo(to.shard, &shard.Hinted{Host: to.host, Doubts: true, At: now})
			}
		}
	}
	clear(l.unsettled)
}

func (l *Lane) report(m any) { l.reportTo(l.spec.Shard, m) }

// reportTo tells a shard's actor something about its hosts. One that was replaced under its name is not told: its doubts
// would be settled by its successor, who never had them.
func (l *Lane) reportTo(sh *shard.Shard, m any) {
	if sh != l.spec.Shard && sh.Name == l.spec.Shard.Name {
		return
	}
	if pid := l.deps.ShardOf(sh.Name); pid != nil {
		l.root.Send(pid, m)
	}
}

// reportLost passes the end of a connection on, also of one that a lane before this one has opened: that lane has told of
// the end of all but those whose word was on its way.
func (l *Lane) reportLost(m *backend.Lost) {
	e, _ := m.Backend.Slot.Owner.(*entry)
	if e == nil || e.ended || e.hp.lane != l && !m.Doubts {
		return
	}
	host, now := m.Backend.Host(), l.loop.Now()
	if m.Doubts {
		l.doubtReported(e.doubtKey(true))
	}
	if !e.connected { // the shard does not know that it was there
		l.reportTo(e.shard, &shard.ConnectFailed{Host: host, Code: m.Code, Err: m.Err, Doubts: m.Doubts, At: now})
		return
	}
	e.connected = false
	l.reportTo(e.shard, &shard.HostLost{Host: host, Backend: m.Backend.ID, Code: m.Code, Expected: m.Expected, Doubts: m.Doubts, Opened: m.Backend.OpenedAt(), At: now})
}

func (l *Lane) hinted(m *backend.Hinted) {
	e, _ := m.Backend.Slot.Owner.(*entry)
	if e == nil {
		return
	}
	l.doubtReported(e.doubtKey(false))
	l.reportTo(e.shard, &shard.Hinted{Host: m.Backend.Host(), Code: m.Code, Doubts: true, At: m.At})
}
