package admin

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane"
)

// The counters of SHOW STATS, in its order. Times are in microseconds.
const (
	assignmentCount = iota
	xactCount
	queryCount
	received
	sent
	xactTime
	queryTime
	waitTime
	clientParseCount
	serverParseCount
	bindCount
	loginCount
	counterKinds
)

// counters are what SHOW STATS counts for one database.
type counters [counterKinds]uint64

func (c *counters) add(s *lane.Stats) {
	for i, n := range [counterKinds]uint64{s.Assignments, s.Transactions, s.Queries, s.Received, s.Sent,
		uint64(s.TransactionTime.Microseconds()), uint64(s.QueryTime.Microseconds()), uint64(s.WaitTime.Microseconds()),
		// Each Parse of a client is passed on to its server.
		s.Parses, s.Parses, s.Binds, s.Logins} {
		c[i] += n
	}
}

func (c *counters) sum(o *counters) {
	for i, n := range o {
		c[i] += n
	}
}

// command counts a statement of the console.
func (c *counters) command(took time.Duration, in, out int) {
	c[xactCount]++
	c[queryCount]++
	c[received] += uint64(in)
	c[sent] += uint64(out)
	c[xactTime] += uint64(took.Microseconds())
	c[queryTime] += uint64(took.Microseconds())
}

// average is what happened from old to c within d, as PgBouncer shows it: times of transactions and queries per
// transaction and query, all else per second. A counter that went back, because its pool is gone, counts as at rest.
func (c *counters) average(old *counters, d time.Duration) (avg counters) {
	if d <= 0 {
		return avg
	}
	var delta counters
	for i := range c {
		if c[i] > old[i] {
			delta[i] = c[i] - old[i]
		}
		avg[i] = uint64(float64(delta[i]) / d.Seconds())
	}
	avg[xactTime], avg[queryTime] = 0, 0
	if n := delta[xactCount]; n > 0 {
		avg[xactTime] = delta[xactTime] / n
	}
	if n := delta[queryCount]; n > 0 {
		avg[queryTime] = delta[queryTime] / n
	}
	return avg
}

// sample is all counters at a moment, by database.
type sample struct {
	at        time.Time
	databases map[string]*counters
}

// history keeps two samples, so that an average always covers one to two periods, as in PgBouncer.
type history struct{ older, newer *sample }

func (h *history) begin(at time.Time) {
	if h.newer == nil {
		h.newer = &sample{at: at}
		h.older = h.newer
	}
}

func (h *history) push(s *sample) { h.older, h.newer = h.newer, s }

// sampleNow counts what lanes report, with the console's own row.
func (c *Console) sampleNow(rows []lane.LaneRow) *sample {
	s := &sample{at: time.Now(), databases: map[string]*counters{}}
	for i := range rows {
		d := s.databases[rows[i].Pool.Database]
		if d == nil {
			d = &counters{}
			s.databases[rows[i].Pool.Database] = d
		}
		d.add(&rows[i].Stats)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.own
	s.databases[consoleDatabase] = &own
	return s
}

// takeSample runs on a goroutine of the actor's that ends within answerLimit.
func (c *Console) takeSample(ctx context.Context, self *actor.PID, gen uint64) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	m := sampled{gen: gen}
	if rows, err := lanes(ctx, c.ops); err == nil {
		m.sample = c.sampleNow(rows)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the actor has stopped
	}
	c.ops.System().Root.Send(self, m)
}
