package hasim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
)

// plan is what a history is made of, apart from what happens in it.
type plan struct {
	loops, servers, clients, scenarios int
	crowded                            bool          // many clients that write, few connections
	silence                            time.Duration // that a monitor puts up with

	mode  frontend.Mode
	fence lane.FenceMode
	base  shard.Settings
	full  []shard.HostSetting // the whole list of hosts
	size  int                 // of the pool
	wait  time.Duration       // query_wait_timeout
	dial  time.Duration       // server_connect_timeout
	conc  int                 // connect_concurrency
	min   int                 // min_pool_size
}

// watcher is the monitors' user.
const watcher = "watcher"

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func drawPlan(r *rand.Rand) plan {
	p := plan{loops: 1 + r.IntN(2), servers: 2 + r.IntN(3), clients: 2 + r.IntN(4), scenarios: 1 + r.IntN(5)}
	p.mode = pick(r, frontend.Transaction, frontend.Transaction, frontend.Session)
	p.fence = pick(r, lane.FenceAuto, lane.FenceAuto, lane.FenceAuto, lane.FenceAuto, lane.FenceAuto, lane.FenceAlways, lane.FenceOff)
	p.size, p.wait, p.dial = 2+r.IntN(4), time.Duration(1+r.IntN(5))*time.Second, time.Duration(1+r.IntN(4))*time.Second
	p.silence = pick(r, 2*time.Second, 10*time.Second)
	if p.crowded = r.IntN(4) == 0; p.crowded {
		p.loops, p.clients, p.size, p.scenarios, p.mode = 1, 6+r.IntN(5), 1+r.IntN(2), min(p.scenarios, 3), frontend.Transaction
	}
	p.conc, p.min = 1+r.IntN(8), r.IntN(3)
	e, h := election.Defaults(), health.Defaults()
	e.TTL = pick(r, time.Second, 3*time.Second, 3*time.Second)
	e.UnhealthyAfter = pick(r, 2*time.Second, 5*time.Second, 10*time.Second)
	e.TwoWriters = pick(r, election.Sitting, election.Sitting, election.Refuse)
	if r.IntN(2) == 0 {
		e.SystemID = ourCluster
	}
	interval := pick(r, 200*time.Millisecond, time.Second)
	if e.TTL < 2*interval { // as the settings have it
		interval = 200 * time.Millisecond
	}
	h.UnhealthyAfter, h.MinTime = e.UnhealthyAfter, pick(r, time.Second, 5*time.Second, 30*time.Second)
	p.base = shard.Settings{User: watcher, Database: "postgres", Interval: interval, Election: e, Health: h,
		Refuse: r.IntN(4) == 0, Warm: r.IntN(3), Balance: pick(r, shard.LeastWaiting, shard.RoundRobin)}
	switch r.IntN(5) {
	case 0: // one name for all
		p.full = []shard.HostSetting{{Addr: "db.sim:5432"}}
	case 1: // a name each
		for n := range p.servers {
			p.full = append(p.full, shard.HostSetting{Addr: fmt.Sprintf("db%d.sim:5432", n+1)})
		}
	default:
		for n := range p.servers {
			p.full = append(p.full, shard.HostSetting{Addr: fmt.Sprintf("10.0.0.%d:5432", n+1)})
		}
	}
	return p
}

// settings of the shard with a list of hosts.
func (p *plan) settings(hosts []shard.HostSetting) shard.Settings {
	s := p.base
	s.Hosts = hosts
	return s
}

func (p *plan) named() bool { return p.full[0].Addr[0] == 'd' }

func (p *plan) spec(sh *shard.Shard) *lane.PoolSpec {
	return &lane.PoolSpec{Shard: sh, Size: p.size, DBName: "db", Source: backend.FixedPassword(""), Dial: p.dial, WaitLimit: p.wait, Fence: p.fence, Mode: "simulated",
		Limits: pool.Config{MinSize: p.min, RetryMax: time.Second, Concurrency: p.conc, PoolSize: p.size, IdleTimeout: 5 * time.Second}}
}

func (p *plan) String() string {
	return fmt.Sprintf("%d loops, %d servers, %d clients, mode %d, fence %d, pool of %d (min %d), wait %v, dial %v, hosts %v, ttl %v, unhealthy after %v, two writers %v, identifier %d, min time %v, interval %v, refuse %t, warm %d",
		p.loops, p.servers, p.clients, p.mode, p.fence, p.size, p.min, p.wait, p.dial, p.full, p.base.Election.TTL, p.base.Election.UnhealthyAfter, p.base.Election.TwoWriters,
		p.base.Election.SystemID, p.base.Health.MinTime, p.base.Interval, p.base.Refuse, p.base.Warm)
}
