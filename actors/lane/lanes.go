// Package lane holds the actors that hand out server connections: on every event loop one Lanes, and below it a Lane for
// each pool (queues, leases, fences, backends).
//
//	Lanes (one per loop) -- Attach --> Lane (one per pool and loop) --> backends
//
// A lane executes what the pure machine in package pool decides, one machine per host, under the shard's view of the moment.
package lane

import (
	"net/netip"
	"net/url"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/shard"
	"fencepost/actors/strategy"
	"fencepost/eventloop"
)

// Lanes is the parent of all lanes of one event loop, and lives on that loop: it may look at its lanes directly.
type Lanes struct {
	Deps *Deps
	Loop eventloop.Loop

	lanes  map[PoolKey]*laneRecord
	paused map[string]bool // databases paused ("" = all): lanes made later start paused
}

type laneRecord struct {
	lane     *Lane
	pid      *actor.PID
	attaches uint64 // Attach messages passed on
}

// LanesProps are the props of a Lanes actor: on its loop, and a lane that fails is restarted.
func LanesProps(p *Lanes) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return p }, actor.WithDispatcher(p.Loop),
		actor.WithMailbox(func() actor.Mailbox { return p.Loop.NewMailbox() }), actor.WithSupervisor(strategy.Restart(p.Deps.Log)))
}

// Receive implements actor.Actor.
func (p *Lanes) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		p.lanes, p.paused = map[PoolKey]*laneRecord{}, map[string]bool{}
	case *Attach:
		pid := p.lane(ctx, m.Pool, m.Spec)
		p.lanes[m.Pool].attaches++
		ctx.Send(pid, m)
	case unused:
		p.retire(ctx, m.key)
	case *Detach: // from a client whose Attach was not answered
		if e := p.lanes[m.Pool]; e != nil {
			ctx.Send(e.pid, m)
		}
	case *Ensure:
		p.lane(ctx, m.Pool, m.Spec)
	case *shard.ViewPublished:
		for _, e := range p.lanes {
			if e.lane.spec.Shard == m.Shard {
				ctx.Send(e.pid, viewChanged{m.Recount})
			}
		}
	case *Describe:
		rows := make([]LaneRow, 0, len(p.lanes))
		for _, e := range p.lanes {
			rows = append(rows, e.lane.describe(p.Loop.Now()))
		}
		m.Reply <- rows
	case *Control:
		p.control(ctx, m)
	case *Quiet:
		n := 0
		for k, e := range p.lanes {
			if m.Database == "" || m.Database == k.Database {
				n += e.lane.unfinished(m.Wait)
			}
		}
		m.Reply <- n
	case *Reload:
		for k, e := range p.lanes {
			if s := m.Spec(k); s != nil {
				ctx.Send(e.pid, reloadLane{s})
			} else { // the database is gone: its clients are told to leave, its backends close as they come to rest
				ctx.Send(e.pid, controlLane{Reconnect})
			}
		}
	case *actor.Terminated:
		for k, e := range p.lanes {
			if e.pid.Equal(m.Who) {
				delete(p.lanes, k)
			}
		}
	case *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		p.Deps.Log.Error().Type("message_type", m).Msg("lanes: unhandled message")
	}
}

// lane finds or makes the lane of a pool.
func (p *Lanes) lane(ctx actor.Context, key PoolKey, spec *PoolSpec) *actor.PID {
	if e := p.lanes[key]; e != nil {
		return e.pid
	}
	e := &laneRecord{}
	props := actor.PropsFromProducer(func() actor.Actor {
		if e.lane != nil {
			spec = e.lane.spec // it may have been reloaded before it failed
		}
		e.lane = newLane(p.Deps, p.Loop, key, spec).inherit(e.lane)
		return e.lane
	}, actor.WithDispatcher(p.Loop), actor.WithMailbox(func() actor.Mailbox { return p.Loop.NewMailbox() }),
		actor.WithSupervisor(strategy.Stop(p.Deps.Log)))
	pid, err := ctx.SpawnNamed(props, url.QueryEscape(key.Database)+"/"+url.QueryEscape(key.ServerUser))
	if err != nil {
		p.Deps.Log.Error().Err(err).Msg("spawn lane")
	}
	e.pid = pid
	p.lanes[key] = e
	if p.paused[""] || p.paused[key.Database] {
		ctx.Send(pid, controlLane{Pause})
	}
	return pid
}

// retire ends an unused lane, unless somebody is on the way to it.
func (p *Lanes) retire(ctx actor.Context, key PoolKey) {
	e := p.lanes[key]
	if e == nil || e.lane.attaches != e.attaches || e.lane.clients > 0 {
		return
	}
	delete(p.lanes, key)
	ctx.Stop(e.pid)
}

func (p *Lanes) control(ctx actor.Context, m *Control) {
	switch {
	case m.Verb == Pause:
		p.paused[m.Database] = true
	case m.Verb == Resume:
		delete(p.paused, m.Database)
	}
	n := 0
	for k, e := range p.lanes {
		if m.Database != "" && m.Database != k.Database {
			continue
		}
		if m.Verb == Resume && (p.paused[""] || p.paused[k.Database]) {
			continue // paused by the other kind of PAUSE as well
		}
		ctx.Send(e.pid, controlLane{m.Verb})
		n++
	}
	if m.Reply != nil {
		m.Reply <- n
	}
}

func addrText(a netip.AddrPort) (string, uint16) {
	if !a.IsValid() {
		return "unix", 0
	}
	return a.Addr().Unmap().String(), a.Port()
}
