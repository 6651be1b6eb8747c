package shard

import (
	"context"
	"net"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/cluster"
	"fencepost/cluster/evidence"
	"fencepost/role"
)

// ActorConfig is what a shard's actor is made of.
type ActorConfig struct {
	Shard *Shard
	// Settings to begin with; see Configure. Those of a static shard are not looked at.
	Settings Settings
	// Lanes are those that are told of a new view: the parents of the lanes, one per loop. It is called whenever there is
	// one. nil: nobody.
	Lanes func() []*actor.PID
	// Observer is this process in what its shards observe: its boot identifier.
	Observer string
	Log      zerolog.Logger
	// Fleet is the actor of package cluster; nil: there is no fleet.
	Fleet *actor.PID
	// Dial is how monitors connect; nil: as monitor.Config says.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolver finds the addresses of host names; nil: as monitor.NamesConfig says.
	Resolver monitor.Resolver
	// Monitor spawns a host's monitor; nil: monitor.Props.
	Monitor func(monitor.Config) *actor.Props
}

// ActorProps spawns a shard's actor, on the ordinary dispatcher; one actor per Props. It is to be restarted when it
// fails: it then knows the floor and the primary that it had, in doubt, and asks its lanes which connections there are.
func ActorProps(c ActorConfig) *actor.Props {
	if c.Shard.View().Static {
		return actor.PropsFromProducer(func() actor.Actor { return &Actor{Shard: c.Shard, Log: c.Log} })
	}
	if c.Monitor == nil {
		c.Monitor = monitor.Props
	}
	if c.Lanes == nil {
		c.Lanes = func() []*actor.PID { return nil }
	}
	mem := &memory{settings: c.Settings, addresses: newAddresses()}
	return actor.PropsFromProducer(func() actor.Actor { return newDecider(&c, mem) })
}

// memory is what outlives a restart of the actor. It belongs to the incarnation that runs.
type memory struct {
	settings  Settings
	view      election.View // the last one; Epoch 0: none yet
	addresses addresses
	seq       uint64 // of the last observation
	file      stateKeeper
	peers     peers
	pause     pause
	early     []any // what came before the state file was read, in order
	history   history
	named     []role.Observation // what hosts said last of their cluster
}

// decider is the actor of a shard with roles. It executes what its two machines decide.
type decider struct {
	cfg *ActorConfig
	mem *memory
	log zerolog.Logger
	ctx actor.Context // within Receive

	election *election.Machine // nil until the state file was read
	health   *health.Machine
	ended    bool // stopping or restarting: children end and are not missed

	list     hostList // as the election has it
	monitors monitors
	pacer    pacer
	conns    connections
	proved   health.Proven // as told to health last

	doubtSince time.Time
	conflict   bool // several servers are writable on one timeline

	stale bool // something that the view or the rows show may have changed
	alarm alarm
	bugs  repeated
}

func newDecider(c *ActorConfig, mem *memory) *decider {
	log := c.Log.With().Str("shard", c.Shard.Name).Logger()
	mem.addresses.errs = map[string]error{} // the actor that follows the names was restarted, too, and reports anew
	return &decider{cfg: c, mem: mem, log: log, conns: connections{}, monitors: monitors{cfg: c, log: log, hosts: map[role.Host]*watched{}}}
}

// Receive implements actor.Actor.
func (a *decider) Receive(ctx actor.Context) {
	a.ctx = ctx
	whole := false
	defer func() {
		if !whole {
			a.cfg.Shard.Doubted(true, time.Now()) // it panicked: what it knew by now is not to be relied on
		}
	}()
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.started()
	case *actor.Restarting, *actor.Stopping:
		a.end()
	case *actor.Stopped:
	case *actor.Terminated:
		a.terminated(m.Who)
	case stateRead:
		if a.election == nil {
			a.mem.file.read(a.log, m)
			a.begin()
		}
	case stateWritten:
		a.mem.file.written(time.Now(), a.log, m) // before anything else can fail: or no other write would ever begin
		a.handle(m)
	default:
		if a.election == nil {
			a.keepEarly(m)
		} else {
			a.handle(m)
		}
	}
	whole = true
}

// started begins, or reads the state file first.
func (a *decider) started() {
	file := &a.mem.file
	if path := a.mem.settings.StateFile; path != "" && !file.known {
		root, self := a.ctx.ActorSystem().Root, a.ctx.Self()
		go func() { // ends with the read
			s, err := readState(path, a.cfg.Shard.Name)
			root.Send(self, stateRead{path, s, err})
		}()
		return
	}
	file.known = true
	a.begin()
}

