package shard

import (
	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/shard/pool"
)

func (l *Lane) wantPermits(n int) {
	got := 0
	for ; got < n; got++ {
		if !l.acquire() {
			break
		}
	}
	if got > 0 {
		l.step(pool.Permits{N: got})
	}
}

// acquire takes a permit of the pool and one of the database. Only for somebody who waits are other lanes asked to give
// one up: backends kept in reserve are not worth another's connection.
func (l *Lane) acquire() bool {
	needed := l.machine.Waiting() > 0 || len(l.pending) > 0
	ok, ask, share := l.poolBud.acquire(l.self, needed)
	if ok {
		if ok, ask, share = l.dbBud.acquire(l.self, needed); ok {
			return true
		}
		l.tell(l.poolBud.release())
	}
	if now := l.loop.Now(); len(ask) > 0 && now.Sub(l.askedAt) >= busyTick {
		l.askedAt = now
		for _, p := range ask {
			l.root.Send(p, giveUp{share})
		}
	}
	return false
}

func (l *Lane) returnPermit() {
	l.tell(l.poolBud.release())
	l.tell(l.dbBud.release())
}

// decline passes on what was offered and is not needed any more.
func (l *Lane) decline() {
	l.tell(l.poolBud.decline(l.self))
	l.tell(l.dbBud.decline(l.self))
}

func (l *Lane) tell(next *actor.PID) {
	if next != nil {
		l.root.Send(next, offer{})
	}
}
