package supervisor

import (
	"net/url"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/config"
)

// handles makes the handles of shards; those that are there already are kept. A shard whose hosts get roles, or lose
// them, or whose one host without a role is another one, is a new shard.
func (s *Fencepost) handles(cfg *config.Config) map[string]*shard.Shard {
	now := map[string]*shard.Shard{}
	for name, c := range cfg.Shards {
		old := s.shards[name]
		switch {
		case c.HasRoles() && old != nil && !old.View().Static:
			now[name] = old
		case c.HasRoles():
			now[name] = shard.NewShard(name)
		case old != nil && old.View().Static && old.View().Elected == c.Hosts[0].Addr:
			now[name] = old
		default:
			now[name] = shard.NewStatic(name, c.Hosts[0].Addr)
		}
	}
	return now
}

var roles = map[config.Role]election.Role{"": election.Auto, config.RoleAuto: election.Auto, config.RolePrimary: election.Primary,
	config.RoleReplica: election.Replica, config.RoleAny: election.Any}

var balances = map[config.Balance]shard.Balance{config.BalanceLeastWaiting: shard.LeastWaiting, config.BalanceRoundRobin: shard.RoundRobin,
	config.BalanceRandom: shard.Random}

// shardSettings are those of a shard with roles.
func shardSettings(cfg *config.Config, c *config.Shard) shard.Settings {
	user, password, dbname, _ := cfg.MonitorLogin(c)
	e, h := election.Defaults(), health.Defaults()
	e.TTL, e.UnhealthyAfter, e.SystemID = c.EvidenceTTL, c.UnhealthyAfter, c.SystemIdentifier
	if c.OnTwoWriters == config.TwoWritersRefuse {
		e.TwoWriters = election.Refuse
	}
	h.UnhealthyAfter, h.DisconnectRatio, h.MinTime = c.UnhealthyAfter, c.FailoverDisconnectRatio, c.FailoverMinTime
	st := shard.Settings{User: user, Password: password.Reveal(), Database: dbname, Interval: c.RoleCheckInterval, Election: e, Health: h,
		Refuse: c.FailoverPolicy == config.FailoverRefuse, Warm: c.FailoverWarm, Balance: balances[c.StandbyBalance],
		MaxLagTime: c.MaxLagTime, MaxLagBytes: uint64(c.MaxLagBytes), StateFile: c.StateFile}
	for _, host := range c.Hosts {
		st.Hosts = append(st.Hosts, shard.HostSetting{Addr: host.Addr, Role: roles[host.Role]})
	}
	return st
}

// spawnShard starts the actor of a shard, instead of one that was there under its name.
func (t *tree) spawnShard(ctx actor.Context, sh *shard.Shard) {
	t.stopShard(ctx, sh.Name)
	cfg := t.s.config.Load()
	c := shard.ActorConfig{Shard: sh, Observer: t.s.boot, Fleet: t.fleet, Log: t.s.log, Lanes: func() []*actor.PID { return t.lanes }}
	if section := cfg.Shards[sh.Name]; section != nil && section.HasRoles() {
		c.Settings = shardSettings(cfg, section)
	}
	t.spawned++
	pid, err := ctx.SpawnNamed(t.s.parts.Shard(c), shardPrefix+url.QueryEscape(sh.Name)+"-"+strconv.Itoa(t.spawned))
	if err != nil {
		t.s.log.Error().Err(err).Str("shard", sh.Name).Msg("spawn shard")
		return
	}
	t.mu.Lock()
	t.shards[sh.Name] = pid
	t.mu.Unlock()
}

func (t *tree) stopShard(ctx actor.Context, name string) {
	t.mu.Lock()
	old := t.shards[name]
	delete(t.shards, name)
	t.mu.Unlock()
	if old != nil {
		ctx.Stop(old)
	}
}

// reshard follows a reload: new shards get an actor, those that stay their new settings, those that are gone end.
func (s *Fencepost) reshard(cfg *config.Config, before map[string]*shard.Shard) {
	for name, sh := range s.shards {
		switch section := cfg.Shards[name]; {
		case before[name] != sh:
			s.system.Root.Send(s.root, spawnShard{sh})
		case section.HasRoles():
			s.system.Root.Send(s.tree.shardPID(name), &shard.Configure{Settings: shardSettings(cfg, section)})
		}
	}
	for name := range before {
		if s.shards[name] == nil {
			s.system.Root.Send(s.root, endShard{name})
		}
	}
}
