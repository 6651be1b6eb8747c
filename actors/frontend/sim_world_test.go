package frontend

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/actors/strategy"
	"fencepost/auth"
	"fencepost/eventloop"
	"fencepost/internal/actortest"
	"fencepost/internal/fakepg"
	"fencepost/internal/fakepg/fakedial"
	"fencepost/internal/memconn"
	"fencepost/pgerr"
	"fencepost/wire"
)

// world is one simulation: the tree of actors on seeded loops, a fake PostgreSQL behind it and clients in front of it,
// all inside one synctest bubble. Nothing in it depends on anything but the seed.
type world struct {
	seed uint64
	rand *rand.Rand
	calm bool // nothing goes wrong, so that nothing may fail
	busy bool // many clients without pauses on few server connections
	// Server connections die while they are idle, and at no other time: calm, because no client may notice.
	idleDeaths bool
	plain      int // not 0: one loop, one pool of that size, a server without faults; for scenarios
	mode       Mode

	system   *actor.ActorSystem
	group    *eventloop.Group
	server   *fakepg.Server
	dialer   *fakedial.Dialer
	settings atomic.Pointer[Settings]
	deps     *Deps
	laneDeps *lane.Deps
	budgets  *lane.Budgets
	keys     *Keys
	root     *actor.PID
	shardPID *actor.PID
	sessions []*Sessions
	parents  []*actor.PID // of sessions, by loop
	pools    []lane.PoolKey
	spec     atomic.Pointer[lane.PoolSpec]
	baseline int // actors before the tree
	dead     atomic.Int64
	crashes  atomic.Int64

	watch  intruders
	unheld map[uint64]time.Time // backends seen leased and held by nobody, with the time of their lease

	mu       sync.Mutex // guards what follows
	problems []string
	log      []string
	trace    map[string][]string // by client and server connection
}

// crash is a message nobody handles: the log line about it panics, inside Receive (see simLog).
type crash struct{}

// simLog is where all logs go. A line at level error is a problem, since it means that a person is needed.
type simLog struct{ w *world }

func (l simLog) Write(p []byte) (int, error) { return l.WriteLevel(zerolog.NoLevel, p) }

func (l simLog) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	unhandled := bytes.Contains(p, []byte("unhandled message"))
	if unhandled && bytes.Contains(p, []byte("frontend.crash")) {
		panic(actortest.ErrInjected)
	}
	w := l.w
	w.mu.Lock()
	w.log = append(w.log, strings.TrimSpace(string(p)))
	w.mu.Unlock()
	if level >= zerolog.ErrorLevel && !bytes.Contains(p, []byte(actortest.ErrInjected.Error())) {
		w.problem("logged as an error: %s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// note is a line of the trace of one client or server connection.
func (w *world) note(who, format string, args ...any) {
	line := fmt.Sprintf("%v %s", time.Since(epoch), fmt.Sprintf(format, args...))
	w.mu.Lock()
	w.trace[who] = append(w.trace[who], line)
	w.mu.Unlock()
}

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// intruders looks at what reaches the server connections: while anything is open on one, all statements must be of the
// client that opened it.
type intruders struct {
	mu     sync.Mutex
	owners map[uint32]string
}

var tagged = regexp.MustCompile(`\bc(\d+)\.\d+\b`)

func (w *world) seen(e fakepg.Event) {
	who := fmt.Sprintf("server %d", e.PID)
	if e.Type == 0 {
		w.note(who, "end: %s", e.Trouble)
		if strings.HasPrefix(e.Trouble, "garbage") {
			w.problem("%s: %s", who, e.Trouble)
		}
		return
	}
	w.note(who, "%c %s", e.Type, e.Text)
	m := tagged.FindStringSubmatch(e.Text)
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	if e.AtRest {
		w.watch.owners[e.PID] = ""
	}
	if m == nil {
		return
	}
	switch owner := w.watch.owners[e.PID]; {
	case owner == "":
		w.watch.owners[e.PID] = m[1]
	case owner != m[1]:
		w.problem("server connection %d: %q while something of client %s was open", e.PID, e.Text, owner)
	}
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 11)), trace: map[string][]string{}, keys: NewKeys(), budgets: lane.NewBudgets(), unheld: map[uint64]time.Time{}}
	w.watch.owners = map[uint32]string{}
	w.idleDeaths = seed%4 == 1
	w.calm = seed%4 == 0 || w.idleDeaths
	w.busy = w.rand.IntN(2) == 0
	w.mode = []Mode{Transaction, Transaction, Session, Statement}[w.rand.IntN(4)]
	if w.idleDeaths && w.mode == Session { // there it is a client's connection that dies
		w.mode = Transaction
	}
	return w
}

