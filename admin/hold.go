package admin

import (
	"context"
	"slices"
	"strconv"
	"time"

	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/pgerr"
)

// holding is how far a SWITCHOVER has come at one member.
type holding struct {
	held    bool   // its writes wait
	from    string // who was the primary when they began to
	elected string // who is now; "" for nobody
	busy    int    // server connections to from that clients hold
	paused  time.Duration
}

// row and readHolding carry it between members.
func (h *holding) row() []string {
	return []string{yesNo(h.held), h.from, h.elected, strconv.Itoa(h.busy), strconv.FormatInt(h.paused.Milliseconds(), 10)}
}

func readHolding(rows [][]string) (h holding, ok bool) {
	if len(rows) != 1 || len(rows[0]) != 5 {
		return h, false
	}
	r := rows[0]
	busy, err := strconv.Atoi(r[3])
	if err != nil || busy < 0 {
		return h, false
	}
	ms, err := strconv.ParseInt(r[4], 10, 64)
	if err != nil {
		return h, false
	}
	return holding{held: r[0] == yesNo(true), from: r[1], elected: r[2], busy: busy, paused: time.Duration(ms) * time.Millisecond}, true
}

// quiet reports whether its writes wait and none is under way.
func (h *holding) quiet() bool { return h.held && h.busy == 0 }

// moved reports whether it has another primary than the one its writes waited on.
func (h *holding) moved() bool { return !h.held && h.elected != "" && h.elected != h.from }

// holdShard makes writes of a shard of this process wait, or wait longer. args are those of holdVerb; its primary is ""
// before the first answers.
func (c *Console) holdShard(ctx context.Context, args []string) (*holding, error) {
	name, order, from := args[0], args[1], args[3]
	ms, err := strconv.Atoi(args[2])
	if err != nil || ms <= 0 || ms > 60_000 {
		return nil, errUnknownOperation
	}
	x := &execution{c: c, ops: c.ops, ctx: ctx}
	ref, ok := c.shardRef(name)
	if !ok {
		return nil, pgerr.ConsoleError("no such shard: " + name)
	}
	row, ok := receive(ctx, askShards(c.ops, ref).replies[0])
	switch {
	case !ok:
		return nil, x.silence(ref)
	case row.Static:
		return nil, pgerr.ConsoleError("shard " + name + " has no roles").WithDetail("Its only host has the role any: there is no second host to switch to.")
	case from != "" && row.View.Elected != "" && row.View.Elected != from && !c.heldFor(order):
		// This member came to the fleet after the switchover: to hold the new primary would begin another one.
		return &holding{from: from, elected: row.View.Elected}, nil
	}
	state, err := c.holdNow(ctx, ref, order, time.Duration(ms)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	h := &holding{held: state.Paused, from: state.From, elected: state.Elected}
	// What the shard's actor answers now comes behind its new view, and what the lanes answer behind the notice of it.
	if row, ok = receive(ctx, askShards(c.ops, ref).replies[0]); !ok {
		return nil, x.silence(ref)
	}
	if !h.held {
		h.paused = waited(row.Transitions, h.from)
		return h, nil
	}
	x.barrier()
	rows, err := lanes(ctx, c.ops)
	if err != nil {
		return nil, err
	}
	h.busy = leases(rows, name, h.from)
	return h, nil
}

// holdNow gives the order to the shard's actor, unless it was withdrawn, and waits for the answer.
func (c *Console) holdNow(ctx context.Context, ref ShardRef, order string, d time.Duration) (shard.PauseState, error) {
	reply := make(chan shard.PauseState, 1)
	c.mu.Lock()
	withdrawn := c.withdrawn(order)
	if !withdrawn {
		c.ops.System().Root.Send(ref.PID, &shard.PauseWrites{ID: order, For: d, Reply: reply})
	}
	c.mu.Unlock()
	if withdrawn {
		return shard.PauseState{}, errWithdrawn
	}
	state, ok := receive(ctx, reply)
	switch {
	case !ok:
		return state, &silentShard{ref.Name}
	case state.Err != nil:
		return state, pgerr.ConsoleError(state.Err.Error())
	}
	c.mu.Lock()
	c.held = remember(c.held, order)
	c.mu.Unlock()
	return state, nil
}

// heldFor reports whether an order has made writes wait here.
func (c *Console) heldFor(order string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.held, order)
}

// leases counts the server connections to a shard's host that clients hold. Reads on it count too: who promotes another
// host stops this one.
func leases(rows []lane.LaneRow, name, host string) (n int) {
	for i := range rows {
		if spec := rows[i].Spec; spec == nil || spec.Shard == nil || spec.Shard.Name != name {
			continue
		}
		for _, b := range rows[i].Backends {
			if b.State == pool.Leased && b.Host == host {
				n++
			}
		}
	}
	return n
}

// waited is how long writes waited in the last switchover from a host, by the shard's own account: from the transition
// that began it to the one that ended it. 0: there was none, or it is not over.
func waited(all []shard.Transition, from string) time.Duration {
	var ended time.Time
	for i := len(all) - 1; i >= 0; i-- {
		switch t := &all[i]; {
		case t.Kind != "switchover":
		case ended.IsZero():
			ended = t.At
		case t.Host == from:
			return ended.Sub(t.At)
		default:
			return 0
		}
	}
	return 0
}
