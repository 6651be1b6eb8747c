package hasim

import (
	"fmt"
	"slices"
	"time"

	"fencepost/actors/lane"
	"fencepost/actors/shard"
	"fencepost/internal/actortest"
	"fencepost/internal/fakepg"
)

// The scenarios of what is around the servers: addresses, settings, operators and Fencepost's own actors.

// foreignCluster: an address leads to a server of another cluster for a while.
func (w *world) foreignCluster() {
	s := w.any()
	w.trace("event", "%s leads to another cluster", s.addr)
	w.route(s.addr, w.foreign)
	s.link.breakAll()
	w.in(w.upTo(4*time.Second), func() { w.comeHome(s) })
}

func (w *world) route(addr string, s *server) {
	w.mu.Lock()
	w.routes[addr] = s
	w.mu.Unlock()
}

func (w *world) configure(hosts []shard.HostSetting) {
	w.trace("event", "hosts %v", hosts)
	w.system.Root.Send(w.shardPID, &shard.Configure{Settings: w.plan.settings(hosts)})
}

// reloadHosts removes and reorders hosts, and changes what is done without a primary; later the list is whole again.
func (w *world) reloadHosts() {
	w.plan.base.Refuse, w.plan.base.Warm = w.rand.IntN(3) == 0, w.rand.IntN(3)
	list := slices.Clone(w.plan.full)
	w.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	w.configure(list[:1+w.rand.IntN(len(list))])
	w.in(w.upTo(5*time.Second), func() { w.configure(w.plan.full) })
}

// reloadPool gives the pool another size.
func (w *world) reloadPool() {
	w.plan.size = 1 + w.rand.IntN(5)
	spec := w.plan.spec(w.shard)
	w.spec.Store(spec)
	w.trace("event", "pool of %d", spec.Size)
	for _, lanes := range w.lanes {
		w.system.Root.Send(lanes, &lane.Reload{Spec: func(lane.PoolKey) *lane.PoolSpec { return spec }})
	}
}

// crashActor makes an actor panic: the shard's, a monitor, a lane, a backend or a session.
func (w *world) crashActor() {
	prefix := pick(w.rand, "fencepost/shard-main", "fencepost/shard-main", "fencepost/shard-main/", "fencepost/lanes-", "fencepost/sessions-")
	var names []string
	for _, name := range actortest.Names(w.system) {
		rest, ok := cutPrefix(name, prefix)
		if ok && (prefix == "fencepost/shard-main") == (rest == "") && name != "fencepost/lanes-0" && name != "fencepost/lanes-1" && name != "fencepost/sessions-0" && name != "fencepost/sessions-1" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	name := names[w.rand.IntN(len(names))]
	w.trace("event", "crash of %s", name)
	w.system.Root.Send(w.system.NewLocalPID(name), crash{})
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return s, false
	}
	return s[len(prefix):], true
}

// poisonActor makes an actor panic in the middle of what it does: when it logs its next transition.
func (w *world) poisonActor() {
	text := pick(w.rand, `"message":"shard: view"`, `"message":"shard: doubt"`, `"message":"shard: demoted"`, `"message":"shard: state"`,
		`"message":"shard: doubt over"`, `"message":"server connection lost"`, `"message":"server login failed"`)
	w.trace("event", "poison %s", text)
	w.poison.Store(&text)
}

// poisonFence makes a lane panic with a checkout in its hand whose fence has failed: the primary's answers make no sense, which
// puts it in doubt as soon as its monitor hears one.
func (w *world) poisonFence() {
	p := w.primary()
	if p == nil {
		return
	}
	w.trace("event", "%s fails its fences, and a lane", p)
	p.change(func() { p.id.Trouble = &fakepg.Error{Severity: "ERROR", Code: "53200", Message: "out of memory"} })
	text := `"message":"fence failed"`
	w.poison.Store(&text)
	w.in(time.Second+w.upTo(3*time.Second), func() { p.change(p.sensible) })
}

func (w *world) loseMessages() {
	w.trace("event", "messages get lost")
	w.lossy.Store(true)
	w.in(w.upTo(6*time.Second), func() { w.lossy.Store(false) })
}

// changeNames changes what names resolve to.
func (w *world) changeNames() {
	if !w.plan.named() {
		return
	}
	w.setZone(func(zone map[string][]string) {
		name := "db.sim"
		if len(w.plan.full) > 1 {
			name = fmt.Sprintf("db%d.sim", 1+w.rand.IntN(len(w.servers)))
		}
		switch list := zone[name]; {
		case w.rand.IntN(4) == 0:
			delete(zone, name)
		case len(list) > 1:
			zone[name] = slices.Delete(slices.Clone(list), 0, 1)
		default:
			zone[name] = []string{fmt.Sprintf("10.0.0.%d", 1+w.rand.IntN(len(w.servers)))}
		}
	})
	w.in(w.upTo(6*time.Second), w.wholeZone)
}

