package eventloop

import (
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Pitfall 15: whatever is posted runs, however the post falls into the loop's going to sleep.
func TestNoLostWakeup(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind, Loops: 2})
		const posters, rounds = 4, 3000
		var wg sync.WaitGroup
		for i := range posters {
			l := g.Loop(i % 2)
			batch := 1 // the loop goes to sleep after each
			if i >= 2 {
				batch = 50
			}
			wg.Go(func() {
				ran := make(chan int, batch)
				for k := range rounds {
					if !l.Post(func() { ran <- k }) {
						t.Error("the loop has stopped")
						return
					}
					for i := 0; i < batch && k%batch == batch-1; i++ {
						if got := get(t, ran); got != k-batch+1+i {
							t.Errorf("ran %d, want %d", got, k-batch+1+i)
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// lateWork is a poller to which something is posted while the loop goes to sleep.
type lateWork struct {
	poller
	l       *loop
	woken   bool
	forever bool
}

func (p *lateWork) pending() bool              { p.l.Post(func() {}); return false }
func (p *lateWork) wake()                      { p.woken = true }
func (p *lateWork) wait(timeout time.Duration) { p.forever = timeout < 0 }

// The loop declares to sleep before it looks for work the last time; in the other order a post in between is lost.
func TestPostWhileGoingToSleepWakes(t *testing.T) {
	l := idleLoop()
	p := &lateWork{l: l}
	l.poll = p
	l.wait()
	if p.forever && !p.woken {
		t.Fatal("the loop sleeps with work in its queue")
	}
}

// Loops that post to one another for ever without anybody else must not fall asleep together.
func TestPingPongAcrossLoops(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind, Loops: 2})
		done := make(chan struct{})
		var hop func(n int)
		hop = func(n int) {
			if n == 0 {
				close(done)
				return
			}
			g.Loop(n % 2).Post(func() { hop(n - 1) })
		}
		hop(20_000)
		get(t, done)
	})
}

func TestPostKeepsOrder(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		var got []int
		for i := range 10_000 {
			g.Loop(0).Post(func() { got = append(got, i) })
		}
		on(g.Loop(0), func() {})
		if len(got) != 10_000 || !slices.IsSorted(got) {
			t.Fatalf("%d functions ran, sorted %v", len(got), slices.IsSorted(got))
		}
	})
}

// What Post accepted runs; what it refused never does.
func TestStop(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind, Loops: 2})
		var mu sync.Mutex
		accepted, ran := 0, 0
		var wg sync.WaitGroup
		started := make(chan struct{}, 4)
		for i := range 4 {
			wg.Go(func() {
				for k := 0; ; k++ {
					mu.Lock()
					accepted++
					mu.Unlock()
					if !g.Loop(i % 2).Post(func() { mu.Lock(); ran++; mu.Unlock() }) {
						mu.Lock()
						accepted--
						mu.Unlock()
						return
					}
					if k == 100 {
						started <- struct{}{}
					}
				}
			})
		}
		for range 4 {
			get(t, started)
		}
		g.Stop()
		g.Stop()
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		if accepted != ran {
			t.Fatalf("%d accepted, %d ran", accepted, ran)
		}
		if g.Loop(0).Post(func() { t.Error("ran after the stop") }) {
			t.Fatal("accepted after the stop")
		}
	})
}

// A post that is accepted while the loop ends keeps it from ending before it has run.
func TestNoPostIsAcceptedAndForgotten(t *testing.T) {
	l := idleLoop()
	ran := false
	l.Post(func() { ran = true })
	if l.seal() {
		t.Fatal("ended with work in its queue")
	}
	l.drain()
	if !ran || !l.seal() || l.Post(func() {}) {
		t.Fatal("did not end")
	}
}

func TestStopClosesEverything(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		_, far := r.connect(&hooks{closed: func(Conn, error) { t.Error("a callback after the stop") }}, nil)
		r.on(func() { r.l.(*loop).Stats() })
		r.Stop()
		if n, err := far.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("the socket is still open: %d, %v", n, err)
		}
		if n := r.l.Stats().Conns; n != 0 {
			t.Fatalf("%d connections", n)
		}
	})
}

// An idle loop is alive although it does not wake up; one whose callback does not return is not.
func TestHeartbeat(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		l := g.Loop(0)
		stuck, release := make(chan time.Time), make(chan struct{})
		on(l, func() {})
		deadline := time.Now().Add(20 * time.Second)
		for !l.(*loop).waiting.Load() {
			if time.Now().After(deadline) {
				t.Fatal("the loop never waits")
			}
			runtime.Gosched()
		}
		asked := time.Now()
		if h := l.Stats().Heartbeat; h.Before(asked) {
			t.Fatalf("idle, but last seen %v ago", asked.Sub(h))
		}
		l.Post(func() { stuck <- time.Now(); <-release })
		since := get(t, stuck)
		for time.Since(since) < 20*time.Millisecond {
			runtime.Gosched()
		}
		if h := l.Stats().Heartbeat; time.Since(h) < 20*time.Millisecond {
			t.Fatalf("stuck, but seen %v ago", time.Since(h))
		}
		close(release)
	})
}

func TestEpollRaisesGOMAXPROCS(t *testing.T) {
	if defaultKind != Epoll {
		return
	}
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	newGroup(t, Options{Loops: 3})
	if n := runtime.GOMAXPROCS(0); n != 4 {
		t.Fatalf("GOMAXPROCS %d with 3 loops", n)
	}
}

func TestOptions(t *testing.T) {
	seed := uint64(1)
	for _, opt := range []Options{{Kind: "uring"}, {Kind: Epoll, Seed: &seed}} {
		if g, err := NewGroup(opt); err == nil {
			g.Stop()
			t.Fatalf("accepted %+v", opt)
		}
	}
}

// Unbuffered connections in a bubble: whoever waits waits durably, and a peer that does not read holds nobody up.
func TestPortableOverNetPipeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(Options{Kind: Portable})
		if err != nil {
			t.Fatal(err)
		}
		l := g.Loop(0)
		near, far := net.Pipe()
		deaf, _ := net.Pipe()
		end := make(chan error, 1)
		adopt := func(nc net.Conn, h Handler) {
			s, err := g.Socket(nc)
			if err != nil {
				t.Fatal(err)
			}
			on(l, func() {
				c, err := l.Adopt(s, h, nil)
				if err != nil {
					t.Error(err)
				}
				if nc == deaf {
					c.Write([]byte("nobody reads this"))
				}
			})
		}
		adopt(near, &hooks{data: func(c Conn, b []byte) { c.Write(b) }, closed: func(_ Conn, err error) { end <- err }})
		adopt(deaf, &hooks{})
		go far.Write([]byte("hello"))
		b := make([]byte, 5)
		if _, err := io.ReadFull(far, b); err != nil || string(b) != "hello" {
			t.Fatalf("read %q, %v", b, err)
		}
		time.Sleep(time.Hour) // time passes although two goroutines of the loop wait in sockets
		far.Close()
		if err := <-end; err != io.EOF {
			t.Fatalf("closed with %v", err)
		}
		start := time.Now()
		g.Stop()
		if d := time.Since(start); d != streamLinger {
			t.Fatalf("the peer that does not read held the stop up for %v", d)
		}
	})
}
