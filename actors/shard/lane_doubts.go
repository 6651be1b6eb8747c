package shard

import (
	"time"

	"fencepost/actors/backend"
)

// owed counts, by shard and host, the doubts that backends of a lane have raised and whose message the lane has not
// passed on yet. A doubt without its message would last for ever: a lane that ends before the message has come passes the
// word on at its end.
type owed map[creditor]int

type creditor struct {
	shard *Shard
	host  string
}

// raiser and hinter are what a backend calls in the moment it sees a loss, or a hint. Both run on the lane's loop.
func (l *Lane) raiser(sh *Shard, host string) func(time.Time) {
	raise, to := sh.lostOn(host), creditor{sh, host}
	return func(at time.Time) {
		raise(at)
		l.owed[to]++
	}
}

func (l *Lane) hinter(sh *Shard, host string) func(time.Time) bool {
	raise, to := sh.hintOn(host), creditor{sh, host}
	return func(at time.Time) bool {
		raised := raise(at)
		if raised {
			l.owed[to]++
		}
		return raised
	}
}

// paid says that the message of a doubt has come, which is now passed on.
func (l *Lane) paid(b *backend.Backend) {
	to := creditor{l.shardOf(b), b.Host()}
	if l.owed[to]--; l.owed[to] <= 0 {
		delete(l.owed, to)
	}
}

// settleOwed passes the doubts on whose messages will never come.
func (l *Lane) settleOwed() {
	for to, n := range l.owed {
		for ; n > 0; n-- {
			l.tellAbout(to.shard, &HostLost{Host: to.host, Doubts: true, At: l.loop.Now()})
		}
	}
	clear(l.owed)
}

// shardOf is the shard that a backend was opened for, which a reload may have replaced.
func (l *Lane) shardOf(b *backend.Backend) *Shard {
	if m, _ := b.Slot.Owner.(*member); m != nil {
		return m.shard
	}
	return l.spec.Shard
}

func (l *Lane) tellShard(m any) { l.tellAbout(l.spec.Shard, m) }

// tellAbout tells a shard's actor something about its hosts. One that was replaced under its name is not told: its doubts
// would be settled by its successor, who never had them.
func (l *Lane) tellAbout(sh *Shard, m any) {
	if sh != l.spec.Shard && sh.Name == l.spec.Shard.Name {
		return
	}
	if pid := l.deps.ShardOf(sh.Name); pid != nil {
		l.root.Send(pid, m)
	}
}

func (l *Lane) tellLost(m *backend.Lost) {
	sh := l.shardOf(m.Backend)
	if m.Doubts {
		l.paid(m.Backend)
	}
	l.tellAbout(sh, &HostLost{Host: m.Backend.Host(), Code: m.Code, Expected: m.Expected, Doubts: m.Doubts, Opened: m.Backend.OpenedAt(), At: l.loop.Now()})
}

func (l *Lane) hinted(m *backend.Hinted) {
	sh := l.shardOf(m.Backend)
	l.paid(m.Backend)
	l.tellAbout(sh, &Hinted{Host: m.Backend.Host(), Code: m.Code, Doubts: true, At: m.At})
}
