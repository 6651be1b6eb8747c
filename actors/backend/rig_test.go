package backend_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/eventloop"
	"fencepost/internal/actortest"
	"fencepost/internal/fakepg"
	"fencepost/internal/fakepg/fakedial"
	"fencepost/internal/memconn"
	"fencepost/pgerr"
	"fencepost/wire"
)

// rig is one backend on a loop, with a fake server and a lane that only listens. All in a synctest bubble.
type rig struct {
	t      *testing.T
	system *actor.ActorSystem
	group  *eventloop.Group
	loop   eventloop.Loop
	server *fakepg.Server
	dialer *fakedial.Dialer
	deps   *backend.Deps
	lane   *actor.PID
	target backend.Target
	doubts chan time.Time // calls of Target.Lost, and those of Target.Doubt that returned true
	deaf   atomic.Bool    // Target.Doubt returns false
	heard  chan any       // what the lane is told, but CancelEnded
	ended  chan *backend.CancelEnded
	b      *backend.Backend
	pid    *actor.PID
}

func bubble(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, eventloop.Portable)
		r.server = fakepg.NewServer(1, fakepg.Faults{})
		r.dialer = &fakedial.Dialer{Server: r.server}
		r.deps.Dialer = r.dialer
		r.target = backend.Target{Host: "server:5432", User: "u", Database: "d", Timeout: time.Second}
		defer r.stop()
		f(r)
	})
}

// newRig makes a rig without a server.
func newRig(t *testing.T, kind eventloop.Kind) *rig {
	t.Helper()
	r := &rig{t: t, heard: make(chan any, 100), ended: make(chan *backend.CancelEnded, 100), doubts: make(chan time.Time, 100)}
	var err error
	if r.group, err = eventloop.NewGroup(eventloop.Options{Kind: kind, Panicked: r.panicked, Escalated: r.panicked}); err != nil {
		t.Fatal(err)
	}
	r.loop = r.group.Loop(0)
	r.system = actortest.NewSystem()
	r.deps = &backend.Deps{Group: r.group, Names: backend.BaseNames, Log: zerolog.Nop(), Cancels: &atomic.Int64{},
		CancelLimit: func() time.Duration { return time.Second }, CancelVanished: func() bool { return false },
		Leases: func() backend.Leases { return &cancellease.Machine{} }}
	r.lane = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *backend.CancelEnded:
			r.ended <- m
		case *backend.Opened, *backend.DialFailed, *backend.Cleaned, *backend.Lost, *backend.Fenced, *backend.Hinted:
			r.heard <- m
		}
	}))
	return r
}

// watched makes the target one of a host with a role.
func (r *rig) watched() {
	r.target.Identify = true
	r.target.Lost = func(at time.Time) { r.doubts <- at }
	r.target.Doubt = func(at time.Time) bool {
		if r.deaf.Load() {
			return false
		}
		r.doubts <- at
		return true
	}
}

func (r *rig) panicked(reason any, stack []byte) { r.t.Errorf("panic: %v\n%s", reason, stack) }

func (r *rig) stop() {
	r.halt()
	r.server.Close()
	r.dialer.Wait()
	time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
}

// halt ends all but the server.
func (r *rig) halt() {
	if r.pid != nil {
		if err := r.system.Root.StopFuture(r.pid).Wait(); err != nil {
			r.t.Errorf("stop: %v", err)
		}
	}
	r.group.Stop()
	if n := r.deps.Cancels.Load(); n != 0 {
		r.t.Errorf("%d cancels on their way in the end", n)
	}
}

func (r *rig) sleep(d time.Duration) { time.Sleep(d) }

func (r *rig) on(f func()) {
	done := make(chan struct{})
	r.loop.Post(func() { defer close(done); f() })
	<-done
}

