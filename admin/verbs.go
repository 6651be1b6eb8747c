package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"fencepost/actors/lane"
	"fencepost/pgerr"
)

// pollInterval is how often PAUSE and WAIT_CLOSE look.
const pollInterval = 50 * time.Millisecond

func (c *Console) isPaused(database string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused[database] != nil
}

// pausedDatabases are those with a PAUSE of their own.
func (c *Console) pausedDatabases() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.paused {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// control sends a verb to the lanes of all loops, without waiting. c.mu is held, so that loops see verbs in the order in
// which the console decided them.
func (c *Console) control(verb lane.Verb, database string) []chan int {
	return tell(c.ops.System(), c.ops.Lanes(), func(r chan<- int) any {
		return &lane.Control{Verb: verb, Database: database, Reply: r}
	})
}

// settled waits until the loops have done what control asked for.
func (x *execution) settled(replies []chan int) error {
	ctx, cancel := x.limited()
	defer cancel()
	_, err := collect(ctx, replies)
	return err
}

func pauseCommand(x *execution, s statement) error {
	db, err := x.database(s, "pause")
	if err != nil {
		return err
	}
	p, replies, err := x.c.pause(db, x.order)
	if err != nil {
		return err
	}
	err = x.settled(replies)
	if err == nil {
		err = x.until(lane.Pause, db, func() error {
			if !x.c.inForce(p) {
				return pgerr.ConsoleError("PAUSE was ended by RESUME")
			}
			return nil
		})
		if errors.Is(err, errInterrupted) {
			x.c.unpause(p) // whoever interrupts PAUSE does not want it, as in PgBouncer
		}
	}
	if err != nil && x.order != "" && p.order == x.order {
		x.c.unpause(p) // the fleet is paused as a whole or not at all
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return pgerr.ConsoleError("transactions did not end in time")
	case err != nil:
		return err
	}
	return x.done("PAUSE")
}

// pause begins a pause, unless everything is paused already. A database may be paused again: that waits for the same.
// order is that of a PAUSE FLEET, "" for none.
func (c *Console) pause(database, order string) (*pause, []chan int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused[""] != nil {
		return nil, nil, pgerr.ConsoleError("already suspended/paused")
	}
	if c.withdrawn(order) {
		return nil, nil, errWithdrawn
	}
	p := c.paused[database]
	if p == nil {
		p = &pause{database, order}
		c.paused[database] = p
	}
	return p, c.control(lane.Pause, database), nil
}

func (c *Console) inForce(p *pause) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused[p.database] == p
}

// unpause ends a pause that is still in force.
func (c *Console) unpause(p *pause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused[p.database] == p {
		c.resume(p.database) // who interrupts or fails does not wait for the lanes
	}
}

// resume ends a pause; c.mu is held. Pauses of all and of one database are independent, as in PgBouncer: whichever is
// left stays in force.
func (c *Console) resume(database string) []chan int {
	delete(c.paused, database)
	if database != "" {
		if c.paused[""] != nil {
			return nil // its lanes stay paused; the RESUME of all will free them
		}
		return c.control(lane.Resume, database)
	}
	replies := c.control(lane.Resume, "")
	for _, name := range slices.Sorted(maps.Keys(c.paused)) {
		replies = append(replies, c.control(lane.Pause, name)...)
	}
	return replies
}

func resume(x *execution, s statement) error {
	db, err := x.database(s, "resume")
	if err != nil {
		return err
	}
	if db == "" && x.ops.Draining() {
		return pgerr.ConsoleError("pooler is shutting down")
	}
	x.c.mu.Lock()
	if x.c.paused[db] == nil {
		x.c.mu.Unlock()
		if db == "" {
			return pgerr.ConsoleError("pooler is not paused/suspended")
		}
		return pgerr.ConsoleError("database " + db + " is not paused")
	}
	replies := x.c.resume(db)
	x.c.mu.Unlock()
	if err := x.settled(replies); err != nil {
		return err
	}
	return x.done("RESUME")
}

func reconnect(x *execution, s statement) error {
	db, err := x.database(s, "reconnect")
	if err != nil {
		return err
	}
	x.c.mu.Lock()
	replies := x.c.control(lane.Reconnect, db)
	x.c.mu.Unlock()
	if err := x.settled(replies); err != nil {
		return err
	}
	return x.done("RECONNECT")
}

func waitClose(x *execution, s statement) error {
	db, err := x.database(s, "wait in")
	if err != nil {
		return err
	}
	if err := x.until(lane.Reconnect, db, func() error { return nil }); err != nil {
		return err
	}
	return x.done("WAIT_CLOSE")
}

// until returns when no lane of the database has anything left that verb waits for, when check fails, or when the
// session or the process ends. It has no other limit: a transaction may take as long as it likes.
func (x *execution) until(verb lane.Verb, database string, check func() error) error {
	x.barrier()
	for {
		ctx, cancel := x.limited()
		counts, err := ask(ctx, x.ops.System(), x.ops.Lanes(), func(r chan<- int) any {
			return &lane.Quiet{Wait: verb, Database: database, Reply: r}
		})
		cancel()
		// A loop that does not answer has not come to rest.
		quiet := err == nil && !slices.ContainsFunc(counts, func(n int) bool { return n > 0 })
		if err := check(); err != nil || quiet {
			return err
		}
		select {
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		case <-time.After(pollInterval):
		}
		if x.gone() {
			return errClientGone
		}
	}
}

// barrier waits until every loop has run what was queued there: lanes hand a verb on to each lane by message, and only a
// lane that has it counts right.
func (x *execution) barrier() {
	ctx, cancel := x.limited()
	defer cancel()
	passed := make(chan struct{}, len(x.ops.Loops()))
	n := 0
	for _, l := range x.ops.Loops() {
		if l.Post(func() { passed <- struct{}{} }) {
			n++
		}
	}
	for ; n > 0; n-- {
		select {
		case <-passed:
		case <-ctx.Done():
			return
		}
	}
}

func reload(x *execution, s statement) error {
	if len(s.args()) > 0 {
		return pgerr.ConsoleSyntax(s.text)
	}
	result := make(chan error, 1)
	go func() { // ends when the reload does
		defer func() {
			if r := recover(); r != nil {
				result <- fmt.Errorf("panic: %v", r)
			}
		}()
		result <- x.ops.Reload()
	}()
	ctx, cancel := x.limited()
	defer cancel()
	select {
	case err := <-result:
		if err != nil {
			return pgerr.ReloadFailed(err.Error())
		}
		return x.done("RELOAD")
	case <-ctx.Done():
		return pgerr.ConsoleError("RELOAD has not finished yet").WithHint("It continues; the log will have its result.")
	}
}

func killClient(x *execution, s statement) error {
	arg, perr := s.argument()
	if perr != nil {
		return perr
	}
	id, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return pgerr.ConsoleError("invalid client pointer supplied")
	}
	ctx, cancel := x.limited()
	defer cancel()
	found, err := ask(ctx, x.ops.System(), x.ops.Sessions(), func(r chan<- bool) any { return &Kill{ID: id, Reply: r} })
	switch {
	case slices.Contains(found, true):
		return x.done("KILL_CLIENT")
	case err != nil:
		return err
	}
	return pgerr.ConsoleError("client not found")
}
