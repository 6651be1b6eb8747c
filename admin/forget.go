package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fencepost/actors/shard"
	"fencepost/pgerr"
)

// forget is FORGET shard: the system identifier and the floor are cleared, and what the hosts say from then on counts
// anew. For a restored backup, an upgraded cluster, and a copy that was promoted and withdrawn.
func forget(x *execution, s statement) error {
	name, perr := s.argument()
	if perr != nil {
		return perr
	}
	ref, err := x.shard(s, name)
	if err != nil {
		return err
	}
	return x.forget(ref)
}

// shard finds the shard that a command names.
func (x *execution) shard(s statement, name string) (ShardRef, error) {
	if ref, ok := x.c.shardRef(name); ok {
		return ref, nil
	}
	var names []string
	for _, r := range x.ops.Shards() {
		names = append(names, r.Name)
	}
	err := pgerr.ConsoleError("no such shard: " + name)
	if len(s.args()) == 0 {
		err = pgerr.ConsoleError(strings.ToUpper(s.verb()) + " needs the name of a shard")
	}
	return ShardRef{}, err.WithHint("The shards are: " + strings.Join(names, ", "))
}

func (x *execution) forget(ref ShardRef) error {
	ctx, cancel := x.limited()
	defer cancel()
	row, ok := receive(ctx, askShards(x.ops, ref).replies[0])
	switch {
	case !ok:
		return x.silence(ref)
	case row.Static:
		return pgerr.ConsoleError("shard " + ref.Name + " has no roles").
			WithDetail("Its only host has the role any: Fencepost keeps no floor or system identifier for it.")
	}
	reply := make(chan uint64, 1)
	x.ops.System().Root.Send(ref.PID, &shard.Forget{Reply: reply})
	generation, ok := receive(ctx, reply)
	if !ok {
		return x.silence(ref)
	}
	x.notice(fmt.Sprintf("shard %s forgot its system identifier and its floor; its generation is %d", ref.Name, generation))
	return x.done("FORGET")
}

// silence is why a shard's answer is not there: its actor is silent, or nobody waits for it any more.
func (x *execution) silence(ref ShardRef) error {
	if err := x.ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return context.Cause(x.ctx)
	}
	return &silentShard{ref.Name}
}
