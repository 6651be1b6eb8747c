package eventloop

import (
	"net"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// session is an actor with a socket, as far as these tests need one.
type session struct {
	hooks
	conn     Conn
	received chan string
}

func (s *session) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Stopping, *actor.Restarting:
		if s.conn != nil {
			s.conn.Close()
		}
	case string:
		s.received <- m
	}
}

// spawnSession spawns a session and gives it a socket.
func spawnSession(r *rig, s *system, name string, a *session) (*Mailbox, *conn, *actor.PID, net.Conn) {
	r.t.Helper()
	var box *Mailbox
	a.received = make(chan string, 100)
	pid, err := s.spawn(name, func(mb *Mailbox) actor.Actor { box = mb; return a })
	if err != nil {
		r.t.Fatal(err)
	}
	c, far := r.connect(a, box)
	r.on(func() { a.conn = c })
	return box, c, pid, far
}

// A panic in a callback stops that actor, as its supervisor decides, and disturbs nobody else.
func TestPanicInACallbackStopsOnlyThatActor(t *testing.T) {
	for _, where := range []string{"data", "drained", "closed", "timer"} {
		t.Run(where, func(t *testing.T) {
			stacks := make(chan string, 10)
			opt := Options{
				Escalated: func(_ any, stack []byte) { stacks <- string(stack) },
				Panicked:  func(reason any, stack []byte) { t.Errorf("nobody heard of %v: %s", reason, stack) },
			}
			rigs(t, opt, func(t *testing.T, r *rig) {
				s := newSystem(t, r.l, actor.StopDirective)
				defer s.stop()
				bad, good := &session{}, &session{}
				bad.data = func(Conn, []byte) { explode() }
				bad.drained = func(Conn) { explode() }
				bad.closed = func(Conn, error) { explode() }
				good.data = func(c Conn, b []byte) { c.Write(b) }
				box, _, pid, far := spawnSession(r, s, "bad", bad)
				_, _, _, farGood := spawnSession(r, s, "good", good)
				switch where {
				case "data":
					r.write(far, []byte("x"))
				case "drained":
					r.on(func() { bad.conn.Write(make([]byte, 4<<20)) })
					r.read(far, 4<<20)
				case "closed":
					closeWrite(far)
				case "timer":
					r.on(func() { r.l.SetTimer(&Timer{Fire: explode, Mailbox: box}, 0) })
				}
				if reason := get(t, s.asked); reason != "exploded" {
					t.Fatalf("the supervisor heard of %q", reason)
				}
				if id := get(t, s.exits); id != pid.Id {
					t.Fatalf("%s ended", id)
				}
				if stack := get(t, stacks); !strings.Contains(stack, "explode") {
					t.Fatalf("stack without the culprit:\n%s", stack)
				}
				r.write(farGood, []byte("still here"))
				if got := r.read(farGood, 10); string(got) != "still here" {
					t.Fatalf("got %q", got)
				}
				r.on(func() {
					if n := r.l.(*loop).count; n.Conns != 1 || n.Panics != 1 {
						t.Errorf("conns %d, panics %d", n.Conns, n.Panics)
					}
				})
			})
		})
	}
}

// Without an actor a panic closes the socket and is told to Panicked; so is one after the actor has ended.
func TestPanicWithoutAnActor(t *testing.T) {
	for _, ended := range []bool{false, true} {
		told := make(chan any, 10)
		rigs(t, Options{Panicked: func(reason any, _ []byte) { told <- reason }}, func(t *testing.T, r *rig) {
			var box *Mailbox
			if ended {
				s := newSystem(t, r.l, actor.StopDirective)
				defer s.stop()
				pid, _ := s.spawn("a", func(mb *Mailbox) actor.Actor {
					box = mb
					return actor.ReceiveFunc(func(actor.Context) {})
				})
				s.Root.Stop(pid)
				get(t, s.exits)
			}
			_, far := r.connect(&hooks{data: func(Conn, []byte) { explode() }}, box)
			r.write(far, []byte("x"))
			if reason := get(t, told); reason != "exploded" {
				t.Fatalf("told of %v", reason)
			}
			if n, err := far.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Fatalf("the socket is still open: %d, %v", n, err)
			}
			if r.l.Post(func() { explode() }); get(t, told) != "exploded" {
				t.Fatal("a panic of a posted function was not told")
			}
			r.on(func() {})
		})
	}
}

// While its supervisor decides an actor gets no callbacks; they come when it is resumed.
func TestSuspendedActorGetsNoCallbacks(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		s := newSystem(t, r.l, actor.StopDirective)
		defer s.stop()
		events := make(chan string, 10)
		a := &session{}
		a.data = func(_ Conn, b []byte) { events <- string(b) }
		a.drained = func(Conn) { events <- "drained" }
		a.closed = func(_ Conn, err error) { events <- err.Error() }
		box, c, pid, far := spawnSession(r, s, "a", a)
		fired := false
		timer := Timer{Fire: func() { fired = true; events <- "timer" }, Mailbox: box}
		r.on(func() {
			box.PostSystemMessage(&actor.SuspendMailbox{})
			c.Write(make([]byte, 4<<20))
		})
		r.on(func() { r.l.SetTimer(&timer, 0) })
		s.Root.Send(pid, "message")
		r.write(far, []byte("data"))
		r.read(far, 4<<20)
		closeWrite(far)
		r.awaitOn(func() bool {
			return c.has(inMasked) && c.has(drained) && c.has(hungUp) && len(r.l.(*loop).timers.withheld) == 1
		})
		if len(events)+len(a.received) > 0 || fired || !timer.Armed() {
			t.Fatalf("suspended: %d events, %d messages, timer fired %v", len(events), len(a.received), fired)
		}
		r.on(func() { box.PostSystemMessage(&actor.ResumeMailbox{}) })
		got := map[string]bool{}
		for range 4 {
			got[get(t, events)] = true
		}
		if !got["data"] || !got["drained"] || !got["EOF"] || !got["timer"] || get(t, a.received) != "message" {
			t.Fatalf("resumed: %v", got)
		}
	})
}

// OnDrained that is withheld from a suspended actor is not said of a queue that has been filled again.
func TestDrainedIsNotSaidOfAFullQueue(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		s := newSystem(t, r.l, actor.StopDirective)
		defer s.stop()
		const size = 4 << 20
		queued := make(chan int, 10)
		a := &session{}
		a.drained = func(c Conn) { queued <- c.Queued() }
		box, c, _, far := spawnSession(r, s, "a", a)
		r.on(func() { box.PostSystemMessage(&actor.SuspendMailbox{}); c.Write(make([]byte, size)) })
		r.read(far, size)
		r.awaitOn(func() bool { return c.has(drained) })
		r.on(func() { c.Write(make([]byte, size)); box.PostSystemMessage(&actor.ResumeMailbox{}) })
		r.read(far, size)
		if q := get(t, queued); q != 0 {
			t.Fatalf("drained with %d bytes queued", q)
		}
		r.on(func() {})
		if len(queued) > 0 {
			t.Fatal("drained twice")
		}
	})
}
