package lane

import (
	"io"
	"testing"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
)

// A lane that fails with fences under way, doubts on their way and clients in every queue: each is told once, what comes
// from the connections of before changes nothing, and every doubt is settled.
func TestLaneFailsWithFencesUnderWay(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(2)
		other, held := r.holding(ReadWrite)
		p, release := r.fencing()
		q := r.waits(ReadWrite, 1)[0]
		s := r.with(Standby)
		r.publish(func(v *shard.View) { v.Standbys = nil })
		s.ask()
		r.settle()
		r.setMute(true)
		var fenced *backend.Backend
		r.on(0, func() {
			// Behind the failure, in the mailbox: a lost connection's word, a fence's answer, a hint and a client's word.
			r.fails(p)
			fenced = r.lane(p).hostPools[0].fenced()
			held.OnClosed(nil, io.EOF)
			r.system.Root.Send(p.lane, &backend.Fenced{Backend: fenced, ID: 1, Asked: time.Now(), Answered: time.Now()})
			r.lane(p).unsettled.hintRaiser(owner(fenced))(time.Now())
			r.system.Root.Send(p.lane, &backend.Hinted{Backend: fenced, Code: "25006", At: time.Now()})
			r.system.Root.Send(p.lane, &Checkin{Backend: held, Condition: pool.Broken})
		})
		get(r.rig, other.lost)
		for _, c := range []*probe{p, q, s} {
			if e := get(r.rig, c.denied).Err; e.Code != pgerr.Shutdown().Code {
				t.Errorf("refused with %v", e)
			}
		}
		release()
		r.sleep(time.Second)
		for _, c := range []*probe{p, q, s} {
			r.quiet(c)
		}
		lost, hints := toldOf[*shard.HostLost](r), toldOf[*shard.Hinted](r)
		doubts := len(hints)
		for _, m := range lost {
			if m.Doubts {
				doubts++
			}
		}
		if doubts != 2 || r.shard.Uncleared() != 2 {
			t.Errorf("%d doubts were told, %d are pending", doubts, r.shard.Uncleared())
		}
		for range doubts {
			r.shard.ClearDoubt()
		}
		r.setMute(false)
		r.mu.Lock()
		r.owing = 0
		r.mu.Unlock()
		r.shard.Doubted(false, time.Now())
		if row := r.row(0, key); row.Waiting != 0 || r.used(hostA) != 0 {
			t.Errorf("%d wait, %d permits are out", row.Waiting, r.used(hostA))
		}
		for _, c := range []*probe{p, q, other} {
			c.ask()
			r.served(hostA, c)
		}
	})
}

// A lane that ends for good before the word of a loss has come passes the doubt on.
func TestLaneEndsOwingDoubts(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, b := r.holding(ReadWrite)
		idle, ib := r.holding(ReadWrite)
		idle.give(ib, pool.Clean)
		r.settle()
		r.on(0, func() {
			l := r.lane(p)
			l.unsettled.hintRaiser(owner(ib))(time.Now()) // its message never comes
			l.unsettled.lossRaiser(owner(b))(time.Now())
		})
		if err := r.system.Root.StopFuture(p.lane).Wait(); err != nil {
			t.Error(err)
		}
		r.settle()
		if n := r.shard.Uncleared(); n != 0 || len(toldOf[*shard.HostLost](r)) != 2 || len(toldOf[*shard.Hinted](r)) != 1 {
			t.Errorf("%d doubts are pending", n)
		}
	})
}

// A reload moves the database to another shard: who waits, also for a fence, is served by that; what may write on the old
// one is superseded, for nobody tells it of elections any more; what happens to its connections is the old shard's to hear.
func TestReloadToAnotherShard(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.spec = r.newSpec(2)
		w, held := r.holding(ReadWrite)
		p, release := r.fencing()
		q := r.waits(ReadWrite, 1)[0]
		old := r.shard
		next := shard.NewShard("other")
		next.Publish(&shard.View{Epoch: r.view.Epoch, Elected: hostB, Floor: 1, SystemID: fakepg.Ordinary().SystemID, Standbys: []string{hostA}})
		r.hosts[hostB].server.SetIdentity(primary(1))
		told := r.settleFor(map[string]*shard.Shard{"main": old, "other": next})
		spec := r.newSpec(1)
		spec.Shard = next
		r.reload(spec)
		r.settle()
		r.served(hostB, p, q)
		if m := get(r.rig, w.cut); m.Backend != held {
			t.Errorf("%+v", m)
		}
		r.hosts[hostA].server.Kill(held.Login().PID)
		time.Sleep(10 * time.Millisecond) // from its last word to its end
		r.settle()
		release()
		r.settle()
		if n := r.hosts[hostA].server.Open(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if old.Uncleared() != 0 || next.Uncleared() != 0 {
			t.Errorf("%d and %d doubts are pending", old.Uncleared(), next.Uncleared())
		}
		if n := told("main"); n == 0 {
			t.Error("the old shard was told nothing")
		}
		r.quiet(p)
	})
}