// begin makes the machines and spawns the monitors. After a restart the floor and the elected host are those of the last
// view, the host in doubt, and the lanes say which connections there are.
func (a *decider) begin() {
	now, s := time.Now(), a.mem.settings
	var last *election.View // nil: there was none
	if v := a.mem.view; v.Epoch > 0 {
		last = &v
	}
	a.list = a.mem.addresses.hosts(s.Hosts)
	a.election = election.New(now, s.Election, a.list, a.mem.file.state.floor, last)
	a.election.Recall(a.mem.named)
	if last == nil {
		a.health = health.New(now, s.Health)
	} else {
		a.health = health.Resume(now, s.Health, last.Elected)
		a.mem.history.counts.Restarts++
		a.mem.history.counts.States[health.Unhealthy]++
		a.logTransition(now, zerolog.WarnLevel, "state", last.Elected, "the shard's actor was restarted")
	}
	a.stale = true
	a.setPace(now)
	a.watchNames()
	a.reconcileMonitors(now)
	a.elect(now, now, election.Tick{})
	if last == nil {
		a.elect(now, now, election.FloorKept{Seen: a.mem.file.state.seen})
	}
	a.judge(now, a.list.voters())
	a.joinFleet(now)
	for host := range a.mem.addresses.gone {
		a.elect(now, now, election.AddressGone{Host: host})
	}
	a.finish(now)
	if last != nil {
		a.notifyLanes(a.ctx.Self())
	}
	for len(a.mem.early) > 0 {
		m := a.mem.early[0]
		a.mem.early = a.mem.early[1:]
		a.handle(m)
	}
}

// Doubts reports whether a message's sender has raised doubt for it.
func Doubts(message any) bool {
	switch m := message.(type) {
	case *HostLost:
		return m.Doubts
	case *ConnectFailed:
		return m.Doubts
	case *Hinted:
		return m.Doubts
	}
	return false
}

// handle handles a message. A doubt that was raised for it ends when the machines have drawn their conclusions, or,
// if they fail, when the actor itself is in doubt.
func (a *decider) handle(message any) {
	whole := false
	defer func() {
		if !whole {
			a.cfg.Shard.Doubted(true, time.Now())
		}
		if Doubts(message) {
			a.cfg.Shard.ClearDoubt()
		}
	}()
	now := time.Now()
	if gap := a.cfg.Shard.stoodStill(now.Sub(a.cfg.Shard.base)); gap > 0 {
		a.elect(now, now, election.StoodStill{For: gap})
		a.finish(now)
	}
	a.dispatch(now, message)
	a.finish(now)
	a.cfg.Shard.beats(now, a.mem.settings.Election.TTL)
	whole = true
}

func (a *decider) dispatch(now time.Time, message any) {
	switch m := message.(type) {
	case *Connected:
		a.connected(now, m)
	case *Observed:
		a.observed(now, m.Observation)
	case *HostLost:
		a.hostLost(now, m)
	case *ConnectFailed:
		a.connectFailed(now, m)
	case *Hinted:
		a.hinted(now, m)
	case *Promoted:
		if elected := a.election.View().Elected; elected != "" && elected != role.Host(m.Host) {
			a.elect(now, m.At, election.Hint{Host: elected, Why: m.Host + " said that it is no standby any more", At: m.At})
		}
		a.monitors.probeAll(a.ctx)
	case *Waiting:
		a.pacer.waited = now
	case *monitor.Observed:
		a.probed(now, m.Observation)
	case *monitor.Late:
		a.elect(now, now, election.Late{Host: m.Host})
		if w := a.monitors.hosts[m.Host]; w != nil {
			w.late, a.stale = true, true
		}
	case *monitor.Lost:
		a.monitorLost(now, m)
	case *monitor.Refused:
		a.elect(now, m.At, election.Refused{Host: m.Host, AfterLoss: m.AfterLoss, Code: m.Code, At: m.At})
		a.assess(now, health.MonitorState{Host: m.Host, Kind: healthKind(m.Kind), Asked: m.Asked})
	case *monitor.Failed:
		a.monitorFailed(now, m)
	case *monitor.State:
		a.monitorState(now, m)
	case *monitor.Resolved:
		a.resolved(now, m)
	case *monitor.Unresolved:
		a.unresolved(now, m)
	case shardTick:
		if a.alarm.fired(m) {
			a.ticked(now)
		}
	case stateWritten: // recorded by Receive
	case *Configure:
		a.configure(now, m.Settings)
	case *Forget:
		a.forget(now, m)
	case *PauseWrites:
		a.pauseWrites(now, m)
	case *ResumeWrites:
		a.resumeWrites(now, m)
	case *cluster.PeerObserved:
		a.judge(now, m.PeerObserved)
	case *cluster.PeerFloorClaim:
		a.judge(now, m.FloorClaim)
	case *cluster.Generation:
		a.judge(now, evidence.GenerationKnown{Generation: m.Generation})
	case *cluster.ForgetOrdered:
		a.judge(now, m.ForgetOrdered)
	case *cluster.Members:
		a.mem.peers.members = m.Addrs[:min(len(m.Addrs), maxMembers)]
	case *cluster.Ready:
		a.ready(now, m)
	case *DescribeShard:
		m.Reply <- a.describe(now)
	default:
		a.log.Error().Type("message_type", m).Msg("shard: unhandled message")
	}
}
