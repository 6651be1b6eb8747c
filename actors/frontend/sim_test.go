package frontend

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/admin"
	"fencepost/internal/actortest"
)

// Random clients on a pool of random size, with everything that can go wrong going wrong in three runs of four. In every
// run: no answer reaches another request than its own, none is missing, nothing of one client is open on a server
// connection when another's statement comes, and in the end everything is given back.
//
// FENCEPOST_SIM_SEED plays one seed and prints its trace with -v, FENCEPOST_SIM_SEEDS says how many (default 480).
func TestSimulation(t *testing.T) {
	if s := os.Getenv("FENCEPOST_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulate(t, seed, true)
		return
	}
	seeds := 480
	if n, err := strconv.Atoi(os.Getenv("FENCEPOST_SIM_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed, false)
		})
	}
}

// The same seed gives the same run, to the nanosecond, as long as no two goroutines outside of the loops post at the same
// instant (a cancel that ends while a server answers): their order is not the seed's. In these seeds none do.
func TestSameSeedSameRun(t *testing.T) {
	for _, seed := range []uint64{4, 5, 7, 8} {
		first, second := simulate(t, seed, false), simulate(t, seed, false)
		for i, line := range first {
			if i >= len(second) || second[i] != line {
				t.Fatalf("seed %d: line %d of the trace is\n%s\nand then\n%s", seed, i, line, strings.Join(second[i:min(i+1, len(second))], ""))
			}
		}
		if len(first) < 100 {
			t.Errorf("seed %d: a trace of %d lines", seed, len(first))
		}
	}
}

// simulate plays one seed and returns its trace.
func simulate(t *testing.T, seed uint64, verbose bool) (trace []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		w.start(t)
		w.play()
		w.rest()
		w.stop()
		trace = w.lines()
		if verbose {
			t.Log(strings.Join(trace, "\n"))
			t.Log(strings.Join(w.log, "\n"))
		}
		for _, p := range w.problems {
			t.Errorf("seed %d: %s", seed, p)
		}
	})
	return trace
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { time.Sleep(d) }

func (w *world) lines() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.trace {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, line := range w.trace[name] {
			all = append(all, name+": "+line)
		}
	}
	return all
}

// play lets all clients live their lives.
func (w *world) play() {
	for _, k := range w.pools {
		for _, lanes := range w.deps.Lanes {
			if w.rand.IntN(2) == 0 {
				w.system.Root.Send(lanes, &lane.Ensure{Pool: k, Spec: w.spec.Load()})
			}
		}
	}
	n := 1 + w.rand.IntN(8)
	if w.busy {
		n += 4
	}
	stop := make(chan struct{})
	var others, clients sync.WaitGroup
	others.Go(func() { w.inspect(stop) })
	if !w.calm {
		others.Go(func() { w.chaos(stop) })
	}
	for id := range n {
		c := w.newClient(id)
		clients.Go(c.run)
	}
	clients.Wait()
	close(stop)
	others.Wait()
}

// inspect looks at the state between steps, again and again.
func (w *world) inspect(stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(97 * time.Millisecond):
		}
		loop := i % len(w.sessions)
		held := map[uint64]bool{}
		w.on(loop, func() {
			w.checkSessions(w.sessions[loop])
			for f := w.sessions[loop].first; f != nil; f = f.next {
				if f.backend != nil {
					held[f.backend.ID] = true
				}
			}
		})
		for _, row := range w.lanes(loop) {
			w.checkLane(row)
			for _, b := range row.Backends {
				w.checkHeld(b, held[b.ID])
			}
		}
	}
}

// checkHeld looks for a lease nobody has. A grant or a checkin may be on its way, but not for long.
func (w *world) checkHeld(b lane.BackendRow, held bool) {
	if b.State != pool.Leased || held {
		delete(w.unheld, b.ID)
		return
	}
	if since, seen := w.unheld[b.ID]; seen && since.Equal(b.Since) {
		w.problem("backend %d is leased since %v and held by nobody", b.ID, b.Since.Sub(epoch))
	}
	w.unheld[b.ID] = b.Since
}

