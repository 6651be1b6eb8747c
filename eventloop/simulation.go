package eventloop

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// simulation runs the loops of a seeded group on one goroutine, one step at a time, each picked by a generator among
// all that could come next. Before each pick it lets everything else in the bubble come to rest: a sleep of one
// nanosecond ends only when every other goroutine of a synctest bubble waits. So what can come next depends on nothing
// but the steps before, and the same seed gives the same order.
type simulation struct {
	group *Group
	rand  *rand.Rand
	steps []step
}

// step is something that could come next. The fields but do name it independently of when it became ready.
type step struct {
	loop *loop
	kind stepKind
	id   uint32
	do   func()
}

type stepKind uint8

const (
	stepTask    stepKind = iota // the oldest posted function
	stepTimer                   // the earliest timer that is due
	stepMailbox                 // one message
	stepConn                    // one callback
)

func newSimulation(g *Group, seed uint64) *simulation {
	s := &simulation{group: g, rand: rand.New(rand.NewPCG(seed, 0))}
	woken := make(chan struct{}, 1)
	for _, l := range g.loops {
		l.sim = s
		l.poll.(*portable).woken = woken // one goroutine waits for all
	}
	return s
}

// run ends when the loops are stopped.
func (s *simulation) run() {
	for {
		time.Sleep(time.Nanosecond)
		if rest := s.group.opt.Rest; rest != nil {
			rest()
		}
		stopping := s.gather()
		if len(s.steps) == 0 {
			if stopping {
				break
			}
			s.wait()
			continue
		}
		slices.SortFunc(s.steps, func(a, b step) int {
			return cmp.Or(cmp.Compare(a.loop.index, b.loop.index), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
		})
		next := s.steps[s.rand.IntN(len(s.steps))]
		next.loop.simulate(next.do)
	}
	for _, l := range s.group.loops {
		for !l.finish() {
		}
		close(l.ended)
	}
}

// gather lists what could come next. When the loops are to stop only what was posted is.
func (s *simulation) gather() (stopping bool) {
	clear(s.steps)
	s.steps = s.steps[:0]
	for _, l := range s.group.loops {
		l.clock.Store(int64(time.Since(l.base)))
		l.collectTasks()
		s.steps = append(s.steps, l.taskSteps()...)
		if l.isStopping() {
			stopping = true
			continue
		}
		s.steps = append(s.steps, l.eventSteps()...)
	}
	return stopping
}

// wait returns when a loop has been woken or its earliest timer is due.
func (s *simulation) wait() {
	first := time.Duration(-1)
	for _, l := range s.group.loops {
		if d := l.untilTimer(); d >= 0 && (first < 0 || d < first) {
			first = d
		}
		l.publish()
		l.waiting.Store(true)
		l.sleeping.Store(true)
		if l.hasTasks() || l.poll.pending() {
			first = 0
		}
	}
	s.group.loops[0].poll.(*portable).sleep(first)
	for _, l := range s.group.loops {
		l.sleeping.Store(false)
		l.waiting.Store(false)
		l.count.Waits++
	}
}

// simulate runs one step.
func (l *loop) simulate(do func()) {
	defer l.recovered()
	do()
}

// collectTasks appends what was posted to the loop's own queue, which keeps its order.
func (l *loop) collectTasks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, l.in...)
	clear(l.in)
	l.in = l.in[:0]
}

func (l *loop) taskSteps() (steps []step) {
	function := false
	for i, t := range l.queue {
		switch {
		case t.mb != nil:
			steps = append(steps, step{l, stepMailbox, t.mb.id, func() { l.runQueued(i) }})
		case !function:
			function = true
			steps = append(steps, step{l, stepTask, 0, func() { l.runQueued(i) }})
		}
	}
	return steps
}

func (l *loop) runQueued(i int) {
	t := l.queue[i]
	l.queue = slices.Delete(l.queue, i, i+1)
	l.runTask(t)
}

func (l *loop) eventSteps() (steps []step) {
	p := l.poll.(*portable)
	p.collect()
	for c, ev := p.next(); c != nil; c, ev = p.next() {
		c.note(ev)
		l.wantTurn(c)
	}
	if len(l.timers.heap) > 0 && l.timers.heap[0].when <= time.Duration(l.clock.Load()) {
		steps = append(steps, step{l, stepTimer, 0, func() {
			if t := l.timers.due(time.Duration(l.clock.Load()), l.timers.seq); t != nil {
				l.fire(t)
			}
		}})
	}
	for _, c := range l.ready {
		steps = append(steps, step{l, stepConn, c.gen, func() {
			l.ready = slices.DeleteFunc(l.ready, func(r *conn) bool { return r == c })
			c.state &^= inReady
			l.count.Turns++
			l.pump(c)
		}})
	}
	return steps
}
