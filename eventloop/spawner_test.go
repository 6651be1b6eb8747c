package eventloop

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/internal/actortest"
)

// system makes an actor system with one root actor below which a test spawns; the root's strategy is decide.
type system struct {
	*actor.ActorSystem
	l       Loop
	root    *actor.PID
	spawner *Spawner
	exits   chan string // names of children that terminated
	asked   chan string // reasons of failures the supervisor was asked about
}

type call func(ctx actor.Context)

func newSystem(t testing.TB, l Loop, directive actor.Directive) *system {
	t.Helper()
	s := &system{
		ActorSystem: actortest.NewSystem(), l: l,
		exits: make(chan string, 100), asked: make(chan string, 100),
	}
	strategy := actor.NewOneForOneStrategy(1000, 0, func(reason any) actor.Directive {
		s.asked <- fmt.Sprint(reason)
		return directive
	})
	on(l, func() {
		s.spawner = NewSpawner(l, actor.WithSupervisor(strategy))
		pid, err := s.spawner.SpawnNamed(s.Root, "root", func(*Mailbox) actor.Actor {
			return actor.ReceiveFunc(func(ctx actor.Context) {
				switch m := ctx.Message().(type) {
				case call:
					m(ctx)
				case *actor.Terminated:
					s.exits <- m.Who.Id
				}
			})
		})
		if err != nil {
			t.Error(err)
		}
		s.root = pid
	})
	return s
}

// do runs f in the root actor and waits for it.
func (s *system) do(f call) {
	done := make(chan struct{})
	s.Root.Send(s.root, call(func(ctx actor.Context) { defer close(done); f(ctx) }))
	<-done
}

// spawn spawns a child of the root actor.
func (s *system) spawn(name string, produce func(*Mailbox) actor.Actor) (pid *actor.PID, err error) {
	s.do(func(ctx actor.Context) { pid, err = s.spawner.SpawnNamed(ctx, name, produce) })
	return pid, err
}

func (s *system) stop() {
	s.Root.StopFuture(s.root).Wait()
}

func TestSpawnerHandsOutTheActorsMailbox(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		s := newSystem(t, g.Loop(0), actor.StopDirective)
		defer s.stop()
		var given *Mailbox
		started := make(chan *actor.PID, 1)
		pid, err := s.spawn("a", func(mb *Mailbox) actor.Actor {
			given = mb
			return actor.ReceiveFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*actor.Started); ok {
					started <- ctx.Self()
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if self := <-started; !self.Equal(pid) || pid.Id != "root/a" {
			t.Fatalf("started as %v, spawned %v", self, pid)
		}
		inner := make(chan bool, 1)
		on(g.Loop(0), func() {
			given.PostSystemMessage(&actor.SuspendMailbox{})
			g.Loop(0).Post(func() { inner <- given.Suspended() })
		})
		if !<-inner {
			t.Fatal("produce was given another mailbox than the actor's")
		}
		on(g.Loop(0), func() { given.PostSystemMessage(&actor.ResumeMailbox{}) })
	})
}

func TestSpawnerNameExists(t *testing.T) {
	g := newGroup(t, Options{})
	s := newSystem(t, g.Loop(0), actor.StopDirective)
	defer s.stop()
	produced := 0
	for i := range 2 {
		_, err := s.spawn("a", func(*Mailbox) actor.Actor {
			produced++
			return actor.ReceiveFunc(func(actor.Context) {})
		})
		if got := errors.Is(err, actor.ErrNameExists); got != (i == 1) {
			t.Fatalf("spawn %d: %v", i, err)
		}
	}
	if produced != 2 {
		t.Fatalf("produced %d times", produced)
	}
	if _, err := s.spawn("b", func(*Mailbox) actor.Actor { return actor.ReceiveFunc(func(actor.Context) {}) }); err != nil {
		t.Fatal(err)
	}
}

// A restart produces a new actor with the old mailbox; what was queued survives.
func TestSpawnerRestart(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		escalated := make(chan string, 1)
		g := newGroup(t, Options{Kind: kind, Escalated: func(_ any, stack []byte) { escalated <- string(stack) }})
		s := newSystem(t, g.Loop(0), actor.RestartDirective)
		defer s.stop()
		var boxes []*Mailbox
		got := make(chan string, 10)
		pid, err := s.spawn("a", func(mb *Mailbox) actor.Actor {
			boxes = append(boxes, mb)
			instance := len(boxes)
			return actor.ReceiveFunc(func(ctx actor.Context) {
				if m, ok := ctx.Message().(string); ok {
					if m == "boom" {
						explode()
					}
					got <- fmt.Sprint(instance, m)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		on(g.Loop(0), func() {
			for _, m := range []string{"a", "boom", "b"} {
				s.Root.Send(pid, m)
			}
		})
		if a, b := <-got, <-got; a != "1a" || b != "2b" {
			t.Fatalf("got %s, %s", a, b)
		}
		if reason := <-s.asked; reason != "exploded" {
			t.Fatalf("supervisor heard %q", reason)
		}
		if stack := <-escalated; !strings.Contains(stack, "explode") {
			t.Fatalf("stack without the culprit:\n%s", stack)
		}
		on(g.Loop(0), func() {
			if len(boxes) != 2 || boxes[0] != boxes[1] {
				t.Errorf("mailboxes %p", boxes)
			}
		})
	})
}

func explode() { panic("exploded") }