// checkSessions runs on the loop of s.
func (w *world) checkSessions(s *Sessions) {
	holders := map[*backend.Backend]*Frontend{}
	n := 0
	for f := s.first; f != nil; f = f.next {
		n++
		b := f.backend
		if b == nil {
			continue
		}
		if other := holders[b]; other != nil {
			w.problem("backend %d is held by %d and %d", b.ID, f.id, other.id)
		}
		holders[b] = f
		if st := b.Owner.(interface{ State() pool.State }).State(); st == pool.Idle || st == pool.Cleaning || st == pool.Dialling {
			w.problem("backend %d is held by %d and %s in its lane", b.ID, f.id, st)
		}
		if f.phase != active && f.phase != applyingParams {
			w.problem("session %d holds a backend while it is %s", f.id, phaseNames[f.phase])
		}
	}
	if n != s.count {
		w.problem("%d sessions on the list, %d counted", n, s.count)
	}
}

func (w *world) checkLane(row lane.LaneRow) {
	size := 0
	for st, n := range row.Counts {
		if n < 0 && st > 0 {
			w.problem("lane %v: %d backends are %s", row.Pool, n, pool.State(st))
		}
		if st > 0 {
			size += n
		}
	}
	if size < len(row.Backends) {
		w.problem("lane %v: %d backends, counted %d", row.Pool, len(row.Backends), size)
	}
	if row.Clients < 0 {
		w.problem("lane %v: %d clients", row.Pool, row.Clients)
	}
	if row.Waiting > 0 && row.Counts[pool.Idle] > 0 && !row.Paused {
		w.problem("lane %v: %d wait while %d backends are idle", row.Pool, row.Waiting, row.Counts[pool.Idle])
	}
}

// rest waits until everything has come to rest after the clients have left, and looks whether it has.
func (w *world) rest() {
	for _, lanes := range w.deps.Lanes {
		w.system.Root.Send(lanes, &lane.Control{Verb: lane.Resume})
	}
	time.Sleep(time.Minute)
	size := map[lane.PoolKey]int{}
	for loop := range w.sessions {
		w.on(loop, func() { w.checkSessions(w.sessions[loop]) })
		if n := w.sessions[loop].count; n != 0 {
			w.problem("%d sessions are left on loop %d", n, loop)
		}
		for _, row := range w.lanes(loop) {
			w.checkLane(row)
			for _, st := range []pool.State{pool.Leased, pool.Cleaning, pool.Closing} {
				if n := row.Counts[st]; n != 0 {
					w.problem("lane %v: %d backends are %s with nobody there", row.Pool, n, st)
				}
			}
			if row.Clients != 0 || row.Waiting != 0 {
				w.problem("lane %v: %d clients, %d wait, with nobody there", row.Pool, row.Clients, row.Waiting)
			}
			for st := pool.Dialling; st <= pool.Closing; st++ {
				size[row.Pool] += row.Counts[st]
			}
		}
	}
	all := 0
	for k, n := range size {
		p, _ := w.budgets.For(k, "server:5432", w.spec.Load())
		if used := p.Used(); used != n {
			w.problem("pool %v: %d permits are out for %d backends", k, used, n)
		}
		all += n
	}
	if used := w.budgets.DatabaseUsed("db"); used != all {
		w.problem("database: %d permits are out for %d backends", used, all)
	}
	if n := w.deps.Clients.Load(); n != 0 {
		w.problem("%d clients are counted with nobody there", n)
	}
	if n := len(w.keys.pids); n != 0 {
		w.problem("%d cancel keys are left", n)
	}
	if n := w.laneDeps.Backend.Cancels.Load(); n != 0 {
		w.problem("%d cancels are still on their way", n)
	}
}

// stop ends the tree as the supervisor does, and looks what is left.
func (w *world) stop() {
	stop := func(pid *actor.PID) {
		if err := w.system.Root.StopFuture(pid).Wait(); err != nil {
			w.problem("stop %s: %v", pid.Id, err)
		}
	}
	for _, p := range w.parents {
		stop(p)
	}
	stop(w.deps.Cancel)
	for _, p := range w.deps.Lanes {
		stop(p)
	}
	stop(w.root)
	time.Sleep(10 * time.Second)
	if names := actortest.Names(w.system); len(names) != w.baseline {
		w.problem("%d actors are left, %d there were: %v", len(names), w.baseline, names)
	}
	if n := w.server.Open(); n != 0 {
		w.problem("%d server connections are left open", n)
	}
	for _, k := range w.pools {
		p, d := w.budgets.For(k, "server:5432", w.spec.Load())
		if p.Used() != 0 || d.Used() != 0 {
			w.problem("pool %v: %d permits of it and %d of its database are never given back", k, p.Used(), d.Used())
		}
	}
	w.group.Stop()
	w.server.Close()
	w.dialer.Wait()
	w.system.Shutdown()
	time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
}

