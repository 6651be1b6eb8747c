// Package supervisor builds the tree of actors, listens, reloads, drains and stops.
//
//	fencepost (root)
//	├─ shard-<name>
//	├─ lanes-<loop>      parents of lanes and their backends
//	├─ sessions-<loop>   parents of frontends
//	├─ cancel            key table
//	├─ admin             console
//	└─ listener          started last, stopped first
package supervisor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/actors/shard"
	"fencepost/actors/strategy"
	"fencepost/admin"
	"fencepost/cluster"
	"fencepost/config"
	"fencepost/eventloop"
	"fencepost/standstill"
)

// Fencepost is one running process: everything between its settings and its sockets. Make it with Start, end it with
// Shutdown, and Wait for the end.
type Fencepost struct {
	log     zerolog.Logger
	parts   Parts
	version string
	boot    string // identifies this run of the process
	path    string
	system  *actor.ActorSystem
	group   *eventloop.Group
	root    *actor.PID
	tree    *tree
	sockets *sockets
	budgets *lane.Budgets

	config   atomic.Pointer[config.Config]
	settings atomic.Pointer[frontend.Settings]
	clients  atomic.Int64
	cancels  atomic.Int64 // CancelRequests on their way to servers
	files    atomic.Pointer[descriptors]
	draining atomic.Bool // ordered to end
	closed   atomic.Bool // new clients are refused, because the process is about to end
	ids      atomic.Uint64

	reloading sync.Mutex // one reload at a time; guards shards
	shards    map[string]*shard.Shard

	ending   chan admin.Shutdown
	stopped  chan struct{}
	stopErr  error
	deadSubs deadLetters
	watch    *standstill.Watch
}

// Parts are the machines a process is built with. A control, which must fail, replaces one; nothing else does.
type Parts struct {
	Leases func() backend.Leases // nil: cancellease.Machine
	// Shard is the actor that publishes a shard's view; nil: shard.ActorProps.
	Shard func(shard.ActorConfig) *actor.Props
}

// Start listens and serves with the settings in cfg. It fails, and leaves nothing behind, when an address cannot be
// listened on.
func Start(cfg *config.Config, version string, log zerolog.Logger) (*Fencepost, error) {
	return StartWith(cfg, version, log, Parts{})
}

// StartWith is Start with parts of one's own.
func StartWith(cfg *config.Config, version string, log zerolog.Logger, parts Parts) (*Fencepost, error) {
	if parts.Leases == nil {
		parts.Leases = func() backend.Leases { return new(cancellease.Machine) }
	}
	if parts.Shard == nil {
		parts.Shard = shard.ActorProps
	}
	s := &Fencepost{log: log, boot: rand.Text(), parts: parts, version: version, path: cfg.Path, budgets: lane.NewBudgets(), shards: map[string]*shard.Shard{},
		ending: make(chan admin.Shutdown, 8), stopped: make(chan struct{})}
	if os.Getenv("GOGC") == "" {
		// Idle sessions hold little memory and steady traffic allocates nothing: a heap target close to the live heap
		// costs no CPU and keeps the process small.
		debug.SetGCPercent(50)
	}
	var err error
	if s.sockets, err = bind(s, cfg); err != nil {
		return nil, err
	}
	g, err := eventloop.NewGroup(eventloop.Options{Kind: eventloop.Kind(cfg.Fencepost.EventLoop), Loops: cfg.Fencepost.EventLoops, Panicked: s.panicked, Escalated: s.panicked})
	if err != nil {
		return nil, errors.Join(err, s.sockets.close())
	}
	s.group = g
	s.watch = standstill.Start(s.watching())
	s.system = newSystem(log)
	s.deadSubs.subscribe(s.system, log)
	s.config.Store(cfg)
	s.settings.Store(s.snapshot(cfg))
	warnOf(s.log, cfg, s.files.Load())
	defer s.warnOfSlowStart().Stop()
	if err := s.spawn(cfg); err != nil {
		s.end()
		close(s.stopped)
		return nil, err
	}
	go s.run()
	return s, nil
}

func (s *Fencepost) panicked(reason any, stack []byte) {
	s.log.Error().Str("reason", fmt.Sprint(reason)).Bytes("stack", stack).Msg("panic recovered")
}

// spawn starts the tree from the root down; clients and HTTP are served last.
func (s *Fencepost) spawn(cfg *config.Config) error {
	t := &tree{s: s, ready: make(chan error, 1)}
	s.tree = t
	t.deps(cfg)
	pid, err := s.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return t }, actor.WithSupervisor(strategy.ByChild(t.strategy)),
		actor.WithGuardian(strategy.Resume(s.log))), "fencepost")
	if err != nil {
		return fmt.Errorf("start actors: %w", err)
	}
	s.root = pid
	if err := <-t.ready; err != nil {
		return err
	}
	s.ensurePools(cfg)
	if s.sockets.http != nil {
		s.sockets.http.Serve()
	}
	return nil
}

