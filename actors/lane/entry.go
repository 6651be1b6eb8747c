package lane

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/eventloop"
	"fencepost/pgerr"
	"fencepost/role"
)

// entry is a lane's record of a backend. It is the Owner of the backend and of the pool machine's slot. What has become of its
// connection is its state:
//
//	dialling --Opened--> fresh --Checkin--> used --Lost--> lost
//	    |                  +------Lost-----> wasted
//	    +--DialFailed, Lost--> failed
//	any --Terminated--> ended (its actor failed; a Lost that is still on its way changes nothing any more)
//
// Who has it is its lease, which ends before the connection or with it.
type entry struct {
	hp    *hostPool
	shard *shard.Shard // it was opened for
	slot  *pool.Slot   // the machine's record
	b     *backend.Backend
	pid   *actor.PID
	state entryState
	lease lease
	fence *fence         // under way
	proof *backend.Proof // see known
	clean backend.Clean  // sent when the machine has it cleaned, as its last holder wanted it
}

// entryState is what has become of the connection of an entry, as far as the shard was told.
type entryState uint8

const (
	dialling entryState = iota // the shard does not know of it
	fresh                      // the shard was told of it; no client has had it to the end
	used                       // a client has had it and given it back
	failed                     // it ended before it was open, and the shard was told
	wasted                     // it ended fresh, and the shard was told
	lost                       // it ended used, and the shard was told
	ended                      // its actor failed: out of the books
)

// open reports whether the shard counts the connection.
func (s entryState) open() bool { return s == fresh || s == used }

// closed is the state after the end of a connection was reported.
func (s entryState) closed() entryState {
	switch s {
	case dialling:
		return failed
	case fresh:
		return wasted
	case used:
		return lost
	}
	return s
}

// lease is who has a backend.
type lease struct {
	to   *actor.PID // nil: nobody
	kind leaseKind
	msg  Granted // the message of the present grant: one for all of a backend's
}

type leaseKind uint8

const (
	reads        leaseKind = iota
	standbyReads           // for nothing but a standby
	writes                 // for writes
	superseded             // for either of both, and the holder was told that its server is not that any more
)

// writing reports whether a holder may write and does not know that it must not.
func (e *entry) writing() bool { return e.lease.to != nil && e.lease.kind == writes }

// State is the pool machine's.
func (e *entry) State() pool.State { return e.slot.State() }

// known is what the server said of itself last on this connection, also if that is no proof any more: a client may void
// a proof by a SET of its own, and the timeline that a connection writes to stays the same.
func (e *entry) known() *backend.Proof {
	if p := e.b.Proof(); p != nil {
		e.proof = p
	}
	return e.proof
}

// owner is the entry of a backend, also of the lane that failed before this one; nil if its slot is gone.
func owner(b *backend.Backend) *entry {
	if e, _ := b.Owner.(*entry); e != nil && e.slot.Owner == e {
		return e
	}
	return nil
}

// entryOf is the entry of a backend; nil if its slot is gone, or of the lane that failed before this one: what is still
// said about those changes nothing here.
func (l *Lane) entryOf(b *backend.Backend) *entry {
	if e := owner(b); e != nil && e.hp.lane == l {
		return e
	}
	return nil
}

// dial spawns a backend, which logs in to the host.
func (hp *hostPool) dial(s *pool.Slot) {
	l := hp.lane
	e := &entry{hp: hp, shard: l.spec.Shard, slot: s}
	target := backend.Target{Host: hp.host, Database: l.spec.DBName, User: l.key.ServerUser, Source: l.spec.Source, Timeout: l.spec.Dial, Tune: l.spec.Tune}
	if !l.view.Static {
		target.Identify, target.Lost, target.Doubt = true, l.unsettled.lossRaiser(e), l.unsettled.hintRaiser(e)
	}
	id := l.deps.NextID()
	l.stats.Dials++
	s.Owner = e
	pid, err := l.spawner.SpawnNamed(l.ctx, fmt.Sprintf("b%d", id), func(mb *eventloop.Mailbox) actor.Actor {
		e.b = backend.New(id, l.deps.Backend, l.loop, mb, l.self, e, target, l.view.Epoch)
		e.lease.msg.Backend = e.b
		return e.b
	})
	if err != nil {
		l.deps.Log.Error().Err(err).Str("pool", l.name()).Msg("cannot start the actor of a server connection")
		hp.step(pool.DialFailed{Slot: s})
		return
	}
	e.pid = pid
}

