package hasim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"fencepost/actors/lane"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/internal/actortest"
)

// How long service may take to come back once the cluster is whole: what is being waited for when it gets whole has limits
// of its own (a monitor's 10 s for an answer and for a login, server_connect_timeout, 5 s between two looks at a name,
// unhealthy_after).
const recovery = 30 * time.Second

// play lets the history happen.
func (w *world) play() {
	var clients sync.WaitGroup
	for id := range w.plan.clients {
		c := w.newClient(id)
		w.clients = append(w.clients, c)
		clients.Go(c.run)
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { w.inspect(stop) })
	r := rand.New(rand.NewPCG(w.seed, 12))
	if r.IntN(4) > 0 {
		pass(1500 * time.Millisecond)
	}
	for range w.plan.scenarios {
		pass(1 + time.Duration(r.Int64N(int64(3*time.Second))))
		s := scenarios[r.IntN(len(scenarios))]
		w.step(func() {
			w.trace("event", "scenario: %s", s.name)
			s.do(w)
		})
	}
	pass(1 + time.Duration(r.Int64N(int64(6*time.Second))))
	var primary *server
	w.step(func() { primary = w.whole() })
	w.revive(primary)
	w.over.Store(true)
	for _, c := range w.clients {
		c.end()
	}
	clients.Wait()
	close(stop)
	watch.Wait()
	pass(12 * time.Second) // what was sent and stalled is worked off by now, and what is closed has ended
	for _, c := range w.clients {
		c.verify()
	}
}

// inspect looks at what must not last, again and again.
func (w *world) inspect(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(97*time.Millisecond + 3):
			w.step(w.oracle.inspect)
		}
	}
}

// whole ends all faults: one primary, the rest its standbys, everything reachable. A step.
func (w *world) whole() *server {
	w.generation++
	w.lossy.Store(false)
	w.poison.Store(nil)
	for _, s := range w.servers {
		s.link.set(func(l *link) { l.frozen, l.in, l.out, l.slowIn, l.slowOut = false, false, false, 0, 0 })
	}
	for _, s := range w.servers {
		w.comeHome(s)
		s.change(s.sensible)
		s.pg.Bar(watcher, nil)
	}
	w.wholeZone()
	w.configure(w.plan.full)
	p := w.choose()
	for _, s := range w.servers {
		l, _ := s.state()
		if l == alive {
			s.pg.Refuse(nil)
		}
		if s != p && (l != alive || s.outOfRecovery()) {
			s.start(w.upTo(time.Second), true, p.timeline())
		}
	}
	w.follow(p)
	w.trace("event", "whole: %s", p)
	return p
}

// choose is who stays the primary: as a rule who is on the highest timeline, as somebody who rebuilds a cluster would.
func (w *world) choose() *server {
	var out []*server
	for _, s := range w.servers {
		if s.outOfRecovery() {
			out = append(out, s)
		}
	}
	p := w.primary()
	if len(out) > 0 && w.rand.IntN(4) == 0 {
		p = out[w.rand.IntN(len(out))]
	}
	if p != nil {
		p.readOnly(false)
		return p
	}
	for _, s := range w.servers { // one that was the primary and is starting, or dead
		if _, id := s.state(); !id.InRecovery && (p == nil || s.timeline() > p.timeline()) {
			p = s
		}
	}
	if p == nil {
		list := w.standbys()
		if len(list) == 0 {
			list = w.servers
		}
		p = list[0]
	}
	if l, _ := p.state(); l != alive {
		p.start(1, false, 0)
		p.change(func() { p.id.ReadOnly = false })
	}
	p.change(func() {
		if p.id.InRecovery {
			p.id.InRecovery = false
			p.id.Timeline++
		}
	})
	return p
}

// revive waits until service is back.
func (w *world) revive(p *server) {
	since := time.Now()
	if w.await(recovery, func() bool { return w.serves(p, since) || w.forgettable(p, since) }) && w.serves(p, since) {
		w.recovered(since)
		return
	}
	if v := w.shard.View(); !w.behind(p, v) {
		w.problem("%v after the cluster is whole %s is not served: %s", recovery, p, w.why(since))
		return
	}
	if !w.forgettable(p, since) {
		w.problem("the floor is %d, the cluster is on timeline %d, and the errors do not say FORGET: %s", w.shard.View().Floor, p.timeline(), w.why(since))
	}
	since = time.Now()
	w.step(w.forget)
	if !w.await(recovery, func() bool { return w.serves(p, since) }) {
		w.problem("%v after FORGET %s is not served: %s", recovery, p, w.why(since))
		return
	}
	w.forgotten = true
	w.recovered(since)
}

func (w *world) recovered(since time.Time) {
	w.took = time.Since(since)
	w.trace("event", "service is back")
}

// await waits until a condition holds; it is looked at as a step.
func (w *world) await(limit time.Duration, met func() bool) (ok bool) {
	for end := time.Now().Add(limit); !ok && time.Now().Before(end); {
		pass(101*time.Millisecond + 7)
		w.step(func() { ok = met() })
	}
	return ok
}

