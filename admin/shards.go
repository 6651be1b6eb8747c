package admin

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane"
	"fencepost/actors/shard"
	"fencepost/config"
)

// ShardRef is a shard's name and its actor.
type ShardRef struct {
	Name string
	PID  *actor.PID
}

// shardRef finds a shard by its name.
func (c *Console) shardRef(name string) (ShardRef, bool) {
	for _, r := range c.ops.Shards() {
		if r.Name == name {
			return r, true
		}
	}
	return ShardRef{}, false
}

// described is a shard's description; row is nil if its actor did not answer in time.
type described struct {
	name string
	row  *shard.Row
}

// shardQuestion is what was asked of the shards' actors and is not answered yet.
type shardQuestion struct {
	refs    []ShardRef
	replies []chan shard.Row
}

// askShards asks shards for their rows, without waiting: what lanes are asked meanwhile shares the time limit.
func askShards(ops Operations, refs ...ShardRef) shardQuestion {
	q := shardQuestion{refs: refs}
	pids := make([]*actor.PID, len(q.refs))
	for i, r := range q.refs {
		pids[i] = r.PID
	}
	q.replies = tell(ops.System(), pids, func(r chan<- shard.Row) any { return &shard.DescribeShard{Reply: r} })
	return q
}

// answers waits until ctx ends and returns every shard, also those whose actor is silent: the others are worth showing.
func (q shardQuestion) answers(ctx context.Context) []described {
	all := make([]described, len(q.refs))
	for i, reply := range q.replies {
		all[i].name = q.refs[i].Name
		if row, ok := receive(ctx, reply); ok {
			all[i].row = &row
		}
	}
	return all
}

// silentShard is the error of a shard whose actor did not answer in time.
type silentShard struct{ name string }

func (s *silentShard) Error() string { return "no answer in time from the actor of shard " + s.name }

// electedHosts finds the host that each shard sends its writes to, "" if there is none. What the settings and the lanes
// tell saves the question; a shard that is not in the result did not answer in time.
func electedHosts(ctx context.Context, ops Operations, rows []lane.LaneRow) map[string]string {
	elected := map[string]string{}
	for name, s := range ops.Config().Shards {
		if len(s.Hosts) == 1 && s.Hosts[0].Role == config.RoleAny {
			elected[name] = s.Hosts[0].Addr
		}
	}
	for i := range rows {
		if spec := rows[i].Spec; spec != nil && spec.Shard != nil {
			elected[spec.Shard.Name] = spec.Shard.View().Elected
		}
	}
	var unknown []ShardRef
	for _, r := range ops.Shards() {
		if _, ok := elected[r.Name]; !ok {
			unknown = append(unknown, r)
		}
	}
	for _, d := range askShards(ops, unknown...).answers(ctx) {
		if d.row != nil {
			elected[d.name] = d.row.View.Elected
		}
	}
	return elected
}