// run waits for the order to end and carries it out. A second order overtakes the first.
func (s *Fencepost) run() {
	defer close(s.stopped)
	how := <-s.ending
	s.draining.Store(true)
	s.log.Info().Str("how", shutdownNames[how]).Msg("shutting down")
	if fleet := s.Fleet(); fleet != nil {
		s.system.Root.Send(fleet, &cluster.SetDraining{Draining: true})
	}
	if how != admin.Immediate {
		how = s.grace(how)
	}
	s.closed.Store(true)
	if how != admin.Immediate {
		s.system.Root.Send(s.tree.listener, yield{})
		s.drain(how)
	}
	s.end()
}

// grace goes on as before for drain_grace, or until another order to end comes, and returns the last order: whoever sends
// clients here has to see first that they should go elsewhere.
func (s *Fencepost) grace(how admin.Shutdown) admin.Shutdown {
	d := s.config.Load().Fencepost.DrainGrace
	if d <= 0 {
		return how
	}
	s.log.Info().Dur("drain_grace", d).Msg("draining: new clients are accepted until drain_grace is over")
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case how = <-s.ending:
	}
	return how
}

var shutdownNames = map[admin.Shutdown]string{admin.Immediate: "immediate", admin.WaitForServers: "drain", admin.WaitForClients: "wait_for_clients"}

// drain waits until every client but those of the console is gone, drain_timeout is over, or another order to end comes.
// Cancel requests are served meanwhile, since what they cancel is what is waited for, and so are admins on the Unix socket.
func (s *Fencepost) drain(how admin.Shutdown) {
	var limit <-chan time.Time
	if d := s.config.Load().Fencepost.DrainTimeout; d > 0 {
		limit = time.After(d)
	}
	if how == admin.WaitForServers {
		s.toSessions(&admin.Drain{})
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	last := time.Now()
	for s.serving() > 0 {
		select {
		case <-look.C:
			if time.Since(last) >= 10*time.Second {
				last = time.Now()
				s.log.Info().Int64("clients", s.serving()).Msg("waiting for clients to leave")
			}
		case <-limit:
			s.log.Warn().Int64("clients", s.serving()).Msg("drain_timeout is over: the remaining sessions are ended")
			return
		case <-s.ending:
			return
		}
	}
}

// serving is how many clients there are besides the console's.
func (s *Fencepost) serving() int64 { return s.clients.Load() - s.tree.frontendDeps.Consoles.Load() }

// end stops everything, in the order that ARCHITECTURE.md gives, each part with a time limit of its own.
func (s *Fencepost) end() {
	t := s.tree
	if t != nil && s.root != nil {
		s.stopActor(t.listener)
		s.toSessions(&admin.Drain{AtOnce: true})
		for end := time.Now().Add(stopLimit); s.clients.Load() > 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		for _, p := range t.sessions {
			s.stopActor(p)
		}
		for end := time.Now().Add(s.config.Load().Fencepost.CancelAckTimeout); s.cancels.Load() > 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		s.stopActor(t.cancel)
		for _, p := range t.lanes {
			s.stopActor(p)
		}
		for _, ref := range s.Shards() {
			s.stopActor(ref.PID)
		}
		s.leaveFleet()
		s.stopActor(s.root)
	}
	s.stopErr = s.sockets.close()
	s.group.Stop()
	s.watch.Stop()
	s.log.Info().Msg("stopped")
}

// stopLimit bounds the wait for each part of the tree.
const stopLimit = 5 * time.Second

func (s *Fencepost) stopActor(pid *actor.PID) {
	if pid == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.system.Root.StopFuture(pid).Wait(); err != nil {
			s.log.Warn().Str("actor", pid.Id).Err(err).Msg("stop")
		}
	}()
	select {
	case <-done:
	case <-time.After(stopLimit):
		s.log.Error().Str("actor", pid.Id).Msg("did not stop in time")
	}
}

func (s *Fencepost) toSessions(m any) {
	for _, p := range s.tree.sessions {
		s.system.Root.Send(p, m)
	}
}

// Wait blocks until the process has ended.
func (s *Fencepost) Wait() error {
	<-s.stopped
	return s.stopErr
}

// ErrReload wraps what kept a reload from being applied.
var ErrReload = errors.New("reload failed, the old settings stay in force")

func (t *tree) deps(cfg *config.Config) {
	s := t.s
	names := append(backend.Names{}, backend.BaseNames...)
	for _, n := range cfg.Fencepost.TrackExtraParameters {
		if names.Index(n) < 0 {
			names = append(names, n)
		}
	}
	next := func() uint64 { return s.ids.Add(1) }
	t.backendDeps = &backend.Deps{Group: s.group, Dialer: backend.PasswordDialer{}, Names: names, Log: s.log,
		CancelLimit:    func() time.Duration { return s.config.Load().Fencepost.CancelAckTimeout },
		CancelVanished: func() bool { return s.config.Load().Fencepost.CancelOnDisconnect }, Cancels: &s.cancels, Leases: s.parts.Leases}
	t.laneDeps = &lane.Deps{Backend: t.backendDeps, Budgets: s.budgets, ShardOf: t.shardPID, Log: s.log, NextID: next}
	t.frontendDeps = &frontend.Deps{Settings: &s.settings, Names: names, Clients: &s.clients, Draining: &s.closed, NextID: next, Version: s.version, Log: s.log}
}