// dial starts the backend.
func (r *rig) dial() {
	r.t.Helper()
	r.on(func() {
		var err error
		r.pid, err = eventloop.NewSpawner(r.loop).SpawnNamed(r.system.Root, "b1", func(mb *eventloop.Mailbox) actor.Actor {
			r.b = backend.New(1, r.deps, r.loop, mb, r.lane, nil, r.target, 7)
			return r.b
		})
		if err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) open() {
	r.t.Helper()
	r.dial()
	if m := hear[*backend.Opened](r); m.Backend != r.b || m.Epoch != 7 {
		r.t.Fatalf("opened: %+v", m)
	}
}

// hear waits for the next word to the lane.
func hear[T any](r *rig) T {
	r.t.Helper()
	select {
	case m := <-r.heard:
		if want, ok := m.(T); ok {
			return want
		}
		r.t.Fatalf("the lane hears %T %+v", m, m)
	case <-time.After(time.Minute):
		r.t.Fatal("the lane hears nothing")
	}
	panic("unreachable")
}

// silent fails if the lane is told something within d.
func (r *rig) silent(d time.Duration) {
	r.t.Helper()
	select {
	case m := <-r.heard:
		r.t.Fatalf("the lane hears %T %+v", m, m)
	case <-time.After(d):
	}
}

// holder is who holds the backend; what the server sends goes through a pipe, to be read as messages.
type holder struct {
	r      *rig
	pipe   *memconn.Conn
	theirs *memconn.Conn
	f      *pgproto3.Frontend
	lost   *pgerr.Error
	onLost func() // may be nil
}

func (h *holder) ServerData(b []byte, _ backend.Seen) { h.pipe.Write(b) }
func (h *holder) ServerDrained()                      {}
func (h *holder) ServerLost(err *pgerr.Error) {
	h.lost = err
	h.pipe.CloseWrite()
	if h.onLost != nil {
		h.onLost()
	}
}

func (r *rig) hold() *holder {
	r.t.Helper()
	theirs, ours := memconn.Pipe(1 << 20)
	h := &holder{r: r, pipe: ours, theirs: theirs, f: pgproto3.NewFrontend(theirs, theirs)}
	r.on(func() {
		if !r.b.Usable() || !r.b.Resting() {
			r.t.Error("the backend is not fit to be held")
		}
		r.b.Serve(h)
	})
	return h
}

// send forwards messages as a frontend does.
func (h *holder) send(all ...pgproto3.FrontendMessage) {
	h.r.on(func() {
		for _, m := range all {
			b, err := m.Encode(nil)
			if err != nil {
				h.r.t.Error(err)
			}
			if !h.r.b.Tracker.Sent(b[0]) {
				h.r.t.Errorf("%T is refused", m)
			}
			h.r.b.Write(b)
		}
	})
}

// await reads up to a message of type T.
func await[T pgproto3.BackendMessage](h *holder) T {
	h.r.t.Helper()
	for {
		m, err := h.f.Receive()
		if err != nil {
			h.r.t.Fatalf("waiting for an answer: %v", err)
		}
		if want, ok := m.(T); ok {
			return want
		}
		if e, ok := m.(*pgproto3.ErrorResponse); ok {
			h.r.t.Fatalf("an error: %s %s", e.Code, e.Message)
		}
	}
}

// ask runs a query and returns its row's last column, or the SQLSTATE of its error.
func (h *holder) ask(sql string) (answer string) {
	h.r.t.Helper()
	h.send(&pgproto3.Query{String: sql})
	for {
		m, err := h.f.Receive()
		if err != nil {
			h.r.t.Fatalf("%s: %v", sql, err)
		}
		switch m := m.(type) {
		case *pgproto3.DataRow:
			answer = string(m.Values[len(m.Values)-1])
		case *pgproto3.ErrorResponse:
			answer = m.Code
		case *pgproto3.ReadyForQuery:
			return answer
		}
	}
}

func (h *holder) release() { h.r.on(h.r.b.Release) }

// lines is a server whose bytes the test writes itself.
type lines struct {
	params map[string]string
	proof  *backend.Proof
	query  string
	conn   *memconn.Conn // the server's end

	cancelling time.Duration // how long a cancel takes
}

func (l *lines) Dial(context.Context, backend.Target) (*backend.Login, error) {
	a, b := memconn.Pipe(1 << 16)
	l.conn = b
	return &backend.Login{Conn: a, Params: l.params, PID: 1, Secret: []byte{1, 2, 3, 4}, Proof: l.proof, Query: l.query}, nil
}

func (l *lines) Cancel(net.Addr, wire.CancelKey, time.Duration) backend.CancelResult {
	time.Sleep(l.cancelling)
	return backend.CancelResult{Sent: true}
}

// say writes messages, or a part of one.
func (l *lines) say(b []byte) { l.conn.Write(b) }

func server(m pgproto3.BackendMessage) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// said reads everything up to the end of the connection.
func (l *lines) said(r *rig) []byte {
	r.t.Helper()
	b, err := io.ReadAll(l.conn)
	if err != nil {
		r.t.Error(err)
	}
	return b
}
