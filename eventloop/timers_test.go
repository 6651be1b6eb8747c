package eventloop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimers(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		l := g.Loop(0)
		var got []int
		done := make(chan struct{})
		var start time.Time
		var late time.Duration
		on(l, func() {
			start = l.Now() // what timers count from
			timers := make([]Timer, 6)
			for i := range timers {
				timers[i].Fire = func() { got = append(got, i) }
			}
			for i, d := range []int{30, 10, 20, 40, 0, 50} {
				l.SetTimer(&timers[i], time.Duration(d)*time.Millisecond)
			}
			l.StopTimer(&timers[2])
			l.StopTimer(&timers[2])
			l.SetTimer(&timers[0], 45*time.Millisecond) // moved
			last := timers[5].Fire
			timers[5].Fire = func() { last(); late = time.Since(start); close(done) }
			if timers[2].Armed() || !timers[0].Armed() {
				t.Error("Armed is wrong")
			}
		})
		get(t, done)
		if !slices.Equal(got, []int{4, 1, 3, 0, 5}) {
			t.Fatalf("fired %v", got)
		}
		if late < 50*time.Millisecond {
			t.Fatalf("50 ms were over after %v", late)
		}
		on(l, func() {
			if n := len(l.(*loop).timers.heap); n != 0 {
				t.Errorf("%d timers armed", n)
			}
		})
	})
}

// A timer that re-arms itself with no delay leaves the loop to the others.
func TestTimerWithoutDelayDoesNotSpin(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		l := g.Loop(0)
		n := 0
		var timer Timer
		timer.Fire = func() { n++; l.SetTimer(&timer, 0) }
		on(l, func() { l.SetTimer(&timer, -time.Second) })
		for range 10 {
			on(l, func() {})
		}
		near, far := tcpPair(t)
		s, err := g.Socket(near)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		on(l, func() { _, err = l.Adopt(s, &hooks{data: func(_ Conn, b []byte) { got <- string(b) }}, nil) })
		if err != nil {
			t.Fatal(err)
		}
		far.Write([]byte("x"))
		get(t, got)
		on(l, func() { l.StopTimer(&timer) })
		before := 0
		on(l, func() { before = n })
		on(l, func() {
			if n != before || timer.Armed() {
				t.Error("fired after StopTimer")
			}
		})
	})
}

// Timers of the same instant fire in the order of arming; thousands of them come out sorted.
func TestTimerHeap(t *testing.T) {
	var h timerHeap
	timers := make([]Timer, 5000)
	for i := range timers {
		h.arm(&timers[i], time.Duration(i*7919%100))
	}
	for i := 0; i < len(timers); i += 3 {
		h.disarm(&timers[i])
	}
	for i := 1; i < len(timers); i += 3 {
		h.arm(&timers[i], time.Duration(i*31%50))
	}
	var last *Timer
	n := 0
	for ; ; n++ {
		next := h.due(1000, h.seq)
		if next == nil {
			break
		}
		if next.Armed() || last != nil && !before(last, next) {
			t.Fatal("out of order")
		}
		last = next
	}
	if want := len(timers) - (len(timers)+2)/3; n != want {
		t.Fatalf("%d timers, want %d", n, want)
	}
}

// The portable loop keeps to a bubble's time.
func TestPortableTimersInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(Options{Kind: Portable})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		fired := make(chan time.Duration)
		timer := Timer{Fire: func() { fired <- time.Since(start) }}
		g.Loop(0).Post(func() { g.Loop(0).SetTimer(&timer, time.Hour) })
		if d := <-fired; d != time.Hour {
			t.Fatalf("fired after %v", d)
		}
		if now := g.Loop(0).Now(); now.Sub(start) != time.Hour {
			t.Fatalf("the loop's time is %v", now.Sub(start))
		}
		g.Stop()
	})
}
