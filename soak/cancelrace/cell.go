package cancelrace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fencepost/internal/product"
	"fencepost/internal/relay"
	"fencepost/soak/raw"
)

// cell is one pool size over one link while it runs.
type cell struct {
	tally
	set     setting
	o       *Options
	product *product.Fencepost
	relay   *relay.Relay
	meter   *raw.Meter
	hard    context.Context // ends when nothing is to be waited for any more
	cancels sync.WaitGroup  // requests
}

// afterLimit bounds how long the clients of a cell may need to come to an end.
const afterLimit = 2 * time.Minute

// play runs a cell until target cancels were sent to the server, its time is over or ctx ends.
func (r *run) play(ctx context.Context, set setting, target int) (*Cell, error) {
	dir, err := os.MkdirTemp(r.dir, "cell-")
	if err != nil {
		return nil, err
	}
	wire, err := relay.Listen(r.server)
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	late := relay.Late{Min: set.delay, Max: set.delay}
	wire.SetLate(late, late)
	wire.Treat(treatments(set, r.o.Seed))
	p, err := launch(ctx, r.binary, r.arm(), dir, set, r.o.Loops, wire.Addr())
	if err != nil {
		return nil, err
	}
	defer p.Kill() //nolint:errcheck // after a failure; else it has ended
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	c := &cell{set: set, o: r.o, product: p, relay: wire, meter: &raw.Meter{}, hard: hard}
	report := &Cell{Pool: set.pool, DelayMS: milliseconds(set.delay), Late: set.late, Target: target}
	began := time.Now()
	err = c.load(ctx, target, cancel)
	report.Seconds = time.Since(began).Seconds()
	report.Sent = wire.Sent.Load()
	report.Short = report.Sent < int64(target)
	if err == nil {
		err = c.after(ctx, report, r.arm())
	}
	c.into(report)
	if err != nil {
		return report, fmt.Errorf("%v: %w", set, p.Process().Failed(err))
	}
	return report, nil
}

// treatments says what is done to cancel requests: half of them take longer than what else goes over the link. In a cell
// with late cancels one in ten comes after cancel_ack_timeout, and one in twenty each is reset, never answered or lost.
func treatments(set setting, seed uint64) func() relay.Treatment {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 7))
	return func() relay.Treatment {
		mu.Lock()
		defer mu.Unlock()
		if set.late {
			switch dice := rng.IntN(20); {
			case dice < 2:
				return relay.Treatment{Wait: lateAckTimeout + time.Duration(rng.Int64N(int64(lateMost-lateAckTimeout)))}
			case dice == 2:
				return relay.Treatment{Fate: relay.Reset, Wait: time.Duration(rng.Int64N(int64(10 * time.Millisecond)))}
			case dice == 3:
				return relay.Treatment{Fate: relay.Mute}
			case dice == 4:
				return relay.Treatment{Fate: relay.Hang}
			}
		}
		if rng.IntN(2) == 0 {
			return relay.Treatment{}
		}
		return relay.Treatment{Wait: time.Duration(rng.Int64N(int64(set.extra())))}
	}
}

// load runs the clients. giveUp ends the requests that are still open long after.
func (c *cell) load(ctx context.Context, target int, giveUp func()) error {
	clients, stop := context.WithCancel(ctx)
	defer stop()
	g, clients := errgroup.WithContext(clients)
	rng := func(n int) *rand.Rand { return rand.New(rand.NewPCG(c.o.Seed, uint64(n))) }
	for i := range c.o.Victims {
		v := &victim{c: c, n: i, rng: rng(i)}
		g.Go(func() error { return v.run(clients) })
	}
	for i := range c.o.Cancellers {
		n := c.o.Victims + i
		k := &canceller{c: c, n: n, rng: rng(n)}
		g.Go(func() error { return k.run(clients) })
	}
	c.watch(clients, target)
	stop()
	last := time.AfterFunc(afterLimit, func() {
		c.fault("the clients did not come to an end within %v", afterLimit)
		giveUp()
		c.meter.CloseAll()
	})
	defer last.Stop()
	err := g.Wait()
	c.cancels.Wait()
	return err
}

// watch returns when the cell has had its cancels, its time is over, or ctx ends.
func (c *cell) watch(ctx context.Context, target int) {
	limit := time.NewTimer(c.o.CellLimit)
	defer limit.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	progress := time.NewTicker(c.o.Progress)
	defer progress.Stop()
	began := time.Now()
	for c.relay.Sent.Load() < int64(target) {
		select {
		case <-ctx.Done():
			return
		case <-c.product.Process().Done():
			return
		case <-limit.C:
			return
		case <-look.C:
		case <-progress.C:
			fmt.Fprintf(c.o.Out, "%v: %.0f s, %d of %d cancels sent, %d foreign, %d missed of %d\n", c.set, time.Since(began).Seconds(),
				c.relay.Sent.Load(), target, c.foreign.Load(), c.missed.Load(), c.judged.Load())
		}
	}
}

// login opens a session. Every other client speaks protocol 3.2, with its long keys.
func (c *cell) login(n int) (*raw.Conn, error) {
	return raw.Open(c.hard, raw.Login{Addr: c.product.Addr, User: user, Password: "any", Database: database,
		Protocol: []string{"3.0", "3.2"}[n%2]}, c.meter)
}

// after looks at Fencepost when all clients have left: what it has counted, its log, and how it ends.
func (c *cell) after(ctx context.Context, report *Cell, arm string) error {
	ctx = context.WithoutCancel(ctx)
	if err := c.product.Process().Alive(); err != nil {
		return err
	}
	m, err := c.settled(ctx, c.relay.Seen.Load())
	if err != nil {
		return err
	}
	report.Outcomes = m.outcomes
	if m.leases > 0 {
		report.LeaseMean = milliseconds(m.leased / time.Duration(m.leases))
	}
	if seen := c.relay.Seen.Load(); arm != control && m.sent() != seen {
		c.fault("Fencepost counts %d cancels that left for the server, the relay saw %d", m.sent(), seen)
	}
	if err := c.end(); err != nil {
		c.fault("end: %v", err)
	}
	if err := c.product.Errors(); err != nil && arm != control {
		for line := range strings.Lines(err.Error()) {
			c.fault("%.300s", strings.TrimSpace(line))
		}
	}
	return nil
}
