package lane

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/eventloop"
	"fencepost/pgerr"
)

// hostPool is a lane's part on one host: its backends there, and who waits for one of them. Host pools are made when a host
// is first wanted, and dropped when it is not and nothing is left. The lane's pool "unplaced" has no host: a checkout for
// a primary or standby that nobody knows waits there.
type hostPool struct {
	lane    *Lane
	host    string
	machine *pool.Machine
	poolBud *Budget
	dbBud   *Budget

	permits  int           // held of both budgets
	primary  bool          // its host is elected, or was, and what may write there was not superseded since
	unfit    string        // why the last backend that was to be granted was not; "" after one was
	refusal  *pgerr.Error  // why the last login failed; nil after a success
	rejected bool          // … and it was the server that said so
	reported backend.Proof // what a fence showed that the shard was told of last
	warm     int           // backends wanted although nobody waits
	effects  []pool.Effect
	running  bool
}

// entry is what a slot's Owner points to.
type entry struct {
	hp         *hostPool
	shard      *shard.Shard // it was opened for
	b          *backend.Backend
	pid        *actor.PID
	connected  bool // the shard was told of it, and not yet of its end
	used       bool // somebody held it
	losing     bool // the word of its loss is on its way
	ended      bool // … or was passed on, because its actor failed
	granted    Granted
	to         *actor.PID     // who has the lease
	write      bool           // the lease may write
	superseded bool           // … and its holder was told that it may not any more
	patient    bool           // of the last Checkin
	fence      *fence         // under way
	proof      *backend.Proof // the last one there was
}

// known is what the server said of itself last on this connection, also if that is no proof any more: a client may void
// a proof by a SET of its own, and the timeline that a connection writes to stays the same.
func (m *entry) known() *backend.Proof {
	if p := m.b.Proof(); p != nil {
		m.proof = p
	}
	return m.proof
}

func (l *Lane) newHostPool(host string) *hostPool {
	return &hostPool{lane: l, host: host, machine: pool.New(l.limits(host))}
}

// adoptControls has a new host pool do as the lane does.
func (hp *hostPool) adoptControls() {
	if hp.lane.paused {
		hp.step(pool.Pause{})
	}
	if hp.lane.draining {
		hp.step(pool.Drain{})
	}
}

// limits of a host pool: only the primary's keeps min_pool_size backends open.
func (l *Lane) limits(host string) pool.Config {
	c := l.spec.Limits
	switch {
	case host == "":
		c.NoHost, c.MinSize = true, 0
	case host != l.view.Elected:
		c.MinSize = 0
	}
	return c
}

// hostPool finds or makes the host pool of a host; unplaced for none.
func (l *Lane) hostPool(host string) *hostPool {
	if host == "" {
		return l.unplaced
	}
	for _, hp := range l.hostPools {
		if hp.host == host {
			return hp
		}
	}
	hp := l.newHostPool(host)
	l.hostPools = append(l.hostPools, hp) // before anything is done that may fail: what it joins only its end leaves
	hp.poolBud, hp.dbBud = l.deps.Budgets.join(l.key, host, l.spec, l.self)
	hp.adoptControls()
	return hp
}

func (hp *hostPool) step(ev pool.Event) { hp.run(hp.machine.Step(hp.lane.loop.Now(), ev)) }

// run executes effects in order. Executing one may feed the machine again: what follows queues up behind.
func (hp *hostPool) run(effects []pool.Effect) {
	hp.effects = append(hp.effects, effects...)
	if hp.running {
		return
	}
	hp.running = true
	for i := 0; i < len(hp.effects); i++ {
		hp.execute(hp.effects[i])
	}
	clear(hp.effects)
	hp.effects = hp.effects[:0]
	hp.running = false
}

func (hp *hostPool) execute(e pool.Effect) {
	l := hp.lane
	switch e.Kind {
	case pool.Grant:
		l.grant(e)
	case pool.Refuse:
		l.refuse(hp, e.Waiter)
	case pool.Dial:
		hp.dial(e.Slot)
	case pool.Scrub:
		m := e.Slot.Owner.(*entry)
		l.root.Send(m.pid, &backend.Clean{Reset: l.spec.ResetQuery, Limit: cleanLimit, Patient: m.patient})
	case pool.Close:
		l.root.Send(e.Slot.Owner.(*entry).pid, &backend.Close{Why: e.Why.String(), Goodbye: e.Why != pool.WhyBroken})
	case pool.WantPermits:
		hp.wantPermits(e.N)
	case pool.ReturnPermit:
		hp.returnPermit()
	case pool.Bug:
		l.deps.Log.Error().Str("pool", l.name()).Msg("pool: impossible event")
	}
}

func (hp *hostPool) dial(s *pool.Slot) {
	l := hp.lane
	target := backend.Target{Host: hp.host, Database: l.spec.DBName, User: l.key.ServerUser, Source: l.spec.Source, Timeout: l.spec.Dial, Tune: l.spec.Tune}
	m := &entry{hp: hp, shard: l.spec.Shard}
	if !l.view.Static {
		target.Identify, target.Lost, target.Doubt = true, l.raiser(m), l.hinter(m)
	}
	id := l.deps.NextID()
	l.stats.Dials++
	s.Owner = m
	pid, err := l.spawner.SpawnNamed(l.ctx, fmt.Sprintf("b%d", id), func(mb *eventloop.Mailbox) actor.Actor {
		m.b = backend.New(id, l.deps.Backend, l.loop, mb, l.self, s, target, l.view.Epoch)
		m.granted.Backend = m.b
		return m.b
	})
	if err != nil {
		l.deps.Log.Error().Err(err).Str("pool", l.name()).Msg("spawn backend")
		hp.step(pool.DialFailed{Slot: s})
		return
	}
	m.pid = pid
}

// busy is how many backends somebody has, or is about to get: those that are being fenced are not counted.
func (hp *hostPool) busy() int {
	n := hp.machine.Count(pool.Leased)
	if hp.lane.fencing > 0 {
		hp.entries(func(m *entry) {
			if m.fence != nil {
				n--
			}
		})
	}
	return n
}

// opened is how many connections are logged in and not being closed.
func (hp *hostPool) opened() int {
	m := hp.machine
	return m.Size() - m.Count(pool.Dialling) - m.Count(pool.Closing)
}

// setWarm keeps backends open although nobody has asked for one: for a login, one more than those that have not helped it;
// to the standby that is likely to be promoted while the primary is in question; and one to a host that nobody else looks
// at: a candidate while a write waits, and a primary whose clients are refused.
func (hp *hostPool) setWarm() {
	l, v, n := hp.lane, hp.lane.view, 0
	if slices.ContainsFunc(l.pending, func(a *login) bool { return a.at == hp }) {
		n = 1 + hp.opened()
	}
	if hp.host != "" && hp.host == v.WarmHost() {
		n = max(n, v.Warm)
	}
	if hp == l.write && l.refuses(ReadWrite) || slices.Contains(v.Candidates, hp.host) && l.primaryWanted() {
		n = max(n, 1)
	}
	if n != hp.warm {
		hp.warm = n
		hp.step(pool.Warm{N: n})
	}
}

// drop ends a host pool that has nothing left; its host is not wanted.
func (hp *hostPool) drop() {
	l := hp.lane
	l.offerPermit(hp.poolBud.Leave(l.self))
	l.offerPermit(hp.dbBud.Leave(l.self))
	l.deps.Budgets.forget(l.key, hp.host)
}
