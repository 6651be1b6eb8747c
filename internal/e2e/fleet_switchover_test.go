package e2e

import (
	"syscall"
	"testing"
	"time"

	"fencepost/soak/fleet"
	"fencepost/soak/fleet/network"
)

// The member that was given SWITCHOVER is lost while writes are paused: the others go on by themselves, their clients see no
// error, nothing stays paused, and another SWITCHOVER works.
func TestSwitchoverStarterIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how string
		run func(*testing.T)
	}{{"killed", starterKilled}, {"frozen", starterFrozen}, {"frozen for a moment", starterFrozenForAMoment}, {"cut off", starterCutOff}} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func starterKilled(t *testing.T) {
	p := startPlanned(t, fleet.Config{})
	first, others := p.Members[0], p.Members[1:]
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	p.resumed(lost, p.writers[1:]...)
	p.free(p.Servers[0], others...)
	p.missed(others...)
	primary := p.another(true)
	p.write(primary, p.writers[1:]...)
	p.unharmed(p.writers[1:]...)
	p.free(primary, others...)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Whole(t.Context(), primary); err != nil {
		t.Error(err)
	}
	p.write(primary, p.writers[0])
}

func freeze(t *testing.T, m *fleet.Member) {
	t.Helper()
	if err := m.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Signal(syscall.SIGCONT) }) //nolint:errcheck // it may have gone on
}

// It goes on when the others have another primary already.
func starterFrozen(t *testing.T) {
	p := startPlanned(t, fleet.Config{})
	first, others := p.Members[0], p.Members[1:]
	freeze(t, first)
	lost := time.Now()
	p.resumed(lost, p.writers[1:]...)
	p.free(p.Servers[0], others...)
	p.missed(others...)
	primary := p.another(true)
	p.write(primary, p.writers[1:]...)
	<-time.After(time.Until(lost.Add(15 * time.Second)))
	thawed := time.Now()
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.await("the first SWITCHOVER has been given up", p.order.ended)
	t.Logf("SWITCHOVER said after %s: %v", time.Since(thawed).Round(time.Millisecond), detail(p.order.err))
	if err := p.Whole(t.Context(), primary); err != nil {
		t.Error(err)
	}
	p.write(primary, p.writers...)
	p.free(primary, p.Members...)
	p.calm(thawed, p.Members...)
	p.unharmed(p.writers[1:]...)
	t.Logf("errors of the frozen member's clients: %v", p.writers[0].Codes())
}

// It comes back before it is missed, and another SWITCHOVER came and went meanwhile: its own begins nothing anew.
func starterFrozenForAMoment(t *testing.T) {
	p := startPlanned(t, fleet.Config{})
	first, others := p.Members[0], p.Members[1:]
	freeze(t, first)
	p.resumed(time.Now(), p.writers[1:]...)
	o := p.give(others[0], "SWITCHOVER main 60")
	p.say(2, "writes wait for another primary", others...)
	go o.conn.CancelRequest(t.Context()) //nolint:errcheck // ends when SWITCHOVER has been given up
	p.say(1, "ended: writes resume", others...)
	thawed := time.Now()
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.await("the first SWITCHOVER has been given up", p.order.ended)
	t.Logf("SWITCHOVER said after %s: %s", time.Since(thawed).Round(time.Millisecond), detail(p.order.err))
	p.write(p.Servers[0], p.writers...)
	p.free(p.Servers[0], p.Members...)
	p.calm(thawed, others...) // the first one has yet to read what it was sent
	p.unharmed(p.writers...)
}

// It gives up itself. Another SWITCHOVER comes to nothing while it is cut off, and one works when it is back.
func starterCutOff(t *testing.T) {
	kind, why, err := network.Choose(network.Auto)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the network is %s", why)
	p := startPlanned(t, fleet.Config{Network: kind})
	first, others := p.Members[0], p.Members[1:]
	for _, m := range others {
		if err := p.Net.Cut(first.Name, m.Name); err != nil {
			t.Fatal(err)
		}
	}
	lost := time.Now()
	p.resumed(lost, p.writers...)
	p.await("the first SWITCHOVER has been given up", p.order.ended)
	t.Logf("SWITCHOVER said after %s: %v", time.Since(lost).Round(time.Millisecond), detail(p.order.err))
	if p.order.err == nil {
		t.Error("SWITCHOVER of the member that was cut off succeeded")
	}
	p.free(p.Servers[0], p.Members...)
	p.missed(others...)
	p.givenUp(others[0], "SWITCHOVER main 1 WITHOUT "+p.Members[0].Name) // nobody promotes anything
	healed := time.Now()
	if err := p.Net.HealAll(); err != nil {
		t.Fatal(err)
	}
	if err := p.Whole(t.Context(), p.Servers[0]); err != nil {
		t.Fatal(err)
	}
	p.write(p.Servers[0], p.writers...)
	p.calm(healed, p.Members...)
	primary := p.another(false)
	p.write(primary, p.writers...)
	p.unharmed(p.writers...)
	p.free(primary, p.Members...)
}