// faults are what the server does wrong.
func (w *world) faults() fakepg.Faults {
	if w.plain > 0 {
		return fakepg.Faults{}
	}
	f := fakepg.Faults{Slow: 30, SlowBy: 200 * time.Millisecond, Notice: 10, LoginDelay: 20 * time.Millisecond, Window: 512 << w.rand.IntN(6)}
	if !w.calm {
		f.Behind = w.rand.IntN(15)
		f.Close, f.Terminate, f.IdleDeath, f.Refuse, f.Unreached = w.rand.IntN(8), w.rand.IntN(8), w.rand.IntN(200), w.rand.IntN(100), w.rand.IntN(100)
	}
	return f
}

func (w *world) start(t *testing.T) {
	t.Helper()
	log := zerolog.New(simLog{w}).Level(zerolog.InfoLevel)
	seed := w.seed
	loops, pools := 1+w.rand.IntN(2), 1+w.rand.IntN(2)
	if w.plain > 0 {
		loops, pools = 1, 1
	}
	var err error
	w.group, err = eventloop.NewGroup(eventloop.Options{Kind: eventloop.Portable, Seed: &seed, Loops: loops, Panicked: w.panicked, Escalated: w.panicked})
	if err != nil {
		t.Fatal(err)
	}
	w.system = actortest.NewSystem()
	w.baseline = len(actortest.Names(w.system))
	w.system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			w.deadLetter(d)
		}
	})
	w.server = fakepg.NewServer(seed, w.faults())
	w.server.Watch = w.seen
	w.dialer = &fakedial.Dialer{Server: w.server, Seed: seed, Delay: time.Duration(1+w.rand.IntN(50)) * time.Millisecond, LateBy: 500 * time.Millisecond}
	if !w.calm {
		w.dialer.NotSent, w.dialer.Uncertain, w.dialer.Unanswered = 50, 100, 50
	}
	names := append(append(backend.Names{}, backend.BaseNames...), "IntervalStyle")
	var ids, clients, cancels = &atomic.Uint64{}, &atomic.Int64{}, &atomic.Int64{}
	next := func() uint64 { return ids.Add(1) }
	vanished := w.rand.IntN(2) == 0
	w.laneDeps = &lane.Deps{Budgets: w.budgets, Log: log, NextID: next, ShardOf: func(string) *actor.PID { return w.shardPID },
		Backend: &backend.Deps{Group: w.group, Dialer: w.dialer, Names: names, Log: log, Cancels: cancels,
			CancelLimit: func() time.Duration { return time.Second }, CancelVanished: func() bool { return vanished },
			Leases: func() backend.Leases { return &cancellease.Machine{} }}}
	w.deps = &Deps{Settings: &w.settings, Names: names, Clients: clients, Draining: &atomic.Bool{}, NextID: next, Version: "simulated", Log: log}
	sh := shard.NewStatic("main", "server:5432")
	w.spec.Store(w.newSpec(sh))
	for i := range pools {
		w.pools = append(w.pools, lane.PoolKey{Database: "db", ServerUser: fmt.Sprintf("u%d", i)})
	}
	w.settings.Store(&Settings{
		MaxClients: 1000, Method: auth.Trust, Secret: func(string) *auth.Secret { return nil },
		Route: func(database, user string) (*Route, *pgerr.Error) {
			return &Route{Pool: lane.PoolKey{Database: database, ServerUser: user}, Spec: w.spec.Load(), Mode: w.mode}, nil
		},
		PeerID: 1, LogErrors: true, LogDisconnects: true,
	})
	ready := make(chan struct{})
	w.root, err = w.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &simRoot{w: w, log: log, shard: sh, ready: ready} },
		actor.WithSupervisor(strategy.Resume(log))), "fencepost")
	if err != nil {
		t.Fatal(err)
	}
	<-ready
}

