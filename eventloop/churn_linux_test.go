package eventloop

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"fencepost/internal/actortest"
)

func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Ten thousand sessions, which end in every way, leave no descriptor, connection, timer, actor or goroutine.
func TestChurnLeavesNothing(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		before := openDescriptors(t)
		ignore := goleak.IgnoreCurrent()
		g, err := NewGroup(Options{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Stop()
		l := g.Loop(0)
		s := newSystem(t, l, actor.StopDirective)
		baseline := len(actortest.Names(s.ActorSystem))
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		total := 10_000
		if kind == Portable {
			total = 2000
		}
		s.exits = make(chan string, total)
		s.asked = make(chan string, total)
		s.do(func(ctx actor.Context) {
			names := 0
			_, err = l.Listen(ln, func(sock Socket) {
				names++
				name := fmt.Sprint(names)
				s.Root.Send(s.root, call(func(ctx actor.Context) { s.accept(t, ctx, name, sock) }))
			}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := range total / 4 {
					visit(t, ln.Addr().String(), (i+k)%5)
				}
			})
		}
		wg.Wait()
		for range total {
			get(t, s.exits)
		}
		on(l, func() {
			if l := l.(*loop); l.count.Conns != 0 || len(l.timers.heap) != 0 || l.count.QueuedBytes != 0 {
				t.Errorf("left over: %+v", l.count)
			}
		})
		if n := len(actortest.Names(s.ActorSystem)); n != baseline {
			t.Fatalf("%d actors left over", n-baseline)
		}
		s.stop()
		g.Stop()
		if n := openDescriptors(t); n > before {
			t.Fatalf("%d descriptors, %d before", n, before)
		}
		goleak.VerifyNone(t, ignore)
	})
}

// accept spawns a session for a socket. It ends as the first byte says.
func (s *system) accept(t *testing.T, ctx actor.Context, name string, sock Socket) {
	a := &session{received: make(chan string, 1)}
	var box *Mailbox
	pid, err := s.spawner.SpawnNamed(ctx, name, func(mb *Mailbox) actor.Actor { box = mb; return a })
	if err != nil {
		t.Error(err)
		sock.Close()
		return
	}
	a.data = func(c Conn, b []byte) {
		switch b[0] {
		case 0: // the client closes
		case 1: // we close
			s.Root.Stop(pid)
		case 2: // we answer and close
			c.Write(b)
			c.CloseFlushed(time.Minute)
			s.Root.Stop(pid)
		case 3:
			explode()
		case 4: // the client resets
			c.Stash(b)
			c.Pause()
		}
	}
	a.closed = func(Conn, error) { s.Root.Stop(pid) }
	if a.conn, err = s.l.Adopt(sock, a, box); err != nil {
		t.Error(err)
	}
}

func visit(t *testing.T, addr string, how int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	nc.Write([]byte{byte(how)})
	switch how {
	case 0:
		return
	case 4:
		nc.(*net.TCPConn).SetLinger(0)
		return
	}
	nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := nc.Read(make([]byte, 1))
	if how == 2 && n != 1 {
		t.Errorf("session %d: read %d, %v", how, n, err)
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Errorf("session %d: the server did not close", how)
	}
}
