package monitor

import (
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"fencepost/internal/actortest"
	"fencepost/role"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shard stands for the shard: it is the monitor's parent and keeps what it is told.
type shard struct {
	system *actor.ActorSystem
	pid    *actor.PID
	child  *actor.PID

	mu     sync.Mutex // guards got and wake
	got    []any
	wake   chan struct{}
	spawns chan *actor.PID
}

type spawn struct{ props *actor.Props }

func (s *shard) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case spawn:
		s.spawns <- ctx.Spawn(m.props)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Terminated:
	default:
		s.mu.Lock()
		s.got = append(s.got, m)
		close(s.wake)
		s.wake = make(chan struct{})
		s.mu.Unlock()
	}
}

// newShard spawns a child below a shard of a test. At the end of the test both are stopped.
func newShard(t *testing.T, props *actor.Props) *shard {
	t.Helper()
	s := &shard{system: actortest.NewSystem(), wake: make(chan struct{}), spawns: make(chan *actor.PID, 1)}
	s.pid = s.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return s }))
	s.system.Root.Send(s.pid, spawn{props})
	s.child = <-s.spawns
	t.Cleanup(func() {
		if t.Failed() {
			s.mu.Lock()
			for _, m := range s.got[max(0, len(s.got)-15):] {
				t.Logf("  %T %+v", m, m)
			}
			s.mu.Unlock()
		}
	})
	return s
}

func watch(t *testing.T, c Config) *shard {
	t.Helper()
	return newShard(t, Props(c))
}

func (s *shard) stop() { s.system.Root.StopFuture(s.pid).Wait() }

func (s *shard) tell(m any) { s.system.Root.Send(s.child, m) }

// find waits for a message that fits, among those that came after the one found before, and takes all up to it.
func find[T any](t *testing.T, s *shard, what string, fits func(T) bool) T {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		s.mu.Lock()
		for i, m := range s.got {
			if m, ok := m.(T); ok && (fits == nil || fits(m)) {
				s.got = s.got[i+1:]
				s.mu.Unlock()
				return m
			}
		}
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-limit.C:
			t.Fatalf("no %s (%s)", what, reflect.TypeFor[T]())
		}
	}
}

// next waits for the next message of all.
func (s *shard) next(t *testing.T) any {
	t.Helper()
	return find[any](t, s, "message", nil)
}

// drop forgets what has come so far.
func (s *shard) drop() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

func verdict(v role.Verdict) func(*Observed) bool {
	return func(o *Observed) bool { return o.Verdict == v }
}

func isKind(k Kind) func(*State) bool { return func(s *State) bool { return s.Kind == k } }
