package eventloop

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"unsafe"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/internal/actortest"
)

// pinger sends a message to and fro with another until it has been sent n times.
type pinger struct {
	sys  *actor.ActorSystem
	peer *actor.PID
	n    int
	done chan struct{}
}

type ball struct{}

func (p *pinger) Receive(ctx actor.Context) {
	if b, ok := ctx.Message().(*ball); ok {
		if p.n--; p.n == 0 {
			close(p.done)
			return
		}
		ctx.Send(p.peer, b)
	}
}

func benchmarkMessages(b *testing.B, kind Kind, loops int) {
	g := newGroup(b, Options{Kind: kind, Loops: loops})
	sys := actortest.NewSystem()
	var players [2]*pinger
	var pids [2]*actor.PID
	for i := range players {
		l := g.Loop(i % loops)
		players[i] = &pinger{sys: sys, n: b.N/2 + 1, done: make(chan struct{})}
		on(l, func() {
			pids[i], _ = NewSpawner(l).SpawnNamed(sys.Root, fmt.Sprint(i), func(*Mailbox) actor.Actor { return players[i] })
		})
	}
	players[0].peer, players[1].peer = pids[1], pids[0]
	b.ReportAllocs()
	b.ResetTimer()
	defer reportCPU(b)()
	sys.Root.Send(pids[0], &ball{})
	<-players[0].done
}

// reportCPU adds the CPU time of the process per operation, which says more than the wall time on a busy machine.
func reportCPU(b *testing.B) func() {
	before := processCPU()
	return func() { b.ReportMetric(float64(processCPU()-before)/float64(b.N), "cpu-ns/op") }
}

func BenchmarkMessageSameLoop(b *testing.B) {
	for _, kind := range []Kind{Portable, defaultKind} {
		b.Run(string(kind), func(b *testing.B) { benchmarkMessages(b, kind, 1) })
	}
}

func BenchmarkMessageAcrossLoops(b *testing.B) {
	for _, kind := range []Kind{Portable, defaultKind} {
		b.Run(string(kind), func(b *testing.B) { benchmarkMessages(b, kind, 2) })
	}
}

// BenchmarkMailbox is the mailbox alone, without the actor runtime.
func BenchmarkMailbox(b *testing.B) {
	l := idleLoop()
	n := 0
	mb := l.NewMailbox()
	mb.RegisterHandlers(counter{&n}, l)
	var message any = &ball{}
	b.ReportAllocs()
	for range b.N {
		mb.PostUserMessage(message)
		l.drain()
	}
}

// BenchmarkPost posts from another thread, without waiting for the function to run.
func BenchmarkPost(b *testing.B) {
	for _, kind := range []Kind{Portable, defaultKind} {
		b.Run(string(kind), func(b *testing.B) {
			l := newGroup(b, Options{Kind: kind}).Loop(0)
			n := 0
			fn := func() { n++ }
			b.ReportAllocs()
			defer reportCPU(b)()
			for range b.N {
				l.Post(fn)
			}
			on(l, func() {})
			if n != b.N {
				b.Fatalf("%d of %d ran", n, b.N)
			}
		})
	}
}

// BenchmarkPostAndWait wakes the loop each time.
func BenchmarkPostAndWait(b *testing.B) {
	for _, kind := range []Kind{Portable, defaultKind} {
		b.Run(string(kind), func(b *testing.B) {
			l := newGroup(b, Options{Kind: kind}).Loop(0)
			ran := make(chan struct{}, 1)
			fn := func() { ran <- struct{}{} }
			b.ReportAllocs()
			defer reportCPU(b)()
			for range b.N {
				l.Post(fn)
				<-ran
			}
		})
	}
}

// echoClient sends again as soon as its answer has come, b.N times over all of them.
type echoClient struct {
	left *int
	open *int
	done chan struct{}
	msg  []byte
}

func (e *echoClient) OnData(c Conn, _ []byte) {
	if *e.left > 0 {
		*e.left--
		c.Write(e.msg)
		return
	}
	if *e.open--; *e.open == 0 {
		close(e.done)
	}
}
func (e *echoClient) OnDrained(Conn)           {}
func (e *echoClient) OnClosed(c Conn, _ error) { c.Close() }

type echoServer struct{}