// A shard that is replaced under its name: its successor settles no doubts that it never had.
func TestReloadToASuccessor(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, held := r.holding(ReadWrite)
		old := r.shard
		next := shard.NewShard("main")
		next.Publish(&shard.View{Epoch: 1, Elected: hostA, Floor: 1})
		told := r.settleFor(map[string]*shard.Shard{"main": next})
		spec := r.newSpec(2)
		spec.Shard = next
		next.RaiseDoubt(time.Now())
		r.settle()
		r.mu.Lock()
		clear(r.counts) // what there was is not the successor's
		r.mu.Unlock()
		r.reload(spec)
		r.settle()
		r.hosts[hostA].server.Kill(held.Login().PID)
		time.Sleep(10 * time.Millisecond) // from its last word to its end
		r.settle()
		if n := told("main"); n != 0 || next.Uncleared() != 1 || old.Uncleared() != 1 {
			t.Errorf("told %d times, %d and %d doubts are pending", n, old.Uncleared(), next.Uncleared())
		}
		next.ClearDoubt()
		old.ClearDoubt()
		get(r.rig, p.cut)
		p.ask()
		r.served(hostA, p)
	})
}

// Another database name replaces what is being fenced as well.
func TestReloadDuringAFence(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, release := r.fencing()
		spec := r.newSpec(4)
		spec.DBName = "elsewhere"
		r.reload(spec)
		began := time.Now()
		b := p.take()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		if r.hosts[hostA].server.Logins() != 2 {
			t.Errorf("%d logins", r.hosts[hostA].server.Logins())
		}
		release()
		r.settle()
		if n := r.hosts[hostA].server.Open(); n != 1 {
			t.Errorf("%d connections are open", n)
		}
		p.give(b, pool.Clean)
		r.settle()
		other := r.newProbe(0, key) // is told of the new connections
		other.attach()
		get(r.rig, other.attached)
	})
}

// The connections of before a reload do not keep a login from being told of those after it.
func TestLoginAfterAReload(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.holding(ReadWrite)
		spec := r.newSpec(4)
		spec.DBName = "elsewhere"
		r.reload(spec)
		r.settle()
		r.with(ReadWrite)
	})
}

// PAUSE, RESUME, RECONNECT and DRAIN concern the connections to every host.
func TestControlOfHostPools(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		w, wb := r.holding(ReadWrite)
		s, sb := r.holding(Standby)
		i, ib := r.holding(Standby)
		i.give(ib, pool.Clean)
		r.settle()
		r.control(0, Pause)
		r.settle()
		if n := r.unfinished(Pause); n != 2 {
			t.Errorf("%d unfinished", n)
		}
		i.ask()
		none(r.rig, i.granted, time.Second)
		r.promote(hostC) // in a paused lane
		get(r.rig, w.cut)
		w.give(wb, pool.Broken)
		w.ask()
		s.give(sb, pool.Clean)
		none(r.rig, w.granted, time.Second)
		if n := r.unfinished(Pause); n != 0 {
			t.Errorf("%d unfinished", n)
		}
		r.control(0, Resume)
		r.served(hostC, w)
		r.served(hostB, i)
		r.control(0, Reconnect)
		r.settle()
		if n := r.hosts[hostB].server.Open() + r.hosts[hostC].server.Open(); n != 0 {
			t.Errorf("%d connections after RECONNECT", n)
		}
		w.ask()
		wb = w.take()
		r.control(0, Drain)
		r.settle()
		r.promote(hostA)
		get(r.rig, w.cut)
		w.give(wb, pool.Broken)
		s.ask()
		s.give(s.take(), pool.Clean)
		w.ask()
		r.served(hostA, w)
		if n := r.hosts[hostA].server.Open() + r.hosts[hostB].server.Open() + r.hosts[hostC].server.Open(); n != 0 {
			t.Errorf("%d connections after DRAIN", n)
		}
	})
}

// A shard that was restarted is told of every connection once.
func TestRecount(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		r.holding(ReadWrite)
		r.holding(ReadWrite)
		r.holding(Standby)
		r.hosts[hostA].server.SetFaults(fakepg.Faults{LoginDelay: time.Hour})
		p := r.with(ReadWrite)
		p.ask()
		r.settle()
		r.mu.Lock()
		clear(r.counts)
		r.mu.Unlock()
		for _, l := range r.lanes {
			r.system.Root.Send(l, &shard.ViewPublished{Shard: r.shard, Recount: r.deps.ShardOf("main")})
		}
		r.settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counts[hostA] != 2 || r.counts[hostB]+r.counts[hostC] != 1 {
			t.Errorf("%v", r.counts)
		}
	})
}

// A reload while nobody is elected does not make anybody forget who was the primary.
func TestReloadWhileNobodyIsElected(t *testing.T) {
	inRoles(t, 1, func(r *roles) {
		p, b := r.holding(ReadWrite)
		r.elect("")
		spec := r.newSpec(4)
		spec.DBName = "elsewhere"
		r.reload(spec)
		none(r.rig, p.cut, time.Second)
		r.promote(hostB)
		if m := get(r.rig, p.cut); m.Backend != b {
			t.Errorf("%+v", m)
		}
	})
}
