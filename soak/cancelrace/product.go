package cancelrace

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/internal/poll"
	"fencepost/internal/product"
	"fencepost/internal/program"
)

// The two arms.
const (
	fencepost = "fencepost"
	control   = "control"
)

// build makes the program of an arm.
func build(ctx context.Context, dir, arm string) (string, error) {
	from := map[string]string{fencepost: "fencepost/cmd/fencepost", control: "fencepost/internal/control"}[arm]
	path := filepath.Join(dir, arm)
	return path, program.Build(ctx, path, from)
}

// The one database and its user.
const (
	database = "race"
	user     = "racer"
)

// stopLimit bounds the end of the program.
const stopLimit = 20 * time.Second

// launch starts the program in front of a server and waits until it accepts.
func launch(ctx context.Context, path, arm, dir string, s setting, loops int, server string) (*product.Fencepost, error) {
	own := product.Section{"auth_type": "trust", "pool_mode": "transaction", "default_pool_size": s.pool, "query_wait_timeout": "5m",
		"event_loops": loops, "log_connections": false, "log_disconnections": false, "log_format": "json"}
	if s.late {
		own["cancel_ack_timeout"] = lateAckTimeout.String()
	}
	c := product.Config{Name: arm, Program: path, Dir: dir, Settings: product.Settings{"fencepost": own,
		"shards":    {"main": product.Section{"hosts": product.AnyRole(server)}},
		"databases": {database: product.Section{"shard": "main"}},
		"users":     {user: product.Section{"password": "any"}}}}
	if arm == control {
		c.Args = []string{"-without", "leases", "-c"}
	}
	return product.Start(ctx, c)
}

// end stops the process as an operator would.
func (c *cell) end() error {
	if err := c.product.Process().Alive(); err != nil {
		return err
	}
	return c.product.Process().Stop(syscall.SIGTERM, stopLimit)
}

// counted is what Fencepost itself counts.
type counted struct {
	outcomes map[string]int64 // cancels by outcome
	running  int64            // on their way to a server now
	leases   int64
	leased   time.Duration // all leases together
}

// sent is how many cancels may have left for the server.
func (c *counted) sent() int64 {
	return c.outcomes["delivered"] + c.outcomes["timed_out"] + c.outcomes["uncertain"]
}

// metrics reads what there is about cancels.
func (c *cell) metrics(ctx context.Context) (*counted, error) {
	m, err := c.product.Metrics(ctx)
	if err == nil && !m.Has("fencepost_pool_cancels_total") {
		err = fmt.Errorf("/metrics has no cancels by outcome")
	}
	if err != nil {
		return nil, err
	}
	n := &counted{outcomes: map[string]int64{}, running: int64(m.Sum("fencepost_pool_cancels")),
		leases: int64(m.Sum("fencepost_pool_cancel_lease_seconds_count")),
		leased: time.Duration(m.Sum("fencepost_pool_cancel_lease_seconds_sum") * float64(time.Second))}
	for outcome, v := range m.By("fencepost_pool_cancels_total", "outcome") {
		n.outcomes[outcome] = int64(v)
	}
	return n, nil
}

// settled reads them when no cancel is on its way any more and at least so many have left. The last cancel for a backend
// that is given up is counted when it ends, and shows in no gauge until then.
func (c *cell) settled(ctx context.Context, sent int64) (m *counted, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	waited := poll.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		now, err := c.metrics(context.WithoutCancel(ctx))
		if err == nil {
			m = now
		}
		return err == nil && m.running == 0 && m.sent() >= sent, err
	})
	switch {
	case waited != nil && ctx.Err() == nil:
		return nil, waited
	case m.running > 0:
		return nil, fmt.Errorf("%d cancels are still on their way %v after the last client has left", m.running, stopLimit)
	}
	return m, nil
}
