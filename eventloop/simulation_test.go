package eventloop

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/internal/actortest"
	"fencepost/internal/memconn"
)

// The model of the simulation: clients ask sessions over sockets, sessions ask one lane for a permit by message, hold
// it for a while and answer; a session panics at one of its requests. All of it lives on two seeded loops.
type (
	checkout struct{ from *actor.PID }
	granted  struct{}
	checkin  struct{}
)

type simulated struct {
	g     *Group
	sys   *actor.ActorSystem
	trace strings.Builder
	lane  *actor.PID
	left  int // clients that have not finished
	done  chan struct{}
}

func (s *simulated) log(format string, args ...any) { fmt.Fprintf(&s.trace, format+"\n", args...) }

type simLane struct {
	s       *simulated
	free    int
	waiters []*actor.PID
}

func (a *simLane) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *checkout:
		a.waiters = append(a.waiters, m.from)
	case *checkin:
		a.free++
	}
	for a.free > 0 && len(a.waiters) > 0 {
		to := a.waiters[0]
		a.waiters, a.free = a.waiters[1:], a.free-1
		a.s.log("grant %s", to.Id)
		ctx.Send(to, &granted{})
	}
}

type simSession struct {
	s     *simulated
	loop  Loop
	mb    *Mailbox
	conn  Conn
	pid   *actor.PID
	work  Timer
	turns int
	bad   bool
}

func (a *simSession) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *granted:
		a.loop.SetTimer(&a.work, time.Duration(a.turns%3)*time.Millisecond)
	case *actor.Stopping:
		a.s.log("%s stops", a.pid.Id)
		a.loop.StopTimer(&a.work)
		a.conn.Close()
	}
}

func (a *simSession) finish() {
	a.s.log("%s answers %q", a.pid.Id, a.conn.Stashed())
	a.conn.Write(a.conn.Stashed())
	a.conn.Unstash()
	a.conn.Resume()
	a.s.sys.Root.Send(a.s.lane, &checkin{})
}

func (a *simSession) OnData(c Conn, b []byte) {
	a.turns++
	if a.bad && a.turns == 3 {
		panic("the session is lost")
	}
	c.Stash(b)
	c.Pause()
	a.s.sys.Root.Send(a.s.lane, &checkout{from: a.pid})
}
func (a *simSession) OnDrained(Conn) {}
func (a *simSession) OnClosed(_ Conn, err error) {
	a.s.log("%s lost its client: %v", a.pid.Id, err)
	a.s.sys.Root.Stop(a.pid)
}

type simClient struct {
	s    *simulated
	name string
	left int
}

func (a *simClient) OnData(c Conn, b []byte) {
	a.s.log("%s received %q", a.name, b)
	if a.left--; a.left == 0 {
		c.Close()
		a.finished()
		return
	}
	fmt.Fprintf(connWriter{c}, "%s/%d", a.name, a.left)
}
func (a *simClient) OnDrained(Conn) {}
func (a *simClient) OnClosed(c Conn, err error) {
	a.s.log("%s lost: %v", a.name, err)
	c.Close()
	a.finished()
}

func (a *simClient) finished() {
	if a.s.left--; a.s.left == 0 {
		close(a.s.done)
	}
}

type connWriter struct{ c Conn }

func (w connWriter) Write(b []byte) (int, error) { w.c.Write(b); return len(b), nil }

// simulate runs the model with a seed and returns what happened.
func simulate(t *testing.T, seed uint64) string {
	var trace string
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(Options{Seed: &seed, Loops: 2})
		if err != nil {
			t.Fatal(err)
		}
		s := &simulated{g: g, sys: actortest.NewSystem(), done: make(chan struct{})}
		on(g.Loop(0), func() { s.build() })
		select {
		case <-s.done:
		case <-time.After(time.Minute):
			t.Errorf("seed %d: stuck after:\n%s", seed, s.trace.String())
		}
		time.Sleep(time.Second)
		g.Stop()
		trace = s.trace.String()
	})
	return trace
}

func (s *simulated) build() {
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	first, second := NewSpawner(s.g.Loop(0), actor.WithSupervisor(stop)), NewSpawner(s.g.Loop(1))
	s.lane, _ = first.SpawnNamed(s.sys.Root, "lane", func(*Mailbox) actor.Actor { return &simLane{s: s, free: 2} })
	s.left = 6
	first.SpawnNamed(s.sys.Root, "root", func(*Mailbox) actor.Actor {
		return actor.ReceiveFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); !ok {
				return
			}
			for i := range s.left {
				spawner := first
				if i%2 == 1 {
					spawner = second
				}
				s.pair(ctx, spawner, i)
			}
		})
	})
}

func (s *simulated) pair(ctx actor.Context, spawner *Spawner, i int) {
	near, far := memconn.Pipe(1 << 10)
	a := &simSession{s: s, loop: spawner.loop, bad: i == 4}
	a.work.Fire = a.finish
	a.pid, _ = spawner.SpawnNamed(ctx, fmt.Sprintf("s%d", i), func(mb *Mailbox) actor.Actor { a.mb = mb; return a })
	a.work.Mailbox = a.mb
	k, _ := s.g.Socket(near)
	a.conn, _ = a.loop.Adopt(k, a, a.mb)
	k, _ = s.g.Socket(far)
	client := &simClient{s: s, name: fmt.Sprintf("c%d", i), left: 5}
	c, _ := s.g.Loop(0).Adopt(k, client, nil)
	fmt.Fprintf(connWriter{c}, "%s/start", client.name)
}

// The same seed gives the same run, another seed another one.
func TestSimulationIsReproducible(t *testing.T) {
	seen := map[string]uint64{}
	const seeds = 40
	for seed := range uint64(seeds) {
		one, two := simulate(t, seed), simulate(t, seed)
		if one != two {
			t.Fatalf("seed %d gave two runs:\n%s\n---\n%s", seed, one, two)
		}
		if lines := strings.Count(one, "\n"); lines < 60 || !strings.Contains(one, "root/s4 stops") || strings.Count(one, "lost: EOF") != 1 {
			t.Fatalf("seed %d: %d lines:\n%s", seed, lines, one)
		}
		seen[one] = seed
	}
	if len(seen) < seeds-1 {
		t.Fatalf("%d seeds gave %d runs", seeds, len(seen))
	}
}

// Timers of the same instant fire in the order of arming whatever the seed, and nothing happens twice or never.
func TestSimulationKeepsTheOrderThatIsPromised(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			g, err := NewGroup(Options{Seed: &seed})
			if err != nil {
				t.Fatal(err)
			}
			l := g.Loop(0)
			var timers, posts []int
			on(l, func() {
				for i := range 20 {
					l.SetTimer(&Timer{Fire: func() { timers = append(timers, i) }}, time.Second)
					l.Post(func() { posts = append(posts, i) })
				}
			})
			time.Sleep(2 * time.Second)
			g.Stop()
			for i := range 20 {
				if len(timers) != 20 || len(posts) != 20 || timers[i] != i || posts[i] != i {
					t.Fatalf("seed %d: timers %v, posts %v", seed, timers, posts)
				}
			}
		})
	}
}
