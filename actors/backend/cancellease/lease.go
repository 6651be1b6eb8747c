// Package cancellease says when a backend for which cancels were sent may be handed on. It is pure.
//
// PostgreSQL's cancel names a server process, not a statement: one that is still on its way when its backend has gone to
// the next client cancels that client's statement. So a cancel takes a lease on the backend before a byte of it leaves,
// and the backend is not handed on until PostgreSQL has closed the cancel connection: by then the signal has been sent,
// and a process that is idle when it gets it ignores it (PostgreSQL: ProcessInterrupts while DoingCommandRead).
//
//	Taken --Sent, Closed--> gone            the server closed: done
//	      --Failed, nothing sent--> gone    no byte left: nothing can arrive
//	      --Failed, something sent--> gone, spoiled     it may arrive at any time
//	      --limit over--> gone, spoiled                 (cancel_ack_timeout)
//
// Leases are counted, so that two stack. A spoiled backend is never handed on again: it is closed as soon as nobody holds
// it. A lease belongs to the holder it was taken for: when that holder has left the backend no packet leaves any more.
package cancellease

import (
	"fmt"
	"time"
)

// MaxInFlight bounds the cancels on their way for one backend. More of them would not cancel any better.
const MaxInFlight = 4

// Event is what happens to a backend's leases.
type Event interface{ event() }

type (
	// Take asks for a lease on behalf of Holder. Answered by Send or Drop.
	Take struct {
		ID     uint64
		Holder uint64 // number of the holding the cancel is meant for
	}
	// Closed says that the server closed the cancel connection.
	Closed struct{ ID uint64 }
	// Failed says that the attempt ended otherwise. Sent: at least a byte may have left.
	Failed struct {
		ID      uint64
		Sent    bool
		Timeout bool
	}
	// Held says that a new holding begins, Left that it ended.
	Held struct{ Holder uint64 }
	// Left says that the holder has left the backend.
	Left struct{}
)

func (Take) event()   {}
func (Closed) event() {}
func (Failed) event() {}
func (Held) event()   {}
func (Left) event()   {}

// Kind says what an Effect asks for.
type Kind uint8

// The effects.
const (
	Send    Kind = iota + 1 // send the cancel ID; answered by Closed or Failed
	Drop                    // the cancel ID is not sent: nobody holds the backend any more, or too many are on their way
	End                     // the lease ID is over, with Outcome
	Free                    // no lease is left: a backend nobody holds may be handed on
	Spoiled                 // the backend must not be handed on again
	Bug                     // an event came that cannot happen here
)

var kindNames = [...]string{"", "send", "drop", "end", "free", "spoiled", "bug"}

func (k Kind) String() string { return kindNames[k] }

// Outcome of a cancel.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota // the server took it
	NotSent                  // the server could not be reached: no byte left
	Uncertain                // it failed after something may have left
	TimedOut                 // the server did not close the connection in time
	Dropped                  // the holder had left, or too many were on their way
	Outcomes  = int(Dropped) + 1
)

var outcomeNames = [...]string{"delivered", "not_sent", "uncertain", "timed_out", "dropped"}

func (o Outcome) String() string { return outcomeNames[o] }

// Effect is one thing to do.
type Effect struct {
	Kind    Kind
	ID      uint64
	Outcome Outcome
	Took    time.Duration // of a lease that is over
}

func (e Effect) String() string {
	switch e.Kind {
	case Send, Drop:
		return fmt.Sprintf("%s %d", e.Kind, e.ID)
	case End:
		return fmt.Sprintf("end %d %s after %s", e.ID, e.Outcome, e.Took)
	}
	return e.Kind.String()
}

// Machine has the leases of one backend. The zero value is ready: nobody holds the backend.
type Machine struct {
	holder  uint64 // 0: nobody
	taken   []taken
	spoiled bool
	bugs    int
}

type taken struct {
	id    uint64
	since time.Time
}

// InFlight is the number of leases.
func (m *Machine) InFlight() int { return len(m.taken) }

// Spoiled reports whether the backend must be closed instead of handed on.
func (m *Machine) Spoiled() bool { return m.spoiled }

// MayBeHandedOn reports whether the next holder may have the backend.
func (m *Machine) MayBeHandedOn() bool { return len(m.taken) == 0 && !m.spoiled && m.holder == 0 }

// Step feeds one event to the machine and returns what is to be done, in order.
func (m *Machine) Step(now time.Time, ev Event) []Effect {
	switch e := ev.(type) {
	case Take:
		return m.take(now, e)
	case Closed:
		return m.end(now, e.ID, Delivered)
	case Failed:
		switch {
		case !e.Sent:
			return m.end(now, e.ID, NotSent)
		case e.Timeout:
			return m.end(now, e.ID, TimedOut)
		}
		return m.end(now, e.ID, Uncertain)
	case Held:
		if !m.Hold(e.Holder) {
			return m.bug()
		}
	case Left:
		m.Leave()
		if m.spoiled {
			return []Effect{{Kind: Spoiled}}
		}
	default:
		return m.bug()
	}
	return nil
}

// Hold is Step(Held) without the allocation of the event: it runs once a transaction. It reports false if the backend may
// not be handed on: then no later holder may have it either.
func (m *Machine) Hold(holder uint64) bool {
	ok := m.MayBeHandedOn()
	m.spoiled = m.spoiled || !ok
	m.holder = holder
	return ok
}

// Leave is Step(Left), likewise.
func (m *Machine) Leave() { m.holder = 0 }

func (m *Machine) take(now time.Time, e Take) []Effect {
	if m.find(e.ID) >= 0 {
		return m.bug()
	}
	if e.Holder == 0 || e.Holder != m.holder || len(m.taken) >= MaxInFlight {
		return []Effect{{Kind: Drop, ID: e.ID, Outcome: Dropped}}
	}
	m.taken = append(m.taken, taken{e.ID, now})
	return []Effect{{Kind: Send, ID: e.ID}}
}

func (m *Machine) end(now time.Time, id uint64, o Outcome) []Effect {
	i := m.find(id)
	if i < 0 {
		return m.bug()
	}
	out := []Effect{{Kind: End, ID: id, Outcome: o, Took: now.Sub(m.taken[i].since)}}
	m.taken = append(m.taken[:i], m.taken[i+1:]...)
	if o == Uncertain || o == TimedOut {
		m.spoiled = true
	}
	switch {
	case m.spoiled && m.holder == 0:
		out = append(out, Effect{Kind: Spoiled})
	case len(m.taken) == 0 && m.holder == 0:
		out = append(out, Effect{Kind: Free})
	}
	return out
}

func (m *Machine) find(id uint64) int {
	for i := range m.taken {
		if m.taken[i].id == id {
			return i
		}
	}
	return -1
}

func (m *Machine) bug() []Effect {
	m.bugs++
	return []Effect{{Kind: Bug}}
}