func (echoServer) OnData(c Conn, b []byte)    { c.Write(b) }
func (echoServer) OnDrained(Conn)             {}
func (echoServer) OnClosed(c Conn, err error) { c.Close() }

// BenchmarkEcho is one round trip of 100 bytes over loopback TCP, with all connections busy: clients on one loop, the
// server on another.
func BenchmarkEcho(b *testing.B) {
	for _, kind := range []Kind{Portable, defaultKind} {
		for _, conns := range []int{1, 64, 2000} {
			b.Run(fmt.Sprintf("%s/%d", kind, conns), func(b *testing.B) {
				g := newGroup(b, Options{Kind: kind, Loops: 2})
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				addr := ln.Addr().String()
				on(g.Loop(0), func() {
					_, err = g.Loop(0).Listen(ln, func(s Socket) { g.Loop(0).Adopt(s, echoServer{}, nil) }, nil)
				})
				if err != nil {
					b.Fatal(err)
				}
				left, open := b.N-conns, conns
				h := &echoClient{left: &left, open: &open, done: make(chan struct{}), msg: pattern(100)}
				var all []Conn
				for range conns {
					nc, err := net.Dial("tcp", addr)
					if err != nil {
						b.Fatal(err)
					}
					s, err := g.Socket(nc)
					if err != nil {
						b.Fatal(err)
					}
					on(g.Loop(1), func() {
						c, _ := g.Loop(1).Adopt(s, h, nil)
						all = append(all, c)
					})
				}
				b.ReportAllocs()
				b.ResetTimer()
				cpu := reportCPU(b)
				g.Loop(1).Post(func() {
					for _, c := range all {
						c.Write(h.msg)
					}
				})
				<-h.done
				b.StopTimer()
				cpu()
				st := g.Loop(0).Stats()
				b.ReportMetric(float64(st.Reads)/float64(b.N), "reads/op")
				b.ReportMetric(float64(st.Waits)/float64(b.N), "waits/op")
			})
		}
	}
}

// BenchmarkTimer arms and disarms among ten thousand.
func BenchmarkTimer(b *testing.B) {
	l := idleLoop()
	timers := make([]Timer, 10_000)
	for i := range timers {
		l.timers.arm(&timers[i], 1<<40+1)
	}
	b.ReportAllocs()
	for i := range b.N {
		l.SetTimer(&timers[i%len(timers)], 1<<30)
	}
}

// An idle session's share of this package; there are tens of thousands of sessions.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(conn{}); n > 192 {
		t.Errorf("a connection takes %d bytes", n)
	}
	if n := unsafe.Sizeof(Mailbox{}); n > 128 {
		t.Errorf("a mailbox takes %d bytes", n)
	}
	if n := unsafe.Sizeof(Timer{}); n > 32 {
		t.Errorf("a timer takes %d bytes", n)
	}
}

// Reading, holding, writing and messages to an actor allocate nothing once everything has its size.
func TestNoAllocationOnTheHotPath(t *testing.T) {
	if defaultKind != Epoll {
		return // a portable loop's streams are outside of this promise
	}
	g := newGroup(t, Options{})
	l := g.Loop(0)
	near, far := tcpPair(t)
	s, err := g.Socket(near)
	if err != nil {
		t.Fatal(err)
	}
	box := l.NewMailbox()
	n := 0
	box.RegisterHandlers(counter{&n}, l)
	msg := any(&ball{})
	wake := make(chan struct{}, 1)
	var timer Timer
	timer.Fire = func() { wake <- struct{}{} }
	h := &hooks{data: func(c Conn, b []byte) {
		if len(b) < 200 {
			c.Stash(b)
			box.PostUserMessage(msg)
			return
		}
		c.Write(b)
		l.SetTimer(&timer, 0)
	}}
	on(l, func() { _, err = l.Adopt(s, h, nil) })
	if err != nil {
		t.Fatal(err)
	}
	half, whole := pattern(100), make([]byte, 200)
	round := func() {
		for range 2 {
			far.Write(half)
			runtime.Gosched()
		}
		<-wake
		far.Read(whole)
	}
	// Not testing.AllocsPerRun: it sets GOMAXPROCS to 1, and the loop would keep the only processor while it waits.
	allocations := func(rounds int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			round()
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	allocations(100)
	if a := allocations(500); a > 50 {
		t.Fatalf("%d allocations in 500 rounds", a)
	}
}