// serves reports whether everybody is served as if nothing had happened.
func (w *world) serves(p *server, since time.Time) bool {
	v := w.shard.View()
	if _, doubted := w.shard.InDoubt(); doubted || v.Elected != p.addr || v.State != health.Healthy || len(v.Standbys) != len(w.servers)-1 {
		return false
	}
	for _, c := range w.clients {
		c.mu.Lock()
		served := c.served.After(since)
		c.mu.Unlock()
		if !served {
			return false
		}
	}
	return true
}

// why says what is missing.
func (w *world) why(since time.Time) string {
	v := w.shard.View()
	doubt, doubted := w.shard.InDoubt()
	var late []string
	for _, c := range w.clients {
		c.mu.Lock()
		if !c.served.After(since) {
			late = append(late, c.name+" ("+c.hint+")")
		}
		c.mu.Unlock()
	}
	text := "elected " + v.Elected + ", " + v.State.String() + ", standbys " + strings.Join(v.Standbys, " ") + ", " + v.Explanation + "; not served: " + strings.Join(late, ", ")
	if doubted {
		text += ", in doubt since " + doubt.Sub(epoch).String()
	}
	for _, h := range w.describe().Hosts {
		text += fmt.Sprintf("\n\t\t%s: monitor %s %s %s, reads %q, last %v", h.Host, h.Monitor, h.MonitorCode, h.MonitorErr, h.ReadsWhy, h.Last)
	}
	return text
}

// describe asks the shard's actor what it knows.
func (w *world) describe() shard.Row {
	reply := make(chan shard.Row, 1)
	w.system.Root.Send(w.shardPID, &shard.DescribeShard{Reply: reply})
	return <-reply
}

// behind reports whether the shard has been on a later timeline than the primary that there is now, or believes in another
// cluster: then nobody but a person can say what is right.
func (w *world) behind(p *server, v *shard.View) bool {
	return v.Floor > p.timeline() || v.SystemID != 0 && v.SystemID != ourCluster
}

// forgettable reports whether the floor is in the way, and clients are told what to do about it.
func (w *world) forgettable(p *server, since time.Time) bool {
	v := w.shard.View()
	if v.Elected != "" || !w.behind(p, v) {
		return false
	}
	for _, c := range w.clients {
		c.mu.Lock()
		told := c.writes() && c.hinted.After(since) && strings.Contains(c.hint, "FORGET main")
		c.mu.Unlock()
		if told {
			return true
		}
	}
	return false
}

// stop ends the tree as the supervisor does, and looks what is left.
func (w *world) stop() {
	w.step(w.settled)
	w.counted()
	w.oracle.mu.Lock()
	w.oracle.stopping = true
	w.oracle.mu.Unlock()
	for _, p := range w.sessions {
		w.stopActor(p)
	}
	w.stopActor(w.deps.Cancel)
	w.step(func() { // the lanes are being told of losses when they end
		for _, s := range w.servers {
			s.link.breakAll()
		}
		w.later(w.rand.IntN(8), func() {
			for _, p := range w.lanes {
				w.system.Root.Stop(p)
			}
		})
	})
	pass(10 * time.Second)
	if since, doubted := w.shard.InDoubt(); doubted {
		w.problem("in doubt since %v with the lanes gone", since.Sub(epoch))
	}
	w.stopActor(w.root)
	pass(10 * time.Second)
	if names := actortest.Names(w.system); len(names) != w.baseline {
		w.problem("%d actors are left, %d there were: %v", len(names), w.baseline, names)
	}
	for _, s := range append(w.servers, w.foreign) {
		if n := s.pg.Open(); n != 0 {
			w.problem("%d connections to %s are left open", n, s)
		}
	}
	key := lane.PoolKey{Database: "db", ServerUser: "u"}
	for _, s := range w.servers {
		if pool, db := w.budgets.For(key, s.addr, w.spec.Load()); pool.Used() != 0 || db.Used() != 0 {
			w.problem("%s: %d permits of the pool and %d of the database are never given back", s, pool.Used(), db.Used())
		}
	}
	w.group.Stop()
	for _, s := range append(w.servers, w.foreign) {
		s.pg.Close()
	}
	w.system.Shutdown()
	pass(2 * time.Second) // the runtime's throttle of dead letters
}

// counted looks whether the shard knows how many connections there are.
func (w *world) counted() {
	want, row := 0, w.describe()
	w.step(func() {
		w.oracle.mu.Lock()
		defer w.oracle.mu.Unlock()
		for b := range w.oracle.open {
			if b.Resting() && b.Host() == w.shard.View().Elected {
				want++
			}
		}
	})
	if row.Connections != want+1 {
		w.problem("the shard counts %d connections to %s: there are %d and the monitor's", row.Connections, row.View.Elected, want)
	}
}

// settled looks at what is left when all clients have gone. A step.
func (w *world) settled() {
	o := w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.asks {
		w.problem("checkout %d of %s was never answered", id.req, id.from)
	}
	for b, h := range o.leases {
		w.problem("backend %d on %s is still leased to %s", b.ID, h.host, h.from)
	}
	if since, doubted := w.shard.InDoubt(); doubted {
		w.problem("in doubt since %v with everything at rest", since.Sub(epoch))
		return
	}
	w.shard.RaiseDoubt(time.Now())
	if _, doubted := w.shard.InDoubt(); !doubted {
		w.problem("more doubts were settled than raised")
	}
	w.shard.ClearDoubt()
}
