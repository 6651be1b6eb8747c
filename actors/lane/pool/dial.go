package pool

import "time"

// firstRetry is the wait after the first failed connect; it doubles up to Config.RetryMax.
const firstRetry = 100 * time.Millisecond

// wanted is how many backends should be opened now.
func (m *Machine) wanted(now time.Time) int {
	if m.paused || m.cfg.NoHost || now.Before(m.retryAt) {
		return 0
	}
	n := 0
	if w := m.waiters.n - m.counts[Dialling] - len(m.idle); w > 0 {
		n = w
	}
	keep := m.warm
	if !m.draining {
		keep = max(keep, m.cfg.MinSize)
	}
	if k := keep - (len(m.slots) - m.counts[Closing]); k > n {
		n = k
	}
	if room := m.cfg.Concurrency - m.counts[Dialling]; n > room {
		n = room
	}
	// One probe at a time while the server refuses, or nothing comes of what it accepts.
	if m.failures+m.setbacks > 0 && n > 1-m.counts[Dialling] {
		n = 1 - m.counts[Dialling]
	}
	return max(n, 0)
}

// dial opens backends as far as permits go, asks for the permits that are missing, and returns those it cannot use.
func (m *Machine) dial(now time.Time) {
	n := m.wanted(now)
	spare := m.permits - len(m.slots)
	for ; n > 0 && spare > 0; n, spare = n-1, spare-1 {
		m.seq++
		s := &Slot{state: Dialling, since: now, index: len(m.slots), lifeShare: m.seq*61%201 - 100}
		m.slots = append(m.slots, s)
		m.counts[Dialling]++
		m.emit(Effect{Kind: Dial, Slot: s})
	}
	for ; spare > 0; spare-- {
		m.permits--
		m.emit(Effect{Kind: ReturnPermit})
	}
	if n > 0 {
		m.emit(Effect{Kind: WantPermits, N: n})
	}
}

func (m *Machine) dialFailed(now time.Time, s *Slot) {
	if !m.mine(s) {
		return
	}
	if s.state == Closing { // it was aborted: says nothing about the server
		m.forget(s)
		m.dial(now)
		return
	}
	if s.state != Dialling {
		m.bug()
		return
	}
	// Connects that failed together count once.
	if !now.Before(m.retryAt) {
		m.retryAt = now.Add(m.backOff(m.failures))
		m.failures++
	}
	m.forget(s)
	m.dial(now)
}

func (m *Machine) backOff(before int) time.Duration {
	wait := firstRetry << min(before, 20)
	if m.cfg.RetryMax > 0 {
		wait = min(wait, m.cfg.RetryMax)
	}
	return wait
}

// setbackMax bounds the wait after backends that were of no use: the server can be reached, and may become of use at any
// moment.
const setbackMax = time.Second

func (m *Machine) setback(now time.Time) {
	if !now.Before(m.retryAt) {
		m.retryAt = now.Add(min(m.backOff(m.setbacks), setbackMax))
		m.setbacks++
	}
}

// tick refuses waiters whose time is over, closes backends that were idle or alive too long, and retries connects.
func (m *Machine) tick(now time.Time) {
	for w := m.waiters.first; w != nil; {
		next := w.next
		if !w.Deadline.IsZero() && !now.Before(w.Deadline) {
			m.waiters.remove(w)
			m.emit(Effect{Kind: Refuse, Waiter: w})
		}
		w = next
	}
	for i := 0; i < len(m.idle); {
		s := m.idle[i]
		switch {
		case m.tooOld(now, s):
			m.lastLife = now
			m.close(now, s, WhyLifetime)
		case m.cfg.IdleTimeout > 0 && len(m.slots)-m.counts[Closing] > max(m.cfg.MinSize, m.warm) &&
			now.Sub(s.since) >= jitter(m.cfg.IdleTimeout, s.lifeShare):
			m.close(now, s, WhyIdle)
		default:
			i++
		}
	}
	m.dial(now)
}

// tooOld applies the lifetime. Closes for age are at least Lifetime/PoolSize apart, as PgBouncer spaces them, so that
// backends opened in one burst do not all end in one.
func (m *Machine) tooOld(now time.Time, s *Slot) bool {
	if m.cfg.Lifetime <= 0 || now.Sub(s.opened) < jitter(m.cfg.Lifetime, s.lifeShare) {
		return false
	}
	return m.cfg.PoolSize <= 0 || now.Sub(m.lastLife) >= m.cfg.Lifetime/time.Duration(m.cfg.PoolSize)
}

// jitter spreads d by up to -10 %: limits are never exceeded by it.
func jitter(d time.Duration, share int64) time.Duration {
	return d - d/2000*time.Duration(share+100)
}

func (m *Machine) configure(now time.Time, cfg Config) {
	if cfg.Concurrency < 1 {
		cfg.Concurrency = 1
	}
	m.cfg = cfg
	m.serve(now)
}