func (w *world) setZone(f func(map[string][]string)) {
	w.mu.Lock()
	f(w.zone)
	w.trace("event", "names %v", w.zone)
	w.mu.Unlock()
	w.oracle.mu.Lock()
	w.oracle.moved = time.Now()
	w.oracle.mu.Unlock()
}

func (w *world) wholeZone() {
	w.setZone(func(zone map[string][]string) {
		zone["db.sim"] = nil
		for n := range w.servers {
			addr := fmt.Sprintf("10.0.0.%d", n+1)
			zone[fmt.Sprintf("db%d.sim", n+1)] = []string{addr}
			zone["db.sim"] = append(zone["db.sim"], addr)
		}
	})
}

func (w *world) forget() {
	w.trace("event", "FORGET")
	w.system.Root.Send(w.shardPID, &shard.Forget{})
}

// barMonitors: a server, or each, does not let its monitor in any more; clients are welcome.
func (w *world) barMonitors() {
	list := []*server{w.any()}
	if w.rand.IntN(2) == 0 {
		list = w.servers
	}
	for _, s := range list {
		w.trace("event", "no monitors on %s", s)
		s.pg.Bar(watcher, &fakepg.Error{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
		if w.rand.IntN(2) == 0 {
			s.link.breakAll()
		}
	}
	w.in(w.upTo(6*time.Second), func() {
		for _, s := range list {
			s.pg.Bar(watcher, nil)
		}
	})
}

// moveAddress: the address of the primary is taken over by the standby that is promoted. Connections to the old one stay.
func (w *world) moveAddress() {
	p, list := w.primary(), w.standbys()
	if p == nil || len(list) == 0 {
		return
	}
	s := list[0]
	s.promote(false)
	w.follow(s)
	w.trace("event", "%s leads to %s", p.addr, s)
	w.route(p.addr, s)
	d := w.upTo(5 * time.Second)
	w.in(d, func() { w.comeHome(p) })
	w.rejoin(p, w.upTo(5*time.Second))
}

// comeHome makes an address lead to its own server again; what was connected elsewhere over it is not any more.
func (w *world) comeHome(s *server) {
	if w.at(s.addr) != s {
		w.trace("event", "%s leads home", s.addr)
	}
	w.route(s.addr, s)
	for _, other := range append(w.servers, w.foreign) {
		if other != s {
			other.link.breakThose(func(c *serverEnd) bool { return c.addr == s.addr })
		}
	}
}

// plannedSwitchover holds writes back before another server takes over, or does not.
func (w *world) plannedSwitchover() {
	id := fmt.Sprintf("switchover %d", w.rand.Uint64())
	w.trace("event", "hold")
	w.system.Root.Send(w.shardPID, &shard.PauseWrites{ID: id, For: w.upTo(5 * time.Second)})
	switch w.rand.IntN(3) {
	case 0:
		w.in(w.upTo(3*time.Second), func() { w.system.Root.Send(w.shardPID, &shard.ResumeWrites{ID: id}) })
	case 1:
		w.in(w.upTo(time.Second), w.switchover)
	}
}

// crashLane makes a lane fail with the losses of its connections on their way to it.
func (w *world) crashLane() {
	if p := w.primary(); p != nil {
		p.link.breakAll()
	}
	loop := w.rand.IntN(w.plan.loops)
	w.later(w.rand.IntN(8), func() { // sockets are read meanwhile
		w.trace("event", "crash of the lane on loop %d", loop)
		w.system.Root.Send(w.system.NewLocalPID(fmt.Sprintf("fencepost/lanes-%d/db/u", loop)), crash{})
	})
}

// console is what an operator may do to the pool.
func (w *world) console() {
	control := func(v lane.Verb) {
		for _, lanes := range w.lanes {
			w.system.Root.Send(lanes, &lane.Control{Verb: v})
		}
	}
	if w.rand.IntN(2) == 0 {
		w.trace("event", "RECONNECT")
		control(lane.Reconnect)
		return
	}
	w.trace("event", "PAUSE")
	control(lane.Pause)
	time.AfterFunc(w.upTo(3*time.Second), func() { w.later(0, func() { control(lane.Resume) }) }) // also if the cluster is whole by then
}
