package lane

import (
	"slices"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
)

// hostPool is a lane's part on one host: its backends there, and who waits for one of them. Host pools are made when a host
// is first wanted, and dropped when it is not and nothing is left. The lane's pool "unplaced" has no host: a checkout for
// a primary or standby that is not known waits there.
type hostPool struct {
	lane    *Lane
	host    string
	machine *pool.Machine
	poolBud *Budget
	dbBud   *Budget

	permits  int           // held of both budgets
	writers  bool          // its host is elected, or was, and what may write there was not superseded since
	unfit    string        // why the last backend that was to be granted was not; "" after one was
	refusal  *pgerr.Error  // why the last login failed; nil after a success
	rejected bool          // … and it was the server that said so
	reported backend.Proof // what a fence showed that the shard was told of last
	warm     int           // backends wanted although nobody waits
	effects  []pool.Effect
	running  bool
}

func newHostPool(l *Lane, host string) *hostPool {
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

// hostPool finds or makes the pool of a host; unplaced for none.
func (l *Lane) hostPool(host string) *hostPool {
	if host == "" {
		return l.unplaced
	}
	for _, hp := range l.hostPools {
		if hp.host == host {
			return hp
		}
	}
	hp := newHostPool(l, host)
	l.hostPools = append(l.hostPools, hp) // before anything is done that may fail: what it joins only its end leaves
	hp.poolBud, hp.dbBud = l.deps.Budgets.join(l.key, host, l.spec, l.self)
	hp.adoptControls()
	return hp
}

// all calls f for every host pool, unplaced included.
func (l *Lane) all(f func(*hostPool)) {
	for _, hp := range l.hostPools {
		f(hp)
	}
	f(l.unplaced)
}

// entries calls f for every backend of the pool.
func (hp *hostPool) entries(f func(*entry)) {
	hp.machine.Slots(func(s *pool.Slot) {
		if e, ok := s.Owner.(*entry); ok {
			f(e)
		}
	})
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
		l.refuse(hp, e.Waiter.Owner.(*Checkout))
	case pool.Dial:
		hp.dial(e.Slot)
	case pool.Scrub:
		e := e.Slot.Owner.(*entry)
		e.clean.Reset, e.clean.Limit = l.spec.ResetQuery, cleanLimit
		l.root.Send(e.pid, &e.clean)
	case pool.Close:
		l.root.Send(e.Slot.Owner.(*entry).pid, &backend.Close{Why: e.Why.String(), Goodbye: e.Why != pool.WhyBroken})
	case pool.WantPermits:
		hp.wantPermits(e.N)
	case pool.ReturnPermit:
		hp.returnPermit()
	case pool.Bug:
		l.deps.Log.Error().Str("pool", l.name()).Str("host", hp.host).Msg("internal error: the pool was told of an impossible event")
	}
}

// busy is how many backends clients have, or are about to get: those that are being fenced are not counted.
func (hp *hostPool) busy() int {
	n := hp.machine.Count(pool.Leased)
	if hp.lane.fencing > 0 {
		hp.entries(func(e *entry) {
			if e.fence != nil {
				n--
			}
		})
	}
	return n
}

// load is how busy a host pool is: who waits counts before what is leased.
func (hp *hostPool) load() int { return hp.machine.Waiting()<<20 + hp.machine.Count(pool.Leased) }

// opened is how many connections are logged in and not being closed.
func (hp *hostPool) opened() int {
	m := hp.machine
	return m.Size() - m.Count(pool.Dialling) - m.Count(pool.Closing)
}

// cut closes all connections, whoever holds them: their server says nothing any more.
func (hp *hostPool) cut() {
	hp.entries(func(e *entry) {
		if e.pid != nil {
			hp.lane.root.Send(e.pid, &backend.Close{Why: hp.host + " has answered nobody for long", Silent: true})
		}
	})
}

// setWarm keeps backends open although nobody has asked for one: for a login, one more than those that have not helped it;
// to the standby that is likely to be promoted while the primary is in question; and one to a host that nothing else looks
// at: a candidate while a write waits, and a primary whose clients are refused.
func (hp *hostPool) setWarm() {
	l, v, n := hp.lane, hp.lane.view, 0
	if l.logins.waitAt(hp) {
		n = 1 + hp.opened()
	}
	if hp.host != "" && hp.host == v.WarmHost() {
		n = max(n, v.Warm)
	}
	if hp == l.write && l.place.Refuses(ReadWrite) || slices.Contains(v.Candidates, hp.host) && l.primaryWanted() {
		n = max(n, 1)
	}
	if n != hp.warm {
		hp.warm = n
		hp.step(pool.Warm{N: n})
	}
}

// allFencing reports whether the pool has backends, and all of them are being fenced.
func (hp *hostPool) allFencing() bool {
	n, all := 0, true
	hp.entries(func(e *entry) {
		n++
		all = all && e.fence != nil
	})
	return n > 0 && all
}

// dropHostPools forgets hosts that are not wanted and have nothing left.
func (l *Lane) dropHostPools() {
	keep := l.hostPools[:0]
	for _, hp := range l.hostPools {
		if hp == l.write || hp.warm > 0 || hp.machine.Size() > 0 || hp.machine.Waiting() > 0 || slices.Contains(l.view.Standbys, hp.host) {
			keep = append(keep, hp)
		} else {
			hp.drop()
		}
	}
	clear(l.hostPools[len(keep):])
	l.hostPools = keep
}

// drop ends a host pool that has nothing left.
func (hp *hostPool) drop() {
	l := hp.lane
	l.offerPermit(hp.poolBud.Leave(l.self))
	l.offerPermit(hp.dbBud.Leave(l.self))
	l.deps.Budgets.forget(l.key, hp.host)
}
