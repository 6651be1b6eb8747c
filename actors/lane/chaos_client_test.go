package lane

import (
	"io"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
)

// client is a session as its lane sees it. It lives on its loop, as sessions do.
type client struct {
	w    *chaos
	id   int
	loop int
	pid  *actor.PID
	lane *actor.PID

	target   Target
	req      uint64
	attached bool
	waiting  bool
	answered bool // the last checkout
	since    time.Time
	checkout *Checkout
	backend  *backend.Backend
	spoiled  uint64 // the last request whose backend died
}

func (c *client) ServerData([]byte, backend.Seen) {}
func (c *client) ServerDrained()                  {}

func (c *client) ServerLost(*pgerr.Error) {
	b := c.backend
	c.drop()
	c.w.system.Root.Send(c.lane, &Checkin{Backend: b, Condition: pool.Broken})
}

func (c *client) drop() {
	c.w.held(c.backend, c, false)
	c.backend = nil
}

func (c *client) give(cond pool.Condition) {
	b := c.backend
	c.drop()
	b.Release()
	c.w.system.Root.Send(c.lane, &Checkin{Backend: b, Condition: cond})
}

// What the world tells a client to do.
type (
	doAttach struct {
		target Target
		spec   *PoolSpec
	}
	doAsk    struct{ target Target }
	doCancel struct{}
	doGive   struct{ condition pool.Condition }
	doDie    struct{}
)

func (c *client) Receive(ctx actor.Context) {
	root := c.w.system.Root
	switch m := ctx.Message().(type) {
	case doAttach:
		if !c.attached {
			c.req++
			c.attached, c.target = true, m.target
			root.Send(c.w.lanes[c.loop], &Attach{Req: c.req, From: c.pid, Pool: key, Spec: m.spec, Target: m.target, Since: time.Now(), Deadline: time.Now().Add(time.Hour)})
		}
	case *Attached:
		c.lane = m.Lane
	case *AttachRefused:
		c.attached = false // a session ends; here it tries again
		root.Send(c.w.lanes[c.loop], &Detach{Req: m.Req, From: c.pid, Pool: key})
	case doAsk:
		if c.lane == nil || c.waiting || c.backend != nil {
			return
		}
		c.req++
		if c.checkout == nil {
			c.checkout = new(Checkout)
		}
		co := c.checkout
		c.waiting, c.answered, c.since, c.target = true, false, time.Now(), m.target
		co.Req, co.From, co.Target, co.Enqueued, co.Deadline = c.req, c.pid, m.target, c.since, c.since.Add(waitLimit)
		root.Send(c.lane, co)
	case doCancel:
		if c.waiting {
			root.Send(c.lane, &Abandon{Checkout: c.checkout})
			c.checkout, c.waiting = nil, false
			c.req++
		}
	case *Granted:
		c.granted(m)
	case *Refused:
		if c.waiting && m.Req == c.req {
			c.w.refused(c, m.Err)
			c.waiting, c.answered = false, true
		} else if m.Req == c.req && c.answered {
			c.w.fail("client %d is refused although it was answered", c.id)
		}
	case *Superseded:
		if c.backend == m.Backend && c.backend != nil {
			c.w.count(&c.w.superseded)
			c.give(pool.Broken)
		}
	case doGive:
		if c.backend != nil {
			c.give(m.condition)
		}
	case doDie:
		c.die()
	}
}

// die ends the session, and begins another one.
func (c *client) die() {
	if c.lane == nil {
		return
	}
	root := c.w.system.Root
	if c.waiting {
		root.Send(c.lane, &Abandon{Checkout: c.checkout})
	}
	if c.backend != nil {
		c.give(pool.Clean)
	}
	root.Send(c.lane, &Detach{Req: c.req, From: c.pid, Pool: key})
	root.Stop(c.pid) // what is on its way meets nobody
	c.w.replace(c)
}

func (c *client) granted(m *Granted) {
	root := c.w.system.Root
	if m.Req%29 == 0 && m.Req != c.spoiled { // it dies while the grant is on its way
		c.spoiled = m.Req
		m.Backend.OnClosed(nil, io.EOF)
	}
	switch {
	case m.Req == c.req && c.answered:
		c.w.fail("client %d is granted although it was answered", c.id)
	case !c.waiting || m.Req != c.req: // it crossed a cancel
		root.Send(c.lane, &Checkin{Backend: m.Backend, Condition: pool.Clean})
	case !m.Backend.Resting():
		c.w.count(&c.w.spoiled)
		root.Send(c.lane, &Spoiled{Backend: m.Backend, Checkout: c.checkout})
	default:
		c.waiting, c.answered = false, true
		c.w.check(c, m)
		m.Backend.Serve(c)
		c.backend = m.Backend
		c.w.held(m.Backend, c, true)
	}
}
