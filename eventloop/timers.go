package eventloop

import "time"

// timerHeap is a binary heap of armed timers, the earliest first; timers of the same instant in the order of arming.
type timerHeap struct {
	heap     []*Timer
	withheld []*Timer // due, but their actor is suspended
	seq      uint32
}

func before(a, b *Timer) bool {
	return a.when < b.when || a.when == b.when && int32(a.seq-b.seq) < 0
}

func (h *timerHeap) arm(t *Timer, when time.Duration) {
	if t.slot != 0 {
		h.disarm(t)
	}
	t.when, t.seq = when, h.seq
	h.seq++
	h.heap = append(h.heap, t)
	t.slot = int32(len(h.heap))
	h.up(len(h.heap) - 1)
}

func (h *timerHeap) disarm(t *Timer) {
	if t.slot < 0 {
		for i, w := range h.withheld {
			if w == t {
				h.withheld = append(h.withheld[:i], h.withheld[i+1:]...)
				break
			}
		}
		t.slot = 0
		return
	}
	i, last := int(t.slot)-1, len(h.heap)-1
	t.slot = 0
	moved := h.heap[last]
	h.heap[last] = nil
	h.heap = h.heap[:last]
	if i == last {
		return
	}
	h.heap[i] = moved
	moved.slot = int32(i) + 1
	if !h.up(i) {
		h.down(i)
	}
}

func (h *timerHeap) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].slot, h.heap[j].slot = int32(i)+1, int32(j)+1
}

func (h *timerHeap) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !before(h.heap[i], h.heap[parent]) {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h *timerHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.heap) {
			return
		}
		if child+1 < len(h.heap) && before(h.heap[child+1], h.heap[child]) {
			child++
		}
		if !before(h.heap[child], h.heap[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

// due takes the earliest timer if its time has come and it was armed before the arming numbered limit, which keeps a
// timer that re-arms itself with no delay from going round for ever. Timers of suspended actors are set aside.
func (h *timerHeap) due(now time.Duration, limit uint32) *Timer {
	for len(h.heap) > 0 {
		t := h.heap[0]
		if t.when > now || int32(t.seq-limit) >= 0 {
			return nil
		}
		h.disarm(t)
		if t.Mailbox == nil || !t.Mailbox.suspended {
			return t
		}
		t.slot = -1
		h.withheld = append(h.withheld, t)
	}
	return nil
}

// release arms the timers that were withheld for the actor of mb again, to fire at once.
func (h *timerHeap) release(mb *Mailbox, now time.Duration) {
	for i := 0; i < len(h.withheld); {
		if t := h.withheld[i]; t.Mailbox == mb {
			h.arm(t, now) // also takes it off the list
		} else {
			i++
		}
	}
}

// SetTimer arms t.
func (l *loop) SetTimer(t *Timer, d time.Duration) {
	l.timers.arm(t, time.Duration(l.clock.Load())+max(d, 0))
}

// StopTimer disarms t.
func (l *loop) StopTimer(t *Timer) {
	if t.slot != 0 {
		l.timers.disarm(t)
	}
}

// fireTimers runs the timers that are due.
func (l *loop) fireTimers() {
	limit := l.timers.seq
	for {
		t := l.timers.due(time.Duration(l.clock.Load()), limit)
		if t == nil {
			return
		}
		l.fire(t)
		l.drain()
	}
}

func (l *loop) fire(t *Timer) {
	l.count.Turns++
	l.owner.mb = t.Mailbox
	t.Fire()
	l.owner = owner{}
}

// untilTimer is the time until the earliest timer is due, negative without one.
func (l *loop) untilTimer() time.Duration {
	if len(l.timers.heap) == 0 {
		return -1
	}
	return max(l.timers.heap[0].when-time.Since(l.base), 0)
}
