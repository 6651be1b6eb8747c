package hasim

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/strategy"
	"fencepost/auth"
	"fencepost/eventloop"
	"fencepost/internal/actortest"
	"fencepost/internal/memconn"
	"fencepost/pgerr"
	"fencepost/wire"
)

// world is one history.
type world struct {
	seed  uint64
	rand  *rand.Rand // of the scenarios
	plan  plan
	quiet bool // no trace

	system   *actor.ActorSystem
	group    *eventloop.Group
	shard    *shard.Shard
	laneDeps *lane.Deps
	deps     *frontend.Deps
	settings atomic.Pointer[frontend.Settings]
	spec     atomic.Pointer[lane.PoolSpec]
	budgets  *lane.Budgets
	root     *actor.PID
	shardPID *actor.PID
	lanes    []*actor.PID
	sessions []*actor.PID // by loop
	clients  []*client
	oracle   *oracle
	baseline int

	servers    []*server
	foreign    *server
	generation int // of faults: what an earlier one left to happen does not
	took       time.Duration
	forgotten  bool

	over   atomic.Bool
	poison atomic.Pointer[string] // the next log line with this in it panics
	lossy  atomic.Bool            // hints of the actors to each other get lost

	mu     sync.Mutex // guards what follows, and what servers say of themselves
	routes map[string]*server
	zone   map[string][]string
	logins map[*backend.Login]*server
	wrote  map[string][]string // who has committed what
	boots  int64
	dials  int
	events int

	tmu      sync.Mutex // guards what follows
	problems []string
	lines    []line
}

// line is one of the trace.
type line struct {
	at        time.Duration
	who, text string
}

// crash is a message nobody handles: the log line about it panics, inside Receive.
type crash struct{}

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) trace(who, format string, args ...any) {
	if w.quiet {
		return
	}
	text := fmt.Sprintf(format, args...) // may need mu; who traces may hold that already
	w.tmu.Lock()
	w.lines = append(w.lines, line{time.Since(epoch), who, text})
	w.tmu.Unlock()
}

func (w *world) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.trace("PROBLEM", "%s", text)
	w.tmu.Lock()
	defer w.tmu.Unlock()
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf("%v %s", time.Since(epoch), text))
	}
}

// simLog is where all logs go.
type simLog struct{ w *world }

func (l simLog) Write(p []byte) (int, error) { return l.WriteLevel(zerolog.NoLevel, p) }

// A line at level error is a problem: a person is needed.
func (l simLog) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	w := l.w
	if bytes.Contains(p, []byte("hasim.crash")) && bytes.Contains(p, []byte("unhandled message")) {
		panic(actortest.ErrInjected)
	}
	w.oracle.logged(p)
	if text := w.poison.Load(); text != nil && bytes.Contains(p, []byte(*text)) && w.poison.CompareAndSwap(text, nil) {
		w.trace("event", "the actor that logs %q panics", *text)
		panic(actortest.ErrInjected)
	}
	w.trace("log", "%s", bytes.TrimSpace(p))
	if level >= zerolog.ErrorLevel && !bytes.Contains(p, []byte(actortest.ErrInjected.Error())) && !excused(p) {
		w.problem("logged as an error: %s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

// excused are errors of the log that the scenarios bring about.
func excused(p []byte) bool {
	return bytes.Contains(p, []byte("shard: monitor ended")) // it failed ten times in a row
}

// LookupNetIP implements monitor.Resolver.
func (w *world) LookupNetIP(ctx context.Context, _, host string) (list []netip.Addr, err error) {
	r := rand.New(rand.NewPCG(w.seed, 1<<33+uint64(crc32.ChecksumIEEE([]byte(host)))))
	if !travel(ctx.Done(), r, latency) {
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.zone[host] {
		list = append(list, netip.MustParseAddr(a))
	}
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return list, nil
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 11)), budgets: lane.NewBudgets(), shard: shard.NewShard("main"), quiet: true,
		routes: map[string]*server{}, zone: map[string][]string{}, logins: map[*backend.Login]*server{}, wrote: map[string][]string{}}
	w.plan = drawPlan(w.rand)
	w.oracle = newOracle(w)
	for n := range w.plan.servers {
		s := w.newServer(n, ourCluster)
		w.servers = append(w.servers, s)
		w.routes[s.addr] = s
		w.zone[fmt.Sprintf("db%d.sim", n+1)] = []string{fmt.Sprintf("10.0.0.%d", n+1)}
		w.zone["db.sim"] = append(w.zone["db.sim"], fmt.Sprintf("10.0.0.%d", n+1))
	}
	first := w.servers[w.rand.IntN(len(w.servers))]
	first.change(func() { first.id.InRecovery = false })
	w.foreign = w.newServer(200, otherCluster)
	w.foreign.change(func() { w.foreign.id.InRecovery, w.foreign.id.Timeline = false, 9 })
	if s := w.any(); w.rand.IntN(8) == 0 { // an address is a stranger's when the process starts
		w.routes[s.addr] = w.foreign
	}
	return w
}