// newSpec draws the limits of all pools.
func (w *world) newSpec(sh *shard.Shard) *lane.PoolSpec {
	r := w.rand
	s := &lane.PoolSpec{Shard: sh, Size: 1 + r.IntN(4), DBName: "db", Source: backend.FixedPassword(""), Dial: time.Second,
		WaitLimit: 30 * time.Minute, Mode: "simulated"}
	if w.busy {
		s.Size = 1 + r.IntN(2)
	}
	if r.IntN(3) == 0 {
		s.DBLimit = 1 + r.IntN(5)
	}
	if w.mode == Session {
		s.ResetQuery = "DISCARD ALL"
	}
	s.Limits = pool.Config{MinSize: r.IntN(3), RetryMax: time.Second, Concurrency: 1 + r.IntN(3), RoundRobin: r.IntN(2) == 0, PoolSize: s.Size}
	if r.IntN(2) == 0 {
		s.Limits.IdleTimeout = time.Second
	}
	if r.IntN(2) == 0 {
		s.Limits.Lifetime = time.Duration(1 + r.IntN(int(5*time.Second)))
	}
	if w.plain > 0 {
		s.Size, s.DBLimit, s.Limits = w.plain, 0, pool.Config{Concurrency: 4, RetryMax: time.Second, PoolSize: w.plain}
	}
	if !w.calm {
		s.WaitLimit = time.Duration(1+r.IntN(10)) * time.Second
	}
	return s
}

func (w *world) panicked(reason any, stack []byte) {
	if !actortest.Injected(reason) {
		w.problem("panic: %v\n%s", reason, stack)
		return
	}
	w.crashes.Add(1)
}

// deadLetter counts messages to actors that are gone. Those that cross the end of their receiver are in order; a Checkout
// among them would never be answered.
func (w *world) deadLetter(d *actor.DeadLetterEvent) {
	w.dead.Add(1)
	switch d.Message.(type) {
	case *lane.Checkout, *lane.Attach:
		w.problem("%T went to %s, which is gone", d.Message, d.PID.Id)
	}
}

// simRoot is the root of the tree, as the supervisor's.
type simRoot struct {
	w     *world
	log   zerolog.Logger
	shard *shard.Shard
	ready chan struct{}
}

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
	w.shardPID = spawn("shard-main", actor.PropsFromProducer(func() actor.Actor { return &shard.Actor{Shard: r.shard, Log: r.log} }))
	first := w.group.Loop(0)
	onLoop := []actor.PropsOption{actor.WithDispatcher(first), actor.WithMailbox(func() actor.Mailbox { return first.NewMailbox() })}
	w.deps.Cancel = spawn("cancel", actor.PropsFromProducer(func() actor.Actor { return &KeyTable{Log: r.log, Keys: w.keys} }, onLoop...))
	for i, l := range w.group.Loops() {
		w.deps.Lanes = append(w.deps.Lanes, spawn(fmt.Sprintf("lanes-%d", i), lane.LanesProps(&lane.Lanes{Deps: w.laneDeps, Loop: l})))
	}
	for i, l := range w.group.Loops() {
		s := &Sessions{Deps: w.deps, Loop: l}
		pid, err := ctx.SpawnNamed(SessionsProps(s), fmt.Sprintf("sessions-%d", i))
		if err != nil {
			w.problem("spawn sessions: %v", err)
		}
		w.sessions, w.parents = append(w.sessions, s), append(w.parents, pid)
	}
	close(r.ready)
}

// connect hands a new connection to the sessions of a loop, as a listener does.
func (w *world) connect(loop, window int, s wire.Startup, early []byte) (*memconn.Conn, error) {
	theirs, ours := memconn.Pipe(window)
	sock, err := w.group.Socket(ours)
	if err != nil {
		return nil, err
	}
	timeout := 20 * time.Second
	if w.calm {
		timeout = 30 * time.Minute
	}
	w.system.Root.Send(w.parents[loop], &Admit{Socket: sock, Startup: s, Early: early, Since: time.Now(), Timeout: timeout})
	return theirs, nil
}

// on runs f on a loop and waits for it.
func (w *world) on(loop int, f func()) {
	done := make(chan struct{})
	if !w.group.Loop(loop).Post(func() { defer close(done); f() }) {
		return
	}
	<-done
}

// later runs f as a step of the first loop, some steps from now. What happens between steps of the loops must happen in
// one: a goroutine that wakes at the instant of a step comes before or after it as it pleases.
func (w *world) later(steps int, f func()) {
	w.group.Loop(0).Post(func() {
		if steps > 0 {
			w.later(steps-1, f)
			return
		}
		f()
	})
}

// lanes asks for the rows of all lanes of a loop.
func (w *world) lanes(loop int) []lane.LaneRow {
	reply := make(chan []lane.LaneRow, 1)
	w.system.Root.Send(w.deps.Lanes[loop], &lane.Describe{Reply: reply})
	rows := <-reply
	sort.Slice(rows, func(i, j int) bool { return rows[i].Pool.ServerUser < rows[j].Pool.ServerUser })
	return rows
}

var fakeRefusals = []fakepg.Error{
	{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"},
	{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"},
}
