package pool

import (
	"slices"
	"testing"
	"time"
)

func opened(t *testing.T, cfg Config, n int) (*Machine, []*Slot, time.Time) {
	t.Helper()
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New(cfg)
	m.Step(now, Warm{n})
	var slots []*Slot
	for _, e := range m.Step(now, Permits{n}) {
		slots = append(slots, e.Slot)
	}
	for _, s := range slots {
		m.Step(now, Opened{s})
	}
	m.Step(now, Warm{0})
	if m.Count(Idle) != n {
		t.Fatalf("%d of %d backends are idle", m.Count(Idle), n)
	}
	return m, slots, now
}

// Checkout and checkin run once a transaction: no allocation, whether or not somebody waits.
func TestCheckoutAllocatesNothing(t *testing.T) {
	for _, roundRobin := range []bool{false, true} {
		m, _, now := opened(t, Config{Concurrency: 8, RoundRobin: roundRobin, Lifetime: time.Hour, IdleTimeout: time.Hour}, 4)
		w := &Waiter{Deadline: now.Add(time.Hour)}
		if n := testing.AllocsPerRun(1000, func() {
			e := m.Checkout(now, w)
			if len(e) != 1 || e[0].Kind != Grant {
				t.Fatal("not granted")
			}
			m.Checkin(now, e[0].Slot, Clean)
		}); n != 0 {
			t.Errorf("round-robin %v: a checkout of an idle backend allocates %v times", roundRobin, n)
		}
	}
	// One backend, three clients that take turns: every checkout waits.
	m, slots, now := opened(t, Config{Concurrency: 8}, 1)
	waiters := []*Waiter{{}, {}, {}}
	for _, w := range waiters {
		m.Checkout(now, w)
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		e := m.Checkin(now, slots[0], Clean)
		if len(e) != 1 || e[0].Kind != Grant {
			t.Fatal("not granted")
		}
		m.Checkout(now, waiters[i%3])
		i++
	}); n != 0 {
		t.Errorf("a checkout that waits allocates %v times", n)
	}
}

func TestOldestWait(t *testing.T) {
	m := New(Config{})
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	if !m.OldestWait().IsZero() {
		t.Error("nobody waits, and somebody has for a while")
	}
	a, b := &Waiter{Enqueued: now}, &Waiter{Enqueued: now.Add(time.Second)}
	m.Checkout(now, a)
	m.Checkout(now, b)
	if m.OldestWait() != a.Enqueued {
		t.Error("the oldest wait is not the first waiter's")
	}
	m.Step(now, Abandon{a})
	if m.OldestWait() != b.Enqueued {
		t.Error("the oldest wait is not that of who is left")
	}
}

// A lane that ends answers everybody who waits, in order.
func TestShut(t *testing.T) {
	m := New(Config{})
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	want := []*Waiter{{}, {}, {}}
	for _, w := range want {
		m.Checkout(now, w)
	}
	if got := m.Shut(); !slices.Equal(got, want) {
		t.Errorf("got %d waiters", len(got))
	}
	if m.Waiting() != 0 || want[0].Queued() {
		t.Error("somebody still waits")
	}
}

// Failing says that nothing is open and the last connect failed: what a waiter at its deadline is told.
func TestFailing(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New(Config{Concurrency: 8})
	m.Checkout(now, &Waiter{})
	m.Checkout(now, &Waiter{})
	e := slices.Clone(m.Step(now, Permits{2}))
	if m.Failing() {
		t.Error("failing before anything failed")
	}
	m.Step(now, DialFailed{e[0].Slot})
	if !m.Failing() {
		t.Error("not failing after a failed connect with nothing open")
	}
	m.Step(now, Opened{e[1].Slot})
	if m.Failing() {
		t.Error("failing with a backend open")
	}
}

// Backends opened together get limits of their own, spread over the tenth before the limit, none beyond it.
func TestLimitsAreSpread(t *testing.T) {
	const lifetime = time.Hour
	m, slots, now := opened(t, Config{Concurrency: 200, Lifetime: lifetime}, 200)
	ends := map[time.Duration]int{}
	for _, s := range slots {
		d := jitter(lifetime, s.lifeShare)
		if d > lifetime || d < lifetime*9/10 {
			t.Fatalf("a lifetime of %v", d)
		}
		ends[d.Truncate(36*time.Second)]++
		if m.tooOld(now.Add(d-1), s) || !m.tooOld(now.Add(d), s) {
			t.Fatalf("not too old after %v exactly", d)
		}
	}
	for at, n := range ends {
		if n > 40 {
			t.Errorf("%d of 200 end within 36 s of %v", n, at)
		}
	}
	if len(ends) < 8 {
		t.Errorf("all end in %d spans of 36 s", len(ends))
	}
}
