package eventloop

import (
	"runtime/debug"
	"time"
)

// run is the loop's goroutine, owned by the group and ended by Group.Stop.
func (l *loop) run() {
	defer close(l.ended)
	l.poll.start()
	for !l.turn() {
	}
	for !l.finish() {
	}
}

// turn is one round: wait, then events, timers, ready connections. When something panics the round is taken up again
// where it was left: each step removes itself from its list before it runs. It reports whether the loop is to end.
func (l *loop) turn() (over bool) {
	defer l.recovered()
	l.drain()
	if l.isStopping() {
		return true
	}
	for {
		c, ev := l.poll.next()
		if c == nil {
			break
		}
		l.event(c, ev)
	}
	l.fireTimers()
	l.runReady()
	l.drain()
	l.wait()
	return false
}

func (l *loop) wait() {
	timeout := time.Duration(0)
	if l.readyAt == len(l.ready) && l.at == len(l.queue) {
		timeout = l.untilTimer()
	}
	l.publish()
	if timeout != 0 {
		l.waiting.Store(true)
		l.sleeping.Store(true)
		if l.hasTasks() || l.poll.pending() {
			timeout = 0
		}
	}
	l.count.Waits++
	l.poll.wait(timeout)
	l.sleeping.Store(false)
	l.clock.Store(int64(time.Since(l.base)))
	l.waiting.Store(false)
}

func (l *loop) hasTasks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.in) > 0 || l.stopping
}

func (l *loop) isStopping() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping
}

// drain runs tasks until none is left. In a seeded run each task is a step of its own and nothing happens here.
func (l *loop) drain() {
	if l.sim != nil {
		return
	}
	for range drainLimit {
		if l.at == len(l.queue) && !l.refill() {
			return
		}
		t := l.queue[l.at]
		l.queue[l.at] = task{}
		l.at++
		l.runTask(t)
	}
}

func (l *loop) runTask(t task) {
	if t.mb != nil {
		t.mb.run()
	} else {
		t.fn()
	}
}

// refill swaps the two task slices.
func (l *loop) refill() bool {
	spare := l.queue[:0]
	l.mu.Lock()
	if len(l.in) == 0 {
		l.mu.Unlock()
		return false
	}
	if cap(spare) > 1024 && len(l.in) < cap(spare)/8 {
		spare = nil // grown by a burst that is over
	}
	l.queue, l.in, l.at = l.in, spare, 0
	l.mu.Unlock()
	return true
}

// recovered is deferred around every turn and step: it turns a panic in somebody's code into that somebody's failure.
func (l *loop) recovered() {
	reason := recover()
	if reason == nil {
		return
	}
	stack := debug.Stack()
	l.count.Panics++
	o := l.owner
	l.owner, l.running = owner{}, nil
	if o.c != nil {
		o.mb = o.c.mb
	}
	if o.mb == nil || !o.mb.fail(reason, nil, stack) {
		if o.c != nil {
			o.c.Close()
		}
		if o.sock != nil {
			o.sock.Close()
		}
		l.panicked(reason, stack)
	}
	if c := l.active; c != nil { // its event was not worked off
		l.active = nil
		l.settle(c)
		if c.due() {
			l.wantTurn(c)
		}
	}
}

func (l *loop) panicked(reason any, stack []byte) {
	if l.opt.Panicked != nil {
		l.opt.Panicked(reason, stack)
	}
}

// finish runs what was accepted before the end and closes everything. It reports false if it has to be called again
// because something panicked.
func (l *loop) finish() (done bool) {
	defer l.recovered()
	for l.at < len(l.queue) || l.refill() || !l.seal() {
		if l.at == len(l.queue) {
			continue // posted while we looked
		}
		if l.surplus++; l.surplus == stopLimit {
			l.seal()
		}
		t := l.queue[l.at]
		l.queue[l.at] = task{}
		l.at++
		l.runTask(t)
	}
	for len(l.acceptors) > 0 {
		l.acceptors[0].Close()
	}
	for len(l.conns) > 0 {
		l.conns[len(l.conns)-1].Close()
	}
	l.publish()
	l.poll.close()
	return true
}

// seal makes Post refuse from now on, unless a task was accepted meanwhile that must run first. After stopLimit tasks it
// does so in any case: what was accepted until then still runs, but nothing can keep the loop from ending.
func (l *loop) seal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = l.stopped || len(l.in) == 0 || l.surplus >= stopLimit
	return l.stopped && len(l.in) == 0
}
