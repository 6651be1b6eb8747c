package frontend

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/internal/fakepg"
	"fencepost/wire"
)

// lost is one client whose server is superseded, in a world of one loop and a pool of one or two.
type lost struct {
	*world
	c    *client
	f    *Frontend
	told laneLog
}

// laneLog is what a session said to its lane, in order. It stands between the two, on their loop.
type laneLog struct {
	checkins, spoiled map[*backend.Backend]int
	conditions        []pool.Condition
	attached          []lane.Target
}

func (l *laneLog) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *lane.Checkin:
		l.checkins[m.Backend]++
		l.conditions = append(l.conditions, m.Condition)
	case *lane.Spoiled:
		l.spoiled[m.Backend]++
	case *lane.Attach:
		l.attached = append(l.attached, m.Target)
	}
}

const whyLost = "b:5432 was elected: timeline 7"

// play runs one story in a world of its own and looks that nothing is left of it.
func play(t *testing.T, name string, seed uint64, mode Mode, story func(l *lost)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed)
			w.calm, w.idleDeaths, w.busy, w.mode, w.plain = true, false, false, mode, 2
			w.start(t)
			l := &lost{world: w, told: laneLog{checkins: map[*backend.Backend]int{}, spoiled: map[*backend.Backend]int{}}}
			l.c = w.loggedIn(0)
			w.calm = false // from here on a session may end
			var spy *actor.PID
			w.on(0, func() {
				l.f = w.nth(0, 0)
				lane := l.f.lane
				spy = w.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return forward{&l.told, lane} },
					actor.WithDispatcher(w.group.Loop(0)), actor.WithMailbox(func() actor.Mailbox { return w.group.Loop(0).NewMailbox() })))
				l.f.lane = spy
			})
			story(l)
			l.c.close()
			time.Sleep(time.Second)
			w.system.Root.StopFuture(spy).Wait()
			for b, n := range l.told.checkins {
				if n+l.told.spoiled[b] != 1 && mode == Session {
					w.problem("backend %d is checked in %d times, spoiled %d times", b.ID, n, l.told.spoiled[b])
				}
			}
			w.rest()
			w.stop()
			if len(w.problems) > 0 {
				t.Errorf("%s\n%s", strings.Join(w.problems, "\n"), strings.Join(w.lines(), "\n"))
			}
		})
	})
}

// forward passes on what it has noted.
type forward struct {
	log  *laneLog
	lane *actor.PID
}

func (f forward) Receive(ctx actor.Context) {
	f.log.Receive(ctx)
	switch ctx.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped:
	default:
		ctx.Send(f.lane, ctx.Message())
	}
}

// when waits until something holds of the session, looking after every step of the loop, and does something in that step.
func (l *lost) when(what string, holds func(f *Frontend) bool, do func()) {
	for i := range 40000 {
		done := false
		l.on(0, func() {
			if done = holds(l.f); done {
				do()
			}
		})
		if done {
			return
		}
		switch {
		case i < 5000:
			time.Sleep(time.Nanosecond) // a step of the loop takes as long
		case i < 10000:
			time.Sleep(10 * time.Microsecond)
		default:
			time.Sleep(time.Millisecond)
		}
	}
	l.problem("never: %s", what)
}

// supersede tells the session, as its lane would, when it holds a backend that fits.
func (l *lost) supersede(what string, holds func(f *Frontend) bool) (b *backend.Backend) {
	l.when(what, func(f *Frontend) bool { return f.backend != nil && holds(f) }, func() {
		b = l.f.backend
		delete(l.told.checkins, b) // of leases before
		l.system.Root.Send(l.f.self, &lane.Superseded{Backend: b, Why: whyLost})
		l.system.Root.Send(l.f.self, &lane.Superseded{Backend: b, Why: whyLost}) // of the next view: nobody's any more
	})
	return b
}

// fatal reads to the end of the session, which must be one error with this code and detail.
func (l *lost) fatal(code, detail string) {
	a := l.c.read(100)
	l.c.foreign(fmt.Sprintf("c%d.%d", l.c.id, l.c.seq), a)
	if len(a.errors) > 0 {
		l.problem("an error before the end: %v", a.errors[0])
	}
	if a.fatal == nil || a.fatal.Code != code || !strings.Contains(a.fatal.Detail, detail) || !strings.Contains(a.fatal.Detail, whyLost) {
		l.problem("told %+v instead of %s %q", a.fatal, code, detail)
	}
}

// nothing looks that the client hears nothing for a while.
func (l *lost) nothing() {
	l.c.nc.SetReadDeadline(time.Now().Add(time.Second))
	if m, err := l.c.f.Receive(); err == nil {
		l.problem("%T out of the blue", m)
	}
	if l.c.nc.SetReadDeadline(time.Time{}); l.c.over {
		l.problem("the session is over")
	}
}

// given looks that the backend went back to be closed, and no other way.
func (l *lost) given(b *backend.Backend) {
	time.Sleep(10 * time.Millisecond)
	if b == nil {
		return
	}
	l.on(0, func() {
		if l.told.checkins[b] != 1 || l.told.spoiled[b] != 0 || l.told.conditions[len(l.told.conditions)-1] != pool.Broken {
			l.problem("backend %d: checked in %d times, the last as %v, spoiled %d times", b.ID, l.told.checkins[b], l.told.conditions, l.told.spoiled[b])
		}
		if l.f.backend != nil {
			l.problem("it still holds backend %d", l.f.backend.ID)
		}
	})
	if n := l.server.Open(); n > 1 {
		l.problem("%d server connections are open", n)
	}
}

func (l *lost) write(all ...pgproto3.FrontendMessage) {
	for _, m := range all {
		l.c.write(encode(m))
	}
}

func (l *lost) begin() {
	l.c.send(query("BEGIN"))
	l.c.verify(request{status: wire.TxOpen}, "", l.c.read(1))
}

func (l *lost) sleep() string {
	return fmt.Sprintf("SELECT pg_sleep(0.5), '%s'", l.c.tag())
}

func atRest(f *Frontend) bool {
	return f.phase == active && f.backend.Tracker.AtRest() && f.scanner.AtBoundary()
}

// slow replaces the idle server connections by ones that have these faults.
func (l *lost) slow(f fakepg.Faults) {
	l.server.SetFaults(f)
	l.server.KillIdle(0)
	time.Sleep(time.Second)
}

// goesOn looks that a session is served as before.
func (l *lost) goesOn(c *client) {
	if !c.simple(c.tag()) {
		l.problem("%s is not served any more", c.name)
	}
}

// silence looks that the session ends without a word.
func (l *lost) silence() {
	l.c.nc.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := l.c.nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		l.problem("read: %v", err)
	}
}
