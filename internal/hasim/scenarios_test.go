package hasim

import (
	"slices"
	"sort"
	"time"

	"fencepost/internal/fakepg"
)

// scenario is something that goes wrong. It runs as a step and leaves what comes later to world.in.
type scenario struct {
	name string
	do   func(*world)
}

var scenarios = []scenario{
	{"crash, failover", (*world).crashFailover},
	{"crash, failover", (*world).crashFailover},
	{"crash, restart", (*world).crashRestart},
	{"switchover", (*world).switchover},
	{"switchover", (*world).switchover},
	{"demote in place", (*world).demoteInPlace},
	{"freeze, failover", (*world).freezeFailover},
	{"freeze", (*world).freezeAny},
	{"partition, failover", (*world).partitionFailover},
	{"partition", (*world).partitionAny},
	{"slow", (*world).slowAny},
	{"read-only promotion", (*world).readOnlyPromotion},
	{"read-only primary", (*world).readOnlyPrimary},
	{"promote a copy", (*world).promoteCopy},
	{"two copies", (*world).twoCopies},
	{"foreign cluster", (*world).foreignCluster},
	{"reload", (*world).reloadHosts},
	{"reload of the pool", (*world).reloadPool},
	{"crash of an actor", (*world).crashActor},
	{"crash of an actor", (*world).crashActor},
	{"panic at a transition", (*world).poisonActor},
	{"panic at a failed fence", (*world).poisonFence},
	{"lost messages", (*world).loseMessages},
	{"addresses", (*world).changeNames},
	{"forget", (*world).forget},
	{"reset", (*world).resetAny},
	{"too many connections", (*world).refuseLogins},
	{"monitors are not let in", (*world).barMonitors},
	{"senseless answers", (*world).answerNonsense},
	{"moved address", (*world).moveAddress},
	{"console", (*world).console},
	{"planned switchover", (*world).plannedSwitchover},
	{"crash of a lane that is being told of losses", (*world).crashLane},
}

// upTo is a random time.
func (w *world) upTo(d time.Duration) time.Duration {
	return 1 + time.Duration(w.rand.Int64N(int64(d)))
}

func (w *world) any() *server { return w.servers[w.rand.IntN(len(w.servers))] }

// primary is the server that clients should write on: out of recovery, on the highest timeline; nil if there is none.
func (w *world) primary() (best *server) {
	for _, s := range w.servers {
		if s.outOfRecovery() && (best == nil || s.timeline() > best.timeline()) {
			best = s
		}
	}
	return best
}

func (s *server) timeline() uint32 {
	_, id := s.state()
	return id.Timeline
}

// standbys that live, the most advanced first, in a random order otherwise.
func (w *world) standbys() (list []*server) {
	for _, i := range w.rand.Perm(len(w.servers)) {
		if l, id := w.servers[i].state(); l == alive && id.InRecovery {
			list = append(list, w.servers[i])
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].timeline() > list[j].timeline() })
	return list
}

// failover promotes a standby some time from now; the others follow it.
func (w *world) failover(after time.Duration, readOnly bool) {
	w.in(after, func() {
		if list := w.standbys(); len(list) > 0 {
			list[0].promote(readOnly)
			w.follow(list[0])
		}
	})
}

// follow has the standbys follow a primary, one by one.
func (w *world) follow(p *server) {
	for _, s := range w.servers {
		w.in(w.upTo(time.Second), func() {
			if l, id := s.state(); l == alive && id.InRecovery && p.outOfRecovery() && id.Timeline < p.timeline() {
				s.change(func() { s.id.Timeline = p.id.Timeline })
			}
		})
	}
}

// rejoin makes a server that was the primary a standby of the present one, some time from now.
func (w *world) rejoin(s *server, after time.Duration) {
	w.in(after, func() {
		p := w.primary()
		if p == nil || p == s {
			return
		}
		if l, _ := s.state(); l != dead {
			s.crash(w.rand.IntN(2) == 0)
		}
		s.start(w.upTo(500*time.Millisecond), true, p.timeline())
	})
}

func (w *world) crashFailover() {
	p := w.primary()
	if p == nil {
		return
	}
	p.crash(w.rand.IntN(2) == 0)
	d := w.upTo(3 * time.Second)
	w.failover(d, false)
	if w.rand.IntN(3) == 0 { // it comes back and still believes that it is the primary
		w.in(w.upTo(2*time.Second), func() { p.start(w.upTo(time.Second), false, 0) })
		d += 2 * time.Second
	}
	w.rejoin(p, d+w.upTo(3*time.Second))
}

func (w *world) crashRestart() {
	p := w.any()
	p.crash(w.rand.IntN(2) == 0)
	w.in(w.upTo(4*time.Second), func() {
		if l, _ := p.state(); l == dead {
			p.start(w.upTo(2*time.Second), false, 0)
		}
	})
}

func (w *world) switchover() {
	p := w.primary()
	if p == nil {
		return
	}
	p.shutdown()
	d := w.upTo(time.Second)
	w.failover(d, false)
	w.rejoin(p, d+w.upTo(time.Second))
}

