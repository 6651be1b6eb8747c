package lane

import (
	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane/pool"
)

// offer says that a permit of a budget has become free; giveUp asks for the permit of an idle backend of the budget.
type (
	offer  struct{}
	giveUp struct {
		budget *Budget
		share  int
	}
)

func (br *branch) wantPermits(n int) {
	got := 0
	for ; got < n; got++ {
		if !br.acquire() {
			break
		}
	}
	if got > 0 {
		br.step(pool.Permits{N: got})
	}
}

// acquire takes a permit of the pool and one of the database. Only for somebody who waits are other lanes asked to give
// one up: backends kept in reserve are not worth another's connection.
func (br *branch) acquire() bool {
	l := br.lane
	needed := br.machine.Waiting() > 0 || len(l.pending) > 0
	from := br.poolBud
	ok, ask, share := br.poolBud.acquire(l.self, needed)
	if ok {
		if ok, ask, share = br.dbBud.acquire(l.self, needed); ok {
			br.permits++
			return true
		}
		from = br.dbBud
		l.tell(br.poolBud.release())
	}
	if now := l.loop.Now(); len(ask) > 0 && now.Sub(l.askedAt) >= busyTick {
		l.askedAt = now
		for _, p := range ask {
			l.root.Send(p, giveUp{from, share})
		}
	}
	return false
}

func (br *branch) returnPermit() {
	br.permits--
	br.lane.tell(br.poolBud.release())
	br.lane.tell(br.dbBud.release())
}

// decline passes on what was offered and is not needed any more.
func (br *branch) decline() {
	br.lane.tell(br.poolBud.decline(br.lane.self))
	br.lane.tell(br.dbBud.decline(br.lane.self))
}

func (l *Lane) tell(next *actor.PID) {
	if next != nil {
		l.root.Send(next, offer{})
	}
}

func (l *Lane) giveUp(m giveUp) {
	for _, br := range l.branches {
		if br.poolBud == m.budget || br.dbBud == m.budget {
			br.step(pool.GiveUp{Share: m.share})
		}
	}
}
