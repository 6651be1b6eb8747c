package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/frontend"
	"fencepost/actors/lane"
	"fencepost/admin"
	"fencepost/config"
	"fencepost/eventloop"
)

var _ admin.Operations = (*Fencepost)(nil)

// Config implements admin.Operations.
func (s *Fencepost) Config() *config.Config { return s.config.Load() }

// Reload reads the settings file again and applies what can be applied to a running process. On an error everything
// stays as it was.
func (s *Fencepost) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	loaded, err := config.Load(s.path)
	if err != nil {
		s.log.Error().Err(err).Msg("reload failed, the old settings stay in force")
		return fmt.Errorf("%w: %w", ErrReload, err)
	}
	old := s.config.Load()
	applied, needRestart := config.Changes(old, loaded)
	next := config.Reloaded(old, loaded)
	s.config.Store(next)
	before := s.shards
	settings := s.snapshot(next)
	s.reshard(next, before)
	s.reloadFleet(next)
	s.settings.Store(settings)
	r := &routes{s: s, cfg: next, shards: s.shards}
	for _, p := range s.tree.lanes {
		s.system.Root.Send(p, &lane.Reload{Spec: r.specFor})
	}
	s.toSessions(&frontend.Recheck{})
	s.ensurePools(next)
	warnOf(s.log, next, s.files.Load())
	s.log.Info().Strs("applied", applied).Strs("need_restart", needRestart).Msg("settings reloaded")
	return nil
}

// Shutdown orders the end; Wait returns when it has come. A second order overtakes the first.
func (s *Fencepost) Shutdown(how admin.Shutdown) {
	select {
	case s.ending <- how:
	default:
	}
}

// Loops implements admin.Operations.
func (s *Fencepost) Loops() []eventloop.Loop { return s.group.Loops() }

// Lanes implements admin.Operations.
func (s *Fencepost) Lanes() []*actor.PID { return s.tree.lanes }

// Sessions implements admin.Operations.
func (s *Fencepost) Sessions() []*actor.PID { return s.tree.sessions }

// Shards implements admin.Operations.
func (s *Fencepost) Shards() []admin.ShardRef {
	t := s.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	refs := make([]admin.ShardRef, 0, len(t.shards))
	for _, name := range slices.Sorted(maps.Keys(t.shards)) {
		refs = append(refs, admin.ShardRef{Name: name, PID: t.shards[name]})
	}
	return refs
}

// Clients implements admin.Operations.
func (s *Fencepost) Clients() int64 { return s.clients.Load() }

// ServerConnections implements admin.Operations.
func (s *Fencepost) ServerConnections(database string) int { return s.budgets.DatabaseUsed(database) }

// Draining implements admin.Operations.
func (s *Fencepost) Draining() bool { return s.draining.Load() }

// Actors counts what the registry holds.
func (s *Fencepost) Actors() int {
	n := 0
	for _, m := range s.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		n += m.Count()
	}
	return n
}

// Standstills implements admin.Operations.
func (s *Fencepost) Standstills() (uint64, time.Duration) { return s.watch.Gaps() }

// Version implements admin.Operations.
func (s *Fencepost) Version() string { return s.version }

// System implements admin.Operations.
func (s *Fencepost) System() *actor.ActorSystem { return s.system }
