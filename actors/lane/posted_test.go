package lane

import (
	"net"
	"testing"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane/pool"
	"fencepost/eventloop"
)

// brokenSockets fails for the first connections it is given.
type brokenSockets struct {
	backend.Sockets
	left int
}

func (s *brokenSockets) Socket(nc net.Conn) (eventloop.Socket, error) {
	if s.left > 0 {
		s.left--
		panic("no socket")
	}
	return s.Sockets.Socket(nc)
}

// A backend that fails on the login it is brought fails as in Receive: its connection is closed, nothing is left dialling.
func TestFailureOnALoginThatWasPosted(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		r.deps.Backend.Group = &brokenSockets{r.deps.Backend.Group, 2}
		p := r.login(0)
		p.ask()
		p.give(p.take(), pool.Clean)
		if row := r.row(0, key); row.Counts[pool.Dialling] != 0 || row.Counts[pool.Idle] != 1 || row.Stats.Losses != 2 {
			t.Errorf("%v backends, %d losses", row.Counts, row.Stats.Losses)
		}
	})
}

// brokenLeases fails when a cancel has ended.
type brokenLeases struct{ backend.Leases }

func (l brokenLeases) Step(now time.Time, ev cancellease.Event) []cancellease.Effect {
	if _, ok := ev.(cancellease.Closed); ok {
		panic("no lease")
	}
	return l.Leases.Step(now, ev)
}

// A backend that fails on the end of a cancel it is brought fails as in Receive: the canceller gets its answer, the holder
// loses the connection, and the next checkout gets another one.
func TestFailureOnTheEndOfACancelThatWasPosted(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(1)
		r.deps.Backend.Leases = func() backend.Leases { return brokenLeases{&cancellease.Machine{}} }
		p := r.login(0)
		p.ask()
		b := p.take()
		done := make(chan struct{}, 1)
		r.system.Root.Send(p.lane, &CancelLease{Backend: b, Cancel: &backend.Cancel{Holder: p, Done: func() { done <- struct{}{} }}})
		get(r.rig, done)
		get(r.rig, p.lost)
		p.give(b, pool.Broken)
		p.ask()
		p.give(p.take(), pool.Clean)
	})
}