// demoteInPlace: the old address answers as a standby before the new primary is there.
func (w *world) demoteInPlace() {
	p := w.primary()
	if p == nil {
		return
	}
	p.shutdown()
	w.in(w.upTo(300*time.Millisecond), func() { p.start(w.upTo(300*time.Millisecond), true, p.timeline()) })
	w.in(300*time.Millisecond+w.upTo(3*time.Second), func() {
		if list := slices.DeleteFunc(w.standbys(), func(s *server) bool { return s == p }); len(list) > 0 && w.primary() == nil {
			list[0].promote(false)
			w.follow(list[0])
		}
	})
}

// freezeFailover: the old primary stands still, and goes on believing when it is thawed.
func (w *world) freezeFailover() {
	p := w.primary()
	if p == nil {
		return
	}
	p.freeze(true)
	d := w.upTo(4 * time.Second)
	w.failover(d, false)
	d += w.upTo(4 * time.Second)
	w.in(d, func() { p.freeze(false) })
	w.rejoin(p, d+w.upTo(3*time.Second))
}

func (w *world) freezeAny() {
	s := w.any()
	s.freeze(true)
	w.in(w.upTo(6*time.Second), func() { s.freeze(false) })
}

// cutOff stalls the way to a server, in one direction or both.
func (w *world) cutOff(s *server) {
	k := w.rand.IntN(4)
	s.partition(k != 1, k != 2)
}

func (w *world) reunite(s *server) {
	s.partition(false, false)
	if w.rand.IntN(2) == 0 {
		s.link.breakAll()
	}
}

func (w *world) partitionFailover() {
	p := w.primary()
	if p == nil {
		return
	}
	w.cutOff(p)
	d := w.upTo(4 * time.Second)
	w.failover(d, false)
	d += w.upTo(4 * time.Second)
	w.in(d, func() { w.reunite(p) })
	w.rejoin(p, d+w.upTo(3*time.Second))
}

func (w *world) partitionAny() {
	s := w.any()
	w.cutOff(s)
	w.in(w.upTo(6*time.Second), func() { w.reunite(s) })
}

func (w *world) slowAny() {
	s := w.any()
	if p := w.primary(); p != nil && w.rand.IntN(2) == 0 {
		s = p
	}
	s.slow(w.upTo(5*time.Second), w.upTo(time.Second))
	w.in(w.upTo(8*time.Second), func() { s.slow(0, 0) })
}

func (w *world) readOnlyPromotion() {
	p := w.primary()
	if p == nil {
		return
	}
	p.crash(w.rand.IntN(2) == 0)
	d := w.upTo(2 * time.Second)
	w.failover(d, true)
	d += w.upTo(3 * time.Second)
	w.in(d, func() {
		for _, s := range w.servers {
			if s.outOfRecovery() {
				s.readOnly(false)
			}
		}
	})
	w.rejoin(p, d+w.upTo(2*time.Second))
}

func (w *world) readOnlyPrimary() {
	if p := w.primary(); p != nil {
		p.readOnly(true)
		w.in(w.upTo(3*time.Second), func() { p.readOnly(false) })
	}
}

// promoteCopy promotes a standby beside the living primary; it is withdrawn later.
func (w *world) promoteCopy() {
	p := w.primary()
	list := w.standbys()
	if p == nil || len(list) == 0 {
		return
	}
	s := list[w.rand.IntN(len(list))]
	s.promote(false)
	w.in(w.upTo(5*time.Second), func() { s.start(w.upTo(time.Second), true, p.timeline()) })
}

// twoCopies are two standbys promoted at once: they are on the same timeline.
func (w *world) twoCopies() {
	p := w.primary()
	list := w.standbys()
	if p == nil || len(list) < 2 {
		return
	}
	if w.rand.IntN(2) == 0 {
		p.crash(false)
		w.rejoin(p, 3*time.Second+w.upTo(3*time.Second))
	}
	list[0].promote(false)
	w.in(w.upTo(time.Second), func() {
		if list[1].timeline() < list[0].timeline() {
			list[1].promote(false)
		}
	})
	w.in(time.Second+w.upTo(4*time.Second), func() { list[1].start(w.upTo(time.Second), true, list[0].timeline()) })
}

func (w *world) resetAny() {
	s := w.any()
	w.trace("event", "reset of all connections to %s", s)
	s.link.breakAll()
}

func (w *world) refuseLogins() {
	s := w.any()
	w.trace("event", "too many connections to %s", s)
	s.pg.Refuse(&fakepg.Error{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"})
	w.in(w.upTo(3*time.Second), func() {
		if l, _ := s.state(); l == alive {
			s.pg.Refuse(nil)
		}
	})
}

// answerNonsense: a server answers the identity query with an error, or with what is no answer.
func (w *world) answerNonsense() {
	s := w.any()
	s.change(func() {
		if w.rand.IntN(2) == 0 {
			s.id.Garbage = "what?"
		} else {
			s.id.Trouble = &fakepg.Error{Severity: "ERROR", Code: "53200", Message: "out of memory"}
		}
	})
	w.trace("event", "senseless answers of %s", s)
	w.in(w.upTo(4*time.Second), func() { s.change(s.sensible) })
}

func (s *server) sensible() { s.id.Garbage, s.id.Trouble = "", nil }
