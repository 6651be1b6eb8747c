package e2e

import (
	"syscall"
	"testing"
	"time"

	"fencepost/soak/fleet"
)

// A process that was frozen while a standby was promoted beside the living primary grants no write on the old one when it goes
// on: what it knew is void, and the hosts are asked first.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	l := startFleet(t, fleet.Config{Members: 1, Alone: true})
	m, old, next := l.Members[0], l.Servers[0], l.Servers[1]
	for range 3 {
		began := time.Now()
		w := l.Write("transaction", 8, m.Addr)
		defer w.End()
		if err := w.Await(t.Context(), 8, old, began); err != nil {
			t.Fatal(err)
		}
		if err := m.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		if err := next.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Until(stopped.Add(4 * time.Second))):
		}
		thawed := time.Now()
		if err := m.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := w.Await(t.Context(), 8, next, thawed); err != nil {
			t.Error(err)
		}
		w.End()
		late, sent := 0, 0
		for _, a := range w.Acks() {
			switch {
			case a.Port != old.Port || a.At.Before(thawed):
			case a.Began.After(stopped.Add(5 * time.Millisecond)):
				late++
			default:
				sent++ // it may have been at the server when the process was stopped: each client has one under way
			}
		}
		t.Logf("after the thaw the old primary acknowledged %d writes that were sent before, %d that were not; errors %v", sent, late, w.Codes())
		if late > 0 {
			t.Errorf("the old primary acknowledged %d writes", late)
		}
		if err := l.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		old, next = next, old
	}
}
