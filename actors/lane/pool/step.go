package pool

import "time"

// Checkout is Step(Checkout{w}) without the allocation of the event: it runs once a transaction.
func (m *Machine) Checkout(now time.Time, w *Waiter) []Effect {
	m.effects = m.effects[:0]
	m.checkout(now, w)
	return m.effects
}

// Checkin is Step(Checkin{s, c}) without the allocation of the event: it runs once a transaction.
func (m *Machine) Checkin(now time.Time, s *Slot, c Condition) []Effect {
	m.effects = m.effects[:0]
	m.checkin(now, s, c)
	return m.effects
}

// Step feeds one event to the machine and returns what is to be done, in order. The slice is valid until the next Step.
func (m *Machine) Step(now time.Time, ev Event) []Effect {
	m.effects = m.effects[:0]
	switch e := ev.(type) {
	case Checkout:
		m.checkout(now, e.Waiter)
	case Spoiled:
		m.spoiled(now, e.Slot, e.Waiter)
	case Warm:
		m.warm = e.N
		m.dial(now)
	case Rejoin:
		m.rejoin(now, e.Waiter)
	case Kick:
		m.failures, m.retryAt = 0, time.Time{}
		m.dial(now)
	case Abort:
		m.abort(now)
	case Abandon:
		if e.Waiter.queued {
			m.waiters.remove(e.Waiter)
		}
	case Checkin:
		m.checkin(now, e.Slot, e.Condition)
	case Opened:
		m.opened(now, e.Slot)
	case DialFailed:
		m.dialFailed(now, e.Slot)
	case Cleaned:
		m.cleaned(now, e.Slot)
	case Lost:
		m.lost(now, e.Slot)
	case Permits:
		m.permits += e.N
		m.dial(now)
	case Tick:
		m.tick(now)
	case Configure:
		m.configure(now, e.Config)
	case Pause:
		m.paused = true
		m.closeIdle(now, WhyPaused)
	case Resume:
		m.paused = false
		m.serve(now)
	case Reconnect:
		m.reconnect(now)
	case Drain:
		m.draining = true
		m.closeIdle(now, WhyDrained)
	case GiveUp:
		m.giveUp(now, e.Share)
	case Retire:
		m.retire(now, e.Slot)
	case Setback:
		m.setback(now)
	default:
		m.bug()
	}
	return m.effects
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

// bug reports an event that cannot happen; nothing is granted on it.
func (m *Machine) bug() {
	m.bugs++
	m.emit(Effect{Kind: Bug})
}

func (m *Machine) checkout(now time.Time, w *Waiter) {
	if w.queued {
		m.bug()
		return
	}
	m.waiters.push(w)
	m.serve(now)
}

// serve grants idle backends to waiters in order and opens what is missing.
func (m *Machine) serve(now time.Time) {
	for m.waiters.n > 0 && len(m.idle) > 0 && !m.paused {
		m.grant(now, m.takeIdle(), m.waiters.pop())
	}
	m.dial(now)
}

func (m *Machine) takeIdle() *Slot {
	if m.cfg.RoundRobin {
		s := m.idle[0]
		m.idle = append(m.idle[:0], m.idle[1:]...)
		return s
	}
	s := m.idle[len(m.idle)-1]
	m.idle = m.idle[:len(m.idle)-1]
	return s
}

func (m *Machine) grant(now time.Time, s *Slot, w *Waiter) {
	m.enter(s, Leased, now)
	m.emit(Effect{Kind: Grant, Slot: s, Waiter: w})
}

func (m *Machine) checkin(now time.Time, s *Slot, c Condition) {
	if !m.mine(s) || s.state == Closing {
		return
	}
	if s.state != Leased {
		m.bug()
		return
	}
	switch {
	case c == Broken:
		m.close(now, s, WhyBroken)
	case c == Dirty:
		m.enter(s, Cleaning, now)
		m.emit(Effect{Kind: Scrub, Slot: s})
	default:
		m.rest(now, s)
	}
	if c != Broken && m.setbacks > 0 { // it was of use: connects need not go one at a time any more
		m.setbacks = 0
		m.dial(now)
	}
}

func (m *Machine) spoiled(now time.Time, s *Slot, w *Waiter) {
	if w.queued {
		m.bug()
		return
	}
	if m.mine(s) && s.state == Leased {
		m.close(now, s, WhyBroken)
	}
	m.waiters.insert(w)
	m.serve(now)
}

func (m *Machine) rejoin(now time.Time, w *Waiter) {
	if w.queued {
		m.bug()
		return
	}
	m.waiters.insert(w)
	m.serve(now)
}

func (m *Machine) abort(now time.Time) {
	for _, s := range m.slots {
		if s.state == Dialling {
			m.close(now, s, WhyRetired)
		}
	}
	m.dial(now)
}

// rest takes back a clean backend: to the next waiter, to the idle ones, or closed if it is due.
func (m *Machine) rest(now time.Time, s *Slot) {
	switch {
	case s.retire:
		m.close(now, s, WhyRetired)
	case m.yield > m.yielding && len(m.slots)-m.counts[Closing] > m.share:
		m.yielding++
		s.yielding = true
		m.close(now, s, WhyYielded)
	case m.draining && m.waiters.n == 0:
		m.close(now, s, WhyDrained)
	case m.paused:
		m.close(now, s, WhyPaused)
	case m.tooOld(now, s):
		m.lastLife = now
		m.close(now, s, WhyLifetime)
		m.dial(now)
	case m.waiters.n > 0 && len(m.idle) == 0:
		m.grant(now, s, m.waiters.pop())
	default:
		m.enter(s, Idle, now)
		m.idle = append(m.idle, s)
		m.serve(now)
	}
}

func (m *Machine) opened(now time.Time, s *Slot) {
	if !m.mine(s) || s.state == Closing {
		return
	}
	if s.state != Dialling {
		m.bug()
		return
	}
	if m.failures = 0; m.setbacks == 0 {
		m.retryAt = time.Time{}
	}
	s.opened = now
	m.rest(now, s)
	if s.state != Idle { // else rest has looked at who waits
		m.dial(now)
	}
}

func (m *Machine) cleaned(now time.Time, s *Slot) {
	switch {
	case !m.mine(s) || s.state == Closing:
	case s.state != Cleaning:
		m.bug()
	default:
		m.rest(now, s)
	}
}

// close asks for a backend's end; the slot is kept, and counted, until Lost says that it is gone.
func (m *Machine) close(now time.Time, s *Slot, why Why) {
	if s.state == Idle {
		m.dropIdle(s)
	}
	m.enter(s, Closing, now)
	m.emit(Effect{Kind: Close, Slot: s, Why: why})
}

func (m *Machine) lost(now time.Time, s *Slot) {
	if !m.mine(s) {
		return
	}
	if s.state == Idle {
		m.dropIdle(s)
	}
	m.forget(s)
	m.dial(now)
}

// forget removes the slot and gives its permit back, unless the lane can use it.
func (m *Machine) forget(s *Slot) {
	m.counts[s.state]--
	s.state = 0
	switch {
	case s.yielding:
		m.yielding--
		m.yield--
	case m.yield > m.yielding: // this permit serves as well
		m.yield--
	}
	last := len(m.slots) - 1
	m.slots[s.index] = m.slots[last]
	m.slots[s.index].index = s.index
	m.slots[last] = nil
	m.slots = m.slots[:last]
	m.permits--
	m.emit(Effect{Kind: ReturnPermit})
}

func (m *Machine) dropIdle(s *Slot) {
	for i, x := range m.idle {
		if x == s {
			m.idle = append(m.idle[:i], m.idle[i+1:]...)
			return
		}
	}
}

func (m *Machine) closeIdle(now time.Time, why Why) {
	for len(m.idle) > 0 {
		m.close(now, m.idle[0], why)
	}
}

// reconnect retires every backend: idle ones are closed now, the others when they come to rest.
func (m *Machine) reconnect(now time.Time) {
	m.closeIdle(now, WhyRetired)
	for _, s := range m.slots {
		if s.state != Closing {
			s.retire = true
		}
	}
	m.dial(now)
}

// retire is reconnect for one backend.
func (m *Machine) retire(now time.Time, s *Slot) {
	switch {
	case !m.mine(s) || s.state == Closing:
	case s.state == Idle:
		m.close(now, s, WhyRetired)
		m.dial(now)
	default:
		s.retire = true
	}
}

// giveUp closes the backend idle longest so that somebody else may use its permit. Where none is idle and the lane has
// more than its share, the next one that comes to rest is closed.
func (m *Machine) giveUp(now time.Time, share int) {
	switch {
	case len(m.idle) > 0 && m.waiters.n == 0:
		m.close(now, m.idle[0], WhyYielded)
	case len(m.slots)-m.counts[Closing]-(m.yield-m.yielding) > max(share, 1):
		m.share = max(share, 1)
		m.yield++
	}
}