// chaos makes trouble until it is told to stop, at most for a while: it also ends what hangs.
func (w *world) chaos(stop chan struct{}) {
	r := w.rand
	for range 30 {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.Int64N(int64(700 * time.Millisecond)))):
		}
		loop := r.IntN(len(w.sessions))
		switch r.IntN(14) {
		case 0, 1:
			if pids := w.server.PIDs(); len(pids) > 0 {
				w.server.Kill(pids[r.IntN(len(pids))])
			}
		case 2:
			w.server.Refuse(&fakeRefusals[r.IntN(len(fakeRefusals))])
			time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			w.server.Refuse(nil)
		case 3, 4:
			w.crashSession(loop, r.IntN(10), r.IntN(2) == 0)
		case 5:
			w.crashBackend(loop, r.IntN(10))
		case 6:
			w.crashLane(loop)
		case 7:
			w.system.Root.Send([]*actor.PID{w.deps.Cancel, w.parents[loop], w.deps.Lanes[loop]}[r.IntN(3)], crash{})
		case 8:
			w.control(lane.Pause)
			time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			w.control(lane.Resume)
		case 9:
			w.control(lane.Reconnect)
		case 10:
			w.reload()
		case 11:
			w.kill(loop, r.IntN(10))
		case 12:
			if r.IntN(4) == 0 {
				w.system.Root.Send(w.parents[loop], &admin.Drain{AtOnce: r.IntN(2) == 0})
			}
		case 13:
			w.supersede(loop, r.IntN(10))
		}
	}
}

func (w *world) control(v lane.Verb) {
	for _, lanes := range w.deps.Lanes {
		w.system.Root.Send(lanes, &lane.Control{Verb: v, Database: "db"})
	}
}

// reload gives every lane other limits.
func (w *world) reload() {
	spec := w.newSpec(w.spec.Load().Shard)
	w.spec.Store(spec)
	for _, lanes := range w.deps.Lanes {
		w.system.Root.Send(lanes, &lane.Reload{Spec: func(lane.PoolKey) *lane.PoolSpec { return spec }})
	}
	for _, p := range w.parents {
		w.system.Root.Send(p, &Recheck{})
	}
}

// nth is the n-th session of a loop; nil if there is none. On the loop.
func (w *world) nth(loop, n int) *Frontend {
	s := w.sessions[loop]
	if s.count == 0 {
		return nil
	}
	f := s.first
	for range n % s.count {
		f = f.next
	}
	return f
}

// crashSession makes a session panic, in Receive or in a callback of its socket.
func (w *world) crashSession(loop, n int, callback bool) {
	w.on(loop, func() {
		f := w.nth(loop, n)
		switch {
		case f == nil:
		case callback:
			f.mb.Fail(actortest.ErrInjected)
		default:
			w.system.Root.Send(f.self, crash{})
		}
	})
}

// supersede tells a session that its server is not the primary any more, twice, as two views may.
func (w *world) supersede(loop, n int) {
	w.on(loop, func() {
		if f := w.nth(loop, n); f != nil && f.backend != nil {
			m := &lane.Superseded{Backend: f.backend, Why: "another was elected"}
			w.system.Root.Send(f.self, m)
			w.system.Root.Send(f.self, m)
		}
	})
}

func (w *world) kill(loop, n int) {
	reply := make(chan bool, 1)
	var id uint64
	w.on(loop, func() {
		if f := w.nth(loop, n); f != nil {
			id = f.id
		}
	})
	if id != 0 {
		w.system.Root.Send(w.parents[loop], &admin.Kill{ID: id, Reply: reply})
		<-reply
	}
}

func (w *world) crashBackend(loop, n int) {
	var ids []string
	for _, row := range w.lanes(loop) {
		for _, b := range row.Backends {
			ids = append(ids, fmt.Sprintf("%s/db/%s/b%d", w.deps.Lanes[loop].Id, row.Pool.ServerUser, b.ID))
		}
	}
	sort.Strings(ids)
	if len(ids) > 0 {
		w.system.Root.Send(w.system.NewLocalPID(ids[n%len(ids)]), crash{})
	}
}

func (w *world) crashLane(loop int) {
	rows := w.lanes(loop)
	if len(rows) > 0 {
		w.system.Root.Send(w.system.NewLocalPID(fmt.Sprintf("%s/db/%s", w.deps.Lanes[loop].Id, rows[0].Pool.ServerUser)), crash{})
	}
}
