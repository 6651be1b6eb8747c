// Package pool decides, for one lane (a pool's part on one event loop), who gets which backend and when one is opened or
// closed. It is pure: events in, effects out; the lane actor executes the effects.
//
// A backend's record (Slot) goes through these states:
//
//	Dialling --Opened--> Idle --grant--> Leased --Checkin clean--> Idle
//	    |                                  |------Checkin dirty--> Cleaning --Cleaned--> Idle
//	    +--DialFailed--> gone              +------Checkin broken-> Closing
//	    +--Abort--> Closing
//	any state --Lost--> gone               Closing --Lost, DialFailed--> gone
//
// Invariants, checked by Check: a backend has one holder; idle + leased + cleaning + dialling + closing are all the slots
// there are and never more than the permits held; nobody waits while a backend is idle and the pool is not paused; each
// Waiter gets exactly one Grant or Refuse unless it was abandoned; waiters are served in the order they came.
package pool

import "time"

// Waiter is one checkout in the queue. Its memory belongs to the caller, who must not touch it between Checkout and the
// Grant, Refuse or Abandon that ends it.
type Waiter struct {
	Owner    any       // whatever the lane needs to answer
	Req      uint64    // the holder's request id
	Enqueued time.Time // when the client's message came
	Deadline time.Time // zero: none
	// Turn is its place in the order of the lane: one who comes back stands before everybody with a higher one.
	Turn uint64

	prev, next *Waiter
	queued     bool
}

// Queued reports whether the waiter is in a queue.
func (w *Waiter) Queued() bool { return w.queued }

// State of a Slot.
type State uint8

// The states of a slot.
const (
	Dialling State = iota + 1
	Idle
	Leased
	Cleaning
	Closing
)

var stateNames = [...]string{"gone", "dialling", "idle", "leased", "cleaning", "closing"}

func (s State) String() string { return stateNames[s] }

// Slot is the record of one backend. Its memory belongs to the caller; the fields are the machine's.
type Slot struct {
	Owner any // whatever the lane needs to find the backend

	state     State
	opened    time.Time // login finished
	since     time.Time // entered the present state
	retire    bool      // to be closed instead of becoming idle again
	lifeShare int64     // -100..100: where in the jitter of lifetime and idle timeout this backend stands
	yielding  bool      // closing because another lane waits for its permit
	index     int       // in Machine.slots
}

// State of the backend.
func (s *Slot) State() State { return s.state }

// Since is when the backend entered its state.
func (s *Slot) Since() time.Time { return s.since }

// Retiring reports whether the backend will be closed instead of being granted again.
func (s *Slot) Retiring() bool { return s.retire }

// Config are the limits of a lane. Zero durations mean: no limit.
type Config struct {
	MinSize     int           // backends kept open
	IdleTimeout time.Duration // an idle backend above MinSize is closed after this (server_idle_timeout)
	Lifetime    time.Duration // a backend older than this is closed when idle (server_lifetime)
	RetryMax    time.Duration // upper bound of the back-off after failed connects (server_login_retry)
	Concurrency int           // connects under way at a time, at least 1 (connect_concurrency)
	RoundRobin  bool          // grant the backend idle longest instead of the one idle shortest
	PoolSize    int           // the whole pool's size: spreads lifetime closes
	NoHost      bool          // there is no server to connect to: waiters wait
}

// Condition of a backend at checkin.
type Condition uint8

// The conditions.
const (
	Clean  Condition = iota // at rest, nothing of the last holder on it
	Dirty                   // must be cleaned before it is granted again
	Broken                  // must be closed
)

// Machine is the state of one lane. Not safe for concurrent use.
type Machine struct {
	cfg     Config
	waiters list
	idle    []*Slot // oldest first
	slots   []*Slot
	counts  [Closing + 1]int
	permits int // held from the coordinator, slots included

	warm     int // backends wanted although nobody waits
	yield    int // permits other lanes wait for: as many backends are closed as they come to rest …
	yielding int // … of which so many are closing
	share    int // … as long as more than this are left
	paused   bool
	draining bool
	failures int       // connects failed in a row
	setbacks int       // backends that were of no use after they had been opened, since one was
	retryAt  time.Time // no connect before this
	lastLife time.Time // last close for age
	seq      int64
	effects  []Effect
	bugs     int
}

// New makes an empty lane.
func New(cfg Config) *Machine {
	if cfg.Concurrency < 1 {
		cfg.Concurrency = 1
	}
	return &Machine{cfg: cfg}
}

// Count is the number of backends in a state.
func (m *Machine) Count(s State) int { return m.counts[s] }

// Size is the number of backends, whatever their state.
func (m *Machine) Size() int { return len(m.slots) }

// Waiting is the number of waiters.
func (m *Machine) Waiting() int { return m.waiters.n }

// OldestWait is when the first waiter came; zero if nobody waits.
func (m *Machine) OldestWait() time.Time {
	if m.waiters.first == nil {
		return time.Time{}
	}
	return m.waiters.first.Enqueued
}

// Failing reports whether the last connect failed and none is open.
func (m *Machine) Failing() bool {
	return m.failures > 0 && len(m.slots) == m.counts[Dialling]
}

// Slots calls f for every backend.
func (m *Machine) Slots(f func(*Slot)) {
	for _, s := range m.slots {
		f(s)
	}
}

// Paused reports whether grants are held back.
func (m *Machine) Paused() bool { return m.paused }

// Busy reports whether the lane still has work: waiters, or backends that are not idle.
func (m *Machine) Busy() bool {
	return m.waiters.n > 0 || m.counts[Leased]+m.counts[Cleaning]+m.counts[Dialling]+m.counts[Closing] > 0
}

// BackingOff reports whether no connect is tried now because the last one failed.
func (m *Machine) BackingOff(now time.Time) bool { return now.Before(m.retryAt) }

// mine reports whether a slot belongs to this machine: after a restart of the lane answers for the slots of the machine
// before it may still come in.
func (m *Machine) mine(s *Slot) bool {
	return s != nil && s.state != 0 && s.index < len(m.slots) && m.slots[s.index] == s
}

// Waiters returns who waits, in order; nil if nobody does.
func (m *Machine) Waiters() []*Waiter {
	var all []*Waiter
	for w := m.waiters.first; w != nil; w = w.next {
		all = append(all, w)
	}
	return all
}

// Withdraw takes those waiters out of the queue that pick chooses, and returns them in order. Nothing answers them: they
// go to another machine by Rejoin, or the caller answers.
func (m *Machine) Withdraw(pick func(*Waiter) bool) []*Waiter {
	var out []*Waiter
	for w := m.waiters.first; w != nil; {
		next := w.next
		if pick(w) {
			m.waiters.remove(w)
			out = append(out, w)
		}
		w = next
	}
	return out
}

// Shut takes every waiter out of the queue, for a lane that ends. The caller answers them.
func (m *Machine) Shut() []*Waiter {
	var all []*Waiter
	for m.waiters.n > 0 {
		all = append(all, m.waiters.pop())
	}
	return all
}

func (m *Machine) enter(s *Slot, st State, now time.Time) {
	m.counts[s.state]--
	m.counts[st]++
	s.state, s.since = st, now
}
