package pool

import (
	"fmt"
	"time"
)

// Check says which of the machine's invariants does not hold; nil if all do.
func (m *Machine) Check(now time.Time) error {
	if err := m.checkSlots(); err != nil {
		return err
	}
	if err := m.checkWaiters(now); err != nil {
		return err
	}
	if m.permits != len(m.slots) {
		return fmt.Errorf("%d permits held for %d slots", m.permits, len(m.slots))
	}
	if m.waiters.n > 0 && len(m.idle) > 0 && !m.paused {
		return fmt.Errorf("%d wait while %d backends are idle", m.waiters.n, len(m.idle))
	}
	if m.paused && len(m.idle) > 0 {
		return fmt.Errorf("%d backends idle in a paused pool", len(m.idle))
	}
	return nil
}

func (m *Machine) checkSlots() error {
	var counts [Closing + 1]int
	seen := map[*Slot]bool{}
	for i, s := range m.slots {
		if s.index != i {
			return fmt.Errorf("slot %d says it is at %d", i, s.index)
		}
		if s.state < Dialling || s.state > Closing {
			return fmt.Errorf("slot %d is in state %d", i, s.state)
		}
		if seen[s] {
			return fmt.Errorf("slot %d is there twice", i)
		}
		seen[s] = true
		counts[s.state]++
	}
	counts[0] = m.counts[0] // of what was there before it had a state
	if counts != m.counts {
		return fmt.Errorf("counts %v, counted %v", m.counts, counts)
	}
	idle := map[*Slot]bool{}
	for i, s := range m.idle {
		switch {
		case s.state != Idle:
			return fmt.Errorf("a %s slot is on the idle list", s.state)
		case idle[s]:
			return fmt.Errorf("a slot is on the idle list twice")
		case i > 0 && s.since.Before(m.idle[i-1].since):
			return fmt.Errorf("the idle list is out of order")
		}
		idle[s] = true
	}
	if len(idle) != counts[Idle] {
		return fmt.Errorf("%d slots are idle, %d on the list", counts[Idle], len(idle))
	}
	return nil
}

func (m *Machine) checkWaiters(now time.Time) error {
	n := 0
	var prev *Waiter
	for w := m.waiters.first; w != nil; w = w.next {
		if w.prev != prev || !w.queued {
			return fmt.Errorf("waiter %v is linked wrongly", w.Owner)
		}
		prev = w
		n++
	}
	if prev != m.waiters.last || n != m.waiters.n {
		return fmt.Errorf("the queue has %d waiters and says %d", n, m.waiters.n)
	}
	return nil
}
