package admin

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"fencepost/actors/shard"
	"fencepost/cluster"
	"fencepost/pgerr"
)

// This file is what this process does for a member that asks all of them.

// maxOrders is how many withdrawn orders are remembered, so that one that comes late begins nothing, and how many that
// made writes wait here.
const maxOrders = 64

var errWithdrawn = pgerr.ConsoleError("it was undone before it began")

// withdrawn reports whether an order was withdrawn; c.mu is held.
func (c *Console) withdrawn(order string) bool { return order != "" && slices.Contains(c.over, order) }

// withdraw remembers that an order was; c.mu is held.
func (c *Console) withdraw(order string) { c.over = remember(c.over, order) }

// remember adds an order to the last ones.
func remember(orders []string, order string) []string {
	if slices.Contains(orders, order) {
		return orders
	}
	return append(orders[max(len(orders)-maxOrders+1, 0):], order)
}

// operation does what a member asks of all, and answers it.
func (c *Console) operation(ctx context.Context, op *cluster.Operation) {
	left := time.Until(op.Deadline)
	ctx, cancel := context.WithTimeout(ctx, left-min(returnLimit, left/4))
	defer cancel()
	done := &cluster.OperationDone{ID: op.ID}
	rows, err := c.perform(ctx, op.From, op.Verb, op.Args)
	if done.Rows = rows; err != nil {
		done.Err = inOneLine(asError(err))
	}
	c.ops.System().Root.Send(op.Reply, done)
}

var errUnknownOperation = pgerr.ConsoleError("this version of Fencepost does not know that operation")

// perform does here what everywhere asks for.
func (c *Console) perform(ctx context.Context, from, verb string, args []string) (rows [][]string, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error().Interface("reason", r).Bytes("stack", debug.Stack()).Msg("fleet operation failed")
			rows, err = nil, fmt.Errorf("console: %v", r)
		}
	}()
	switch {
	case verb == statementVerb && len(args) == 2:
		return nil, c.statement(ctx, from, args[0], args[1])
	case verb == undoVerb && len(args) == 1:
		return nil, c.undo(ctx, args[0])
	case verb == holdVerb && len(args) == 4:
		return c.hold(ctx, args)
	case verb == releaseVerb && len(args) == 2:
		c.release(args[0], args[1])
		return nil, nil
	}
	return nil, errUnknownOperation
}

// statement carries out one statement of those that may be given to the fleet, as for an admin's session.
func (c *Console) statement(ctx context.Context, from, text, order string) error {
	all, perr := parse(text)
	switch {
	case perr != nil:
		return perr
	case len(all) != 1 || !c.commands[all[0].verb()].fleet || all[0].forFleet():
		return pgerr.ConsoleSyntax(text)
	}
	user := "member " + from
	if from == "" {
		user = "this process"
	}
	x := &execution{c: c, ops: c.ops, ctx: ctx, cmd: &Command{Text: text, User: user, Admin: true}, order: order}
	return x.statement(all[0])
}

// undo ends what a PAUSE FLEET began here, and nothing else: a database that was paused before stays paused.
func (c *Console) undo(ctx context.Context, order string) error {
	x := &execution{c: c, ops: c.ops, ctx: ctx}
	c.mu.Lock()
	c.withdraw(order)
	var replies []chan int
	for name, p := range c.paused {
		if p.order == order {
			replies = append(replies, c.resume(name)...)
		}
	}
	c.mu.Unlock()
	return x.settled(replies)
}

// hold makes writes of a shard wait here, for the milliseconds it is told, and answers how far that has come.
func (c *Console) hold(ctx context.Context, args []string) ([][]string, error) {
	h, err := c.holdShard(ctx, args)
	if err != nil {
		return nil, err
	}
	return [][]string{h.row()}, nil
}

// release lets them go on.
func (c *Console) release(name, order string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdraw(order)
	if ref, ok := c.shardRef(name); ok {
		c.ops.System().Root.Send(ref.PID, &shard.ResumeWrites{ID: order})
	}
}
