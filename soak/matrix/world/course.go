package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fencepost/internal/poll"
)

// event is one kind of event.
type event struct {
	name   string
	timing Timing
	run    func(*course) error
}

func (e event) Name() string { return e.name }

// eventLimit bounds an event, on top of the times that Timing gives.
const eventLimit = 2 * time.Minute

func (e event) Run(ctx context.Context, w *World) (Occurrence, error) {
	if !w.busy.CompareAndSwap(false, true) {
		return Occurrence{}, errors.New("another event is under way")
	}
	defer w.busy.Store(false)
	ctx, cancel := context.WithTimeout(ctx, eventLimit+e.timing.total())
	defer cancel()
	old := w.Primary()
	c := &course{Occurrence: Occurrence{Name: e.name, Began: time.Now(), Old: old.Name}, ctx: ctx, w: w, timing: e.timing, old: old}
	err := e.run(c)
	if err == nil {
		err = w.whole(ctx, func(s *Server) { c.did(s, DidRebuild) })
	}
	c.New, c.Ended = w.Primary().Name, time.Now()
	if err != nil {
		return c.Occurrence, fmt.Errorf("%s: %w", e.name, err)
	}
	c.did(nil, DidWhole)
	return c.Occurrence, nil
}

func (t Timing) total() time.Duration {
	return t.Detect + t.Demoted + t.Frozen + t.Cut + 2*t.Believes + t.ReadOnly + t.Copy + t.Dead + t.Slow + t.SlowMax
}

// course is an event under way.
type course struct {
	Occurrence
	ctx    context.Context //nolint:containedctx // it lives as long as the call that it came with
	w      *World
	timing Timing
	old    *Server // the primary before
}

// did notes a step. No server: it is about all.
func (c *course) did(s *Server, what string) {
	step := Step{At: time.Now(), What: what}
	if s != nil {
		step.Server = s.Name
	}
	c.Steps = append(c.Steps, step)
	c.w.say("%s %.1f s: %s", c.Name, step.At.Sub(c.Began).Seconds(), strings.TrimSpace(step.Server+" "+what))
	c.w.config.Log.Debug().Str("event", c.Name).Str("server", step.Server).Str("step", what).Msg("event")
}

// lost is did for the step that takes the old primary's writes away.
func (c *course) lost(what string) {
	c.Lost = time.Now()
	c.did(c.old, what)
}

// sayPause is the longest time without a line of progress.
const sayPause = 5 * time.Second

// hold lets time pass.
func (c *course) hold(d time.Duration, why string) error {
	for until := time.Now().Add(d); ; {
		left := time.Until(until)
		if left <= 0 {
			return c.ctx.Err()
		}
		if err := poll.For(c.ctx, min(left, sayPause)); err != nil {
			return err
		}
		if left > sayPause {
			c.w.say("%s %.1f s: %s for another %.0f s", c.Name, time.Since(c.Began).Seconds(), why, time.Until(until).Seconds())
		}
	}
}

// stop stops the old primary in order.
func (c *course) stop() error {
	if err := c.old.stop(c.ctx); err != nil {
		return err
	}
	c.lost(DidStop)
	return nil
}

// settled is how long standbys get no WAL before it is believed that no more is under way to them.
const settled = 40 * time.Millisecond

// best is the standby that has the most of the WAL, once none of them gets more. The primary must hear no standby any more:
// what it acknowledged before is then on the one that is returned, if replication is synchronous.
func (c *course) best() (*Server, error) {
	var best *Server
	var most, sum int64
	since := time.Now()
	err := poll.Until(c.ctx, pollEvery, func() (bool, error) {
		before := sum
		best, most, sum = nil, -1, 0
		for _, s := range c.w.standbys() {
			lsn, err := s.received(c.ctx)
			if err != nil {
				return false, err
			}
			sum += lsn
			if lsn > most {
				best, most = s, lsn
			}
		}
		if sum != before {
			since = time.Now()
		}
		return time.Since(since) >= settled, nil
	})
	return best, err
}

// promote makes a standby the primary, and the other standbys that run follow it.
func (c *course) promote(next *Server) error {
	if err := next.node.Promote(c.ctx); err != nil {
		return err
	}
	c.w.setPrimary(next)
	c.did(next, DidPromote)
	for _, s := range c.w.standbys() {
		if s == c.old {
			continue
		}
		if err := s.node.Follow(c.ctx, next.node); err != nil {
			return err
		}
		c.did(s, DidFollow)
	}
	return nil
}

// promoteBest promotes the standby that has the most of the WAL.
func (c *course) promoteBest() error {
	next, err := c.best()
	if err != nil {
		return err
	}
	return c.promote(next)
}

// comeBack starts the old primary as a standby of another server, after it was stopped in order.
func (c *course) comeBack(next *Server) error {
	if err := c.old.node.Follow(c.ctx, next.node); err != nil {
		return err
	}
	if err := c.old.node.Start(c.ctx); err != nil {
		return err
	}
	c.did(c.old, DidStandby)
	return nil
}

// rebuild makes a server a standby of the primary from a copy of it.
func (c *course) rebuild(s *Server) error {
	if err := s.rebuild(c.ctx, c.w.Primary()); err != nil {
		return err
	}
	c.did(s, DidRebuild)
	return nil
}
