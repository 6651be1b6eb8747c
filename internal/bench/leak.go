package main

import (
	"context"
	"time"

	"fencepost/internal/poll"
	"fencepost/internal/product"
)

// Names of the metrics that the harness reads from Fencepost.
const (
	metricGoroutines = "go_goroutines"
	metricActors     = "fencepost_actors"
	metricMallocs    = "go_memstats_mallocs_total"
)

// held is what a Fencepost process holds that its clients could leave behind. A count is -1 where the process does
// not tell it.
type held struct {
	Descriptors int `json:"descriptors"`
	Goroutines  int `json:"goroutines"`
	Actors      int `json:"actors"`
}

// leakResult compares before and after. Settled is false when they were still different after the wait.
type leakResult struct {
	Arm         string `json:"arm"`
	Connections int    `json:"connections"`
	Before      held   `json:"before"`
	After       held   `json:"after"`
	Settled     bool   `json:"settled"`
	Error       string `json:"error,omitempty"` // then the counts are void
}

// leakSettle is how long a process may take to let go of the last clients.
const leakSettle = 15 * time.Second

// checkLeak has n clients connect, run a query and leave a fresh Fencepost, every other one without saying goodbye,
// and compares what the process holds before and after. The pool is full before the first count and idle server
// connections stay open for minutes, so that they are the same on both sides.
func (l *lab) checkLeak(ctx context.Context, arm string, n int) (leakResult, error) {
	res := leakResult{Arm: arm, Connections: n}
	p, err := l.start(ctx, arm)
	if err != nil {
		return res, err
	}
	defer p.stop()
	if err := fillPool(ctx, p.addr, l.opts.pool); err != nil {
		return res, err
	}
	if err := poll.For(ctx, time.Second); err != nil {
		return res, err
	}
	if res.Before, err = p.holds(ctx); err != nil {
		return res, err
	}
	err = concurrently(n, func(i int) error {
		c, err := dial(ctx, p.addr)
		if err != nil {
			return err
		}
		if err := c.query("SELECT 1"); err != nil {
			c.drop()
			return err
		}
		if i%2 == 0 {
			c.drop()
		} else {
			c.close()
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	for deadline := time.Now().Add(leakSettle); ; {
		if res.After, err = p.holds(ctx); err != nil {
			return res, err
		}
		res.Settled = res.After == res.Before
		if res.Settled || time.Now().After(deadline) {
			return res, nil
		}
		if err := poll.For(ctx, 200*time.Millisecond); err != nil {
			return res, err
		}
	}
}

// holds reads the counts. The descriptors are counted while no request for metrics is open.
func (p *pooler) holds(ctx context.Context) (held, error) {
	m, err := p.fencepost.Metrics(ctx)
	if err != nil {
		return held{}, err
	}
	count := func(name string) int {
		if m.Has(name) {
			return int(m.Sum(name))
		}
		return -1
	}
	h := held{Goroutines: count(metricGoroutines), Actors: count(metricActors)}
	if err := poll.For(ctx, 50*time.Millisecond); err != nil {
		return h, err
	}
	h.Descriptors, err = product.Descriptors(p.pid())
	return h, err
}