// start spawns the tree.
func (w *world) start(t *testing.T) {
	t.Helper()
	log := zerolog.New(simLog{w}).Level(zerolog.InfoLevel)
	var err error
	w.group, err = eventloop.NewGroup(eventloop.Options{Kind: eventloop.Portable, Seed: &w.seed, Loops: w.plan.loops + 1, Rest: w.rest, Panicked: w.panicked, Escalated: w.panicked})
	if err != nil {
		t.Fatal(err)
	}
	w.system = actortest.NewSystem()
	w.baseline = len(actortest.Names(w.system))
	w.system.Root.WithSenderMiddleware(w.watchRoot)
	w.system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			w.oracle.deadLetter(d)
		}
	})
	ids, clients, cancels := &atomic.Uint64{}, &atomic.Int64{}, &atomic.Int64{}
	next := func() uint64 { return ids.Add(1) }
	w.laneDeps = &lane.Deps{Budgets: w.budgets, Log: log, NextID: next, ShardOf: func(string) *actor.PID { return w.shardPID },
		Backend: &backend.Deps{Group: w.group, Dialer: dialer{w}, Names: backend.BaseNames, Log: log, Cancels: cancels,
			CancelLimit: func() time.Duration { return time.Second }, CancelVanished: func() bool { return true },
			Leases: func() backend.Leases { return &cancellease.Machine{} }}}
	w.deps = &frontend.Deps{Settings: &w.settings, Names: backend.BaseNames, Clients: clients, Draining: &atomic.Bool{}, NextID: next, Version: "simulated", Log: log}
	w.spec.Store(w.plan.spec(w.shard))
	w.settings.Store(&frontend.Settings{
		MaxClients: 1000, Method: auth.Trust, Secret: func(string) *auth.Secret { return nil },
		Route: func(database, user string) (*frontend.Route, *pgerr.Error) {
			return &frontend.Route{Pool: lane.PoolKey{Database: database, ServerUser: user}, Spec: w.spec.Load(), Mode: w.plan.mode}, nil
		},
		PeerID: 1,
	})
	ready := make(chan struct{})
	w.root, err = w.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &simRoot{w, log, ready} },
		actor.WithSupervisor(strategy.ByChild(func(child *actor.PID) actor.SupervisorStrategy {
			if child.Equal(w.shardPID) {
				return strategy.Restart(log)
			}
			return strategy.Resume(log)
		}))), "fencepost")
	if err != nil {
		t.Fatal(err)
	}
	<-ready
}

// watchRoot shows the oracle what is sent outside of the dispatcher's envelopes: all that lanes, backends and sessions send.
func (w *world) watchRoot(actor.SenderFunc) actor.SenderFunc {
	return func(_ actor.SenderContext, target *actor.PID, e *actor.MessageEnvelope) {
		w.oracle.sent(target, e.Message)
		p, _ := w.system.ProcessRegistry.Get(target)
		if e.Sender == nil && e.Header == nil {
			p.SendUserMessage(target, e.Message)
		} else {
			p.SendUserMessage(target, e)
		}
	}
}

// rest comes before each step.
func (w *world) rest() {
	synctest.Wait()
	w.oracle.between()
}

func (w *world) panicked(reason any, stack []byte) {
	if !actortest.Injected(reason) {
		w.problem("panic: %v\n%s", reason, stack)
	}
}

// simRoot is the root of the tree, as the supervisor's.
type simRoot struct {
	w     *world
	log   zerolog.Logger
	ready chan struct{}
}

