package frontend

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/lane"
	"fencepost/pgerr"
	"fencepost/wire"
)

// What a client asks for by its startup option, or else its database, is what its lane hears, at the login and at every
// checkout; the server hears of none of it.
func TestTargets(t *testing.T) {
	direct := func(name, value string) wire.Startup {
		return wire.Startup{Params: []wire.Param{{Name: name, Value: value}}}
	}
	options := func(o string) wire.Startup { return wire.Startup{Options: o} }
	for _, c := range []struct {
		name     string
		startup  wire.Startup
		database lane.Target
		want     lane.Target
		reloaded lane.Target // the same after the database's has become any
		refused  string      // the value in the error
	}{
		{"nothing", wire.Startup{}, lane.ReadWrite, lane.ReadWrite, lane.Any, ""},
		{"the database's", wire.Startup{}, lane.Standby, lane.Standby, lane.Any, ""},
		{"read-write", options("-c fencepost.target=read-write"), lane.Standby, lane.ReadWrite, lane.ReadWrite, ""},
		{"standby", options("-c fencepost.target=standby"), lane.ReadWrite, lane.Standby, lane.Standby, ""},
		{"prefer-standby", options("--fencepost.target=prefer-standby"), lane.ReadWrite, lane.PreferStandby, lane.PreferStandby, ""},
		{"any", options("-c FencePost.Target=any -c TimeZone=UTC"), lane.ReadWrite, lane.Any, lane.Any, ""},
		{"directly", direct("fencepost.target", "standby"), lane.ReadWrite, lane.Standby, lane.Standby, ""},
		{"upper case", direct("Fencepost.Target", "any"), lane.ReadWrite, lane.Any, lane.Any, ""},
		{"another word", options("-c fencepost.target=primary"), lane.ReadWrite, 0, 0, `"primary"`},
		{"words are lower case", direct("fencepost.target", "Standby"), lane.ReadWrite, 0, 0, `"Standby"`},
		{"an empty word", options("-c fencepost.target="), lane.ReadWrite, 0, 0, `""`},
		{"another option of ours", options("-c fencepost.targets=any"), lane.ReadWrite, 0, 0, "fencepost.targets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(4)
				w.calm, w.busy, w.mode, w.plain = true, false, Transaction, 1
				w.start(t)
				w.aim(c.database)
				lanes := w.deps.Lanes[0]
				heard := laneLog{}
				spy := w.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return forward{&heard, lanes} },
					actor.WithDispatcher(w.group.Loop(0)), actor.WithMailbox(func() actor.Mailbox { return w.group.Loop(0).NewMailbox() })))
				w.deps.Lanes = []*actor.PID{spy}
				s := c.startup
				s.Kind, s.Version, s.User, s.Database = wire.StartupMessage, 3<<16, "u0", "db"
				nc, err := w.connect(0, 8192, s, nil)
				if err != nil {
					t.Fatal(err)
				}
				cl := w.newClient(0)
				cl.nc, cl.f = nc, pgproto3.NewFrontend(nc, nc)
				w.calm = c.refused == ""
				if a := cl.readLogin(); c.refused == "" {
					w.asks(cl, c.want)
					w.aim(lane.Any)
					w.reload()
					time.Sleep(time.Second)
					w.asks(cl, c.reloaded)
				} else if e := a.fatal; e == nil || !strings.Contains(e.Message, c.refused) {
					t.Errorf("told %+v", e)
				} else if e.Code == pgerr.InvalidParameterValue && !strings.Contains(e.Hint, "read-write, standby, prefer-standby, any") {
					t.Errorf("hint %q", e.Hint)
				}
				cl.close()
				time.Sleep(time.Second)
				w.deps.Lanes[0] = lanes
				w.system.Root.StopFuture(spy).Wait()
				if c.refused == "" && !slices.Equal(heard.attached, []lane.Target{c.want}) {
					t.Errorf("attached for %v", heard.attached)
				}
				w.rest()
				w.stop()
				for _, p := range w.problems {
					t.Error(p)
				}
				for _, line := range w.lines() {
					if strings.HasPrefix(line, "server ") && strings.Contains(line, "target") {
						t.Errorf("the server heard %q", line)
					}
				}
			})
		})
	}
}

// aim sets the target of the database.
func (w *world) aim(target lane.Target) {
	st := *w.settings.Load()
	st.Route = func(database, user string) (*Route, *pgerr.Error) {
		return &Route{Pool: lane.PoolKey{Database: database, ServerUser: user}, Spec: w.spec.Load(), Mode: w.mode, Target: target}, nil
	}
	w.settings.Store(&st)
}

// asks looks what a session's next checkout is for.
func (w *world) asks(c *client, want lane.Target) {
	c.simple(c.tag())
	w.on(0, func() {
		if f := w.nth(0, 0); f.checkout.Target != want {
			w.problem("a checkout for %d instead of %d", f.checkout.Target, want)
		}
	})
}

// readLogin reads the answer to a startup packet.
func (c *client) readLogin() answers {
	c.status = wire.TxIdle
	a := c.read(1)
	if a.fatal != nil { // of codes that no session ends with
		c.w.problems = nil
	}
	return a
}
