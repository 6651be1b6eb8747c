package supervisor

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/cluster"
	"fencepost/config"
)

// fleetConfig is the section [fleet] as package cluster takes it.
func (s *Fencepost) fleetConfig(f *config.Fleet, adminHTTP string) (cluster.Config, error) {
	member := f.Member
	if member == "" {
		name, err := os.Hostname()
		if err != nil {
			return cluster.Config{}, fmt.Errorf("fleet.member is not set, and this machine has no name: %w", err)
		}
		member = name
	}
	bind, err := netip.ParseAddrPort(f.Bind)
	if err != nil {
		return cluster.Config{}, fmt.Errorf("fleet.bind: %w", err)
	}
	advertise, _ := netip.ParseAddrPort(f.Advertise) // absent: not valid
	c := cluster.Config{Name: f.Name, Member: member, PeerID: uint32(f.PeerID), Version: s.version, AdminAddr: adminHTTP, Bind: bind, Advertise: advertise,
		Join: f.Join, Keys: f.Keys(), JoinWait: f.JoinWait, Size: f.Size, Log: s.log}
	return c, c.Check()
}

// spawnFleet starts the fleet's actor, if there is a fleet: before the shards, which ask it.
func (t *tree) spawnFleet(ctx actor.Context, cfg *config.Config) error {
	if cfg.Fleet == nil {
		return nil
	}
	var err error
	if t.fleet, err = ctx.SpawnNamed(cluster.Props(t.s.sockets.fleet), fleetName); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	ctx.Send(t.fleet, &cluster.SetSettings{Settings: common(cfg)})
	go t.s.tellLoad(t.fleet)
	return nil
}

const fleetName = "fleet"

// tellLoad tells the fleet how busy this member is, until the process ends.
func (s *Fencepost) tellLoad(fleet *actor.PID) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-every.C:
			s.system.Root.Send(fleet, &cluster.SetLoad{Clients: uint32(s.clients.Load()), Servers: uint32(s.budgets.Used())})
		}
	}
}

// Fleet implements admin.Operations: the fleet's actor, nil without a fleet.
func (s *Fencepost) Fleet() *actor.PID { return s.tree.fleet }

// common are the settings that members of a fleet should have alike, by key.
func common(cfg *config.Config) map[string]string {
	all := map[string]string{}
	for name, sh := range cfg.Shards {
		var hosts []string
		for _, h := range sh.Hosts {
			hosts = append(hosts, h.Addr+" "+string(h.Role))
		}
		for key, value := range map[string]any{"hosts": strings.Join(hosts, ", "), "system_identifier": sh.SystemIdentifier, "evidence_ttl": sh.EvidenceTTL,
			"on_two_writers": sh.OnTwoWriters, "failover_policy": sh.FailoverPolicy} {
			all["shards."+name+"."+key] = fmt.Sprint(value)
		}
	}
	if f := cfg.Fleet; f != nil {
		all["fleet.fleet_size"], all["fleet.fleet_max_db_connections"] = fmt.Sprint(f.Size), fmt.Sprint(f.MaxDBConnections)
	}
	return all
}

// reloadFleet applies what a reload may change of the fleet.
func (s *Fencepost) reloadFleet(cfg *config.Config) {
	if s.tree.fleet == nil || cfg.Fleet == nil {
		return
	}
	f := cfg.Fleet
	s.system.Root.Send(s.tree.fleet, &cluster.Configure{Join: f.Join, Keys: f.Keys(), Size: f.Size})
	s.system.Root.Send(s.tree.fleet, &cluster.SetSettings{Settings: common(cfg)})
}

// leaveFleet says goodbye to the other members and waits until it is said.
func (s *Fencepost) leaveFleet() {
	if s.tree.fleet == nil {
		return
	}
	s.system.Root.Send(s.tree.fleet, &cluster.Close{})
	for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, alive := s.system.ProcessRegistry.GetLocal(s.tree.fleet.Id); !alive {
			return
		}
	}
	s.log.Warn().Msg("did not leave the fleet in time")
}

// attachFleet says who serves what comes from other members.
func (t *tree) attachFleet(ctx actor.Context) {
	if t.fleet != nil {
		ctx.Send(t.fleet, &cluster.Attach{Cancels: t.cancel, Operations: t.admin})
	}
}

// inFleet passes a cancel on to a member of the fleet, and calls done when that has dealt with it; false if there is no
// fleet.
func (s *Fencepost) inFleet(peer uint16, key []byte, done func()) bool {
	if s.tree.fleet == nil {
		return false
	}
	s.system.Root.Send(s.tree.fleet, &cluster.CancelFor{PeerID: uint32(peer), Key: key, Done: done})
	return true
}