// Receive implements actor.Actor.
func (r *simRoot) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Started); !ok {
		return
	}
	w := r.w
	spawn := func(name string, props *actor.Props) *actor.PID {
		pid, err := ctx.SpawnNamed(props, name)
		if err != nil {
			w.problem("spawn %s: %v", name, err)
		}
		return pid
	}
	on := func(l eventloop.Loop) []actor.PropsOption {
		return []actor.PropsOption{actor.WithDispatcher(l), actor.WithMailbox(func() actor.Mailbox { return l.NewMailbox() })}
	}
	loops := w.group.Loops()
	control := loops[w.plan.loops]
	w.deps.Cancel = spawn("cancel", actor.PropsFromProducer(func() actor.Actor { return &frontend.KeyTable{Log: r.log, Keys: frontend.NewKeys()} }, on(loops[0])...))
	for i, l := range loops[:w.plan.loops] {
		w.lanes = append(w.lanes, spawn(fmt.Sprintf("lanes-%d", i), lane.LanesProps(&lane.Lanes{Deps: w.laneDeps, Loop: l}).Configure(actor.WithReceiverMiddleware(w.drops))))
	}
	w.deps.Lanes = w.lanes
	cfg := shard.ActorConfig{Shard: w.shard, Settings: w.plan.settings(w.plan.full), Lanes: func() []*actor.PID { return w.lanes }, Observer: "sim", Log: r.log,
		Dial: w.dial, Resolver: w, Monitor: func(c monitor.Config) *actor.Props {
			c.Unanswered = w.plan.silence
			return monitor.Props(c).Configure(append(on(control), actor.WithReceiverMiddleware(w.drops))...)
		}}
	w.shardPID = spawn("shard-main", shard.ActorProps(cfg).Configure(append(on(control), actor.WithReceiverMiddleware(w.oracle.watchShard))...))
	for i, l := range loops[:w.plan.loops] {
		w.sessions = append(w.sessions, spawn(fmt.Sprintf("sessions-%d", i), frontend.SessionsProps(&frontend.Sessions{Deps: w.deps, Loop: l})))
	}
	close(r.ready)
}

// drops loses messages that only make things faster: a view is seen by whoever looks, and monitors probe by themselves.
func (w *world) drops(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
		if w.lossy.Load() {
			switch m := e.Message.(type) {
			case *monitor.ProbeNow:
				return
			case *shard.ViewPublished:
				if m.Recount == nil {
					return
				}
			}
		}
		next(c, e)
	}
}

// admit hands a new connection to the sessions of a loop, as a listener does.
func (w *world) admit(loop int, s wire.Startup) (*memconn.Conn, error) {
	theirs, ours := memconn.Pipe(1 << 14)
	sock, err := w.group.Socket(ours)
	if err != nil {
		return nil, err
	}
	w.system.Root.Send(w.sessions[loop], &frontend.Admit{Socket: sock, Startup: s, Since: time.Now(), Timeout: 20 * time.Second})
	return theirs, nil
}

// step runs f as a step of the simulation: nothing that is a step too happens meanwhile.
func (w *world) step(f func()) {
	done := make(chan struct{})
	if w.group.Loop(0).Post(func() { defer close(done); f() }) {
		<-done
	}
}

// in runs f as a step some time from now, unless the history is over by then.
func (w *world) in(d time.Duration, f func()) {
	w.mu.Lock()
	w.events++
	d += time.Duration(13*w.events + 1)
	w.mu.Unlock()
	generation := w.generation
	time.AfterFunc(d, func() {
		w.group.Loop(0).Post(func() {
			if !w.over.Load() && generation == w.generation {
				f()
			}
		})
	})
}

// later runs f as a step, some steps from now.
func (w *world) later(steps int, f func()) {
	w.group.Loop(0).Post(func() {
		if steps > 0 {
			w.later(steps-1, f)
			return
		}
		f()
	})
}

// committed notes a transaction's texts.
func (w *world) committed(s *server, texts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range texts {
		w.wrote[text] = append(w.wrote[text], fmt.Sprintf("%s on timeline %d", s.addr, s.id.Timeline))
	}
	s.id.LSN += 0x100
	s.pg.SetIdentity(s.id)
	w.trace("server "+s.addr, "commits %v on timeline %d", texts, s.id.Timeline)
}