// opened has a backend that is logged in: the shard counts it, logins that wait can be answered, and the machine grants it.
func (e *entry) opened() {
	l, hp := e.hp.lane, e.hp
	connected := &shard.Connected{Host: hp.host, Backend: e.b.ID, At: l.loop.Now()}
	if p := e.b.Proof(); p != nil {
		o := p.Observation(role.Host(hp.host), role.Fence)
		connected.Observation = &o
	}
	e.known()
	e.state = fresh // nothing between this and the report may fail: stop relies on it
	l.reportTo(e.shard, connected)
	hp.refusal, hp.rejected = nil, false
	if l.view.Static && hp != l.write { // the host of a static shard was replaced meanwhile
		hp.step(pool.Opened{Slot: e.slot})
		hp.step(pool.Reconnect{})
		return
	}
	switch w := makeStartupParams(e.b); {
	case e.shard != l.spec.Shard: // what that server reports is of no use any more
	case hp == l.write:
		l.params.primary.Store(w)
	default:
		l.params.standby.Store(w)
	}
	l.logins.answerAll()
	hp.step(pool.Opened{Slot: e.slot})
}

// lost has a connection that is gone, of which the shard was told before (reportLost).
func (l *Lane) lost(m *backend.Lost) {
	if !m.Expected {
		l.stats.Losses++
		l.deps.Log.Info().Str("pool", l.name()).Uint64("backend", m.Backend.ID).Str("host", m.Backend.Host()).Str("code", m.Code).AnErr("cause", m.Err).Msg("server connection lost")
	}
	e := l.entryOf(m.Backend)
	if e == nil || e.state == ended {
		return
	}
	if e.state != lost && !m.Expected { // like a failed connect: else a server that ends every session would be dialled without end
		e.hp.unfit = "its connections end before a client can use them"
		e.hp.step(pool.Setback{})
	}
	e.gone()
	e.stopActor()
}

// gone takes a backend out of the books; the checkout that was waiting for its fence goes on waiting.
func (e *entry) gone() {
	l := e.hp.lane
	var co *Checkout
	if e.fence != nil {
		co = e.endFence().co
		l.stats.Fences[FenceFailed]++
	}
	e.hp.step(pool.Lost{Slot: e.slot})
	if co != nil {
		l.requeue(co)
	}
}

// stopActor stops the actor of a backend whose slot is gone.
func (e *entry) stopActor() {
	if e.pid != nil {
		e.slot.Owner = nil
		e.hp.lane.ctx.Stop(e.pid)
	}
}

// terminated notices a backend whose actor ended without a Lost or DialFailed: it failed.
func (l *Lane) terminated(who *actor.PID) {
	var e *entry
	for _, hp := range l.hostPools {
		hp.entries(func(x *entry) {
			if x.pid != nil && x.pid.Equal(who) {
				e = x
			}
		})
	}
	if e == nil {
		return
	}
	l.stats.Losses++
	static := e.shard.View().Static
	if !static && !l.unsettled.lossRaised(e) {
		l.unsettled.lossRaiser(e)(time.Now())
	}
	l.reportLost(&backend.Lost{Backend: e.b, Doubts: l.unsettled.lossRaised(e), Err: errBackendFailed})
	e.state = ended
	e.gone()
}

var errBackendFailed = errors.New("internal error: the connection's actor failed")

// dialFailed has a backend that could not be opened.
func (e *entry) dialFailed(m *backend.DialFailed) {
	l, hp := e.hp.lane, e.hp
	if !m.Aborted {
		l.stats.DialFailures++
		l.deps.Log.Warn().Str("pool", l.name()).Str("host", hp.host).Err(m.Err).Msg("server login failed")
		l.reportDialFailed(e, m)
		hp.refusal, hp.rejected = m.Err, m.Rejected && !startingUp(m.Err)
		if hp.rejected {
			l.logins.refuse(func(a *login) bool { return a.at == hp }, m.Err)
		}
	}
	hp.step(pool.DialFailed{Slot: e.slot})
	e.stopActor()
}

// startingUp is what a server says before it takes connections: worth waiting for.
func startingUp(e *pgerr.Error) bool { return e.Code == pgerr.CannotConnectNow }
