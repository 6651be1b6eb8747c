package lane

import (
	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane/pool"
)

func (hp *hostPool) wantPermits(n int) {
	got := 0
	for ; got < n; got++ {
		if !hp.acquire() {
			break
		}
	}
	if got > 0 {
		hp.step(pool.Permits{N: got})
	}
}

// acquire takes a permit of the pool and one of the database. Only for somebody who waits are other lanes asked to give
// one up: backends kept in reserve are not worth another's connection.
func (hp *hostPool) acquire() bool {
	l := hp.lane
	needed := hp.machine.Waiting() > 0 || len(l.logins.pending) > 0
	from := hp.poolBud
	ok, ask, share := hp.poolBud.acquire(l.self, needed)
	if ok {
		if ok, ask, share = hp.dbBud.acquire(l.self, needed); ok {
			hp.permits++
			return true
		}
		from = hp.dbBud
		l.offerPermit(hp.poolBud.release())
	}
	if now := l.loop.Now(); len(ask) > 0 && now.Sub(l.askedAt) >= busyTick {
		l.askedAt = now
		for _, p := range ask {
			l.root.Send(p, yieldPermit{from, share})
		}
	}
	return false
}

func (hp *hostPool) returnPermit() {
	hp.permits--
	hp.lane.offerPermit(hp.poolBud.release())
	hp.lane.offerPermit(hp.dbBud.release())
}

// decline passes on what was offered and is not needed any more.
func (hp *hostPool) decline() {
	hp.lane.offerPermit(hp.poolBud.decline(hp.lane.self))
	hp.lane.offerPermit(hp.dbBud.decline(hp.lane.self))
}

func (l *Lane) offerPermit(next *actor.PID) {
	if next != nil {
		l.root.Send(next, permitOffered{})
	}
}

func (l *Lane) yieldPermit(m yieldPermit) {
	for _, hp := range l.hostPools {
		if hp.poolBud == m.budget || hp.dbBud == m.budget {
			hp.step(pool.GiveUp{Share: m.share})
		}
	}
}

// permitOffered uses the permit that was reserved, or passes it on.
func (l *Lane) permitOffered() {
	for _, hp := range l.hostPools {
		hp.step(pool.Tick{})
		hp.decline()
	}
}
