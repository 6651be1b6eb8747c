// Package client has the clients of the failover matrix: ordinary ones, with pgx, that write and read in short
// transactions and write down what each was told and where. They know nothing of what is done to the servers.
package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/poll"
	"fencepost/soak/matrix/verdict"
)

// Options say who the clients are. Equal options make clients that want the same things in the same order.
type Options struct {
	Connect *pgx.ConnConfig // where to and as whom; each client has a copy
	Clients int
	Seed    uint64
	Began   time.Time // what the times of the records are counted from

	Think   time.Duration // mean pause between two transactions
	Backoff time.Duration // mean pause after an error
	Limit   time.Duration // of a transaction; then the client gives its connection up
	Dial    time.Duration // of a connect, for each host
}

// Crew is a number of clients at work. Stop ends them.
type Crew struct {
	o    Options
	stop context.CancelFunc // no new transactions
	cut  context.CancelFunc // no transactions at all
	wg   sync.WaitGroup

	acked, failed, waiting, opened atomic.Int64

	mu       sync.Mutex // guards what follows
	attempts []verdict.Attempt
	refusals []verdict.Refusal
}

// Start sets clients to work.
func Start(o Options) *Crew {
	stopped, stop := context.WithCancel(context.Background())
	hard, cut := context.WithCancel(context.Background())
	c := &Crew{o: o, stop: stop, cut: cut}
	for n := range o.Clients {
		w := &worker{c: c, n: n, stopped: stopped, hard: hard, rng: rand.New(rand.NewPCG(o.Seed, uint64(n)+1)), keeps: n%2 == 0}
		c.wg.Go(w.work) // ends by Stop
	}
	return c
}

// Counts are figures for the line of progress: transactions acknowledged and failed so far, and under way for longer
// than is usual.
type Counts struct{ Acked, Failed, Waiting int64 }

// Counts may be called at any time.
func (c *Crew) Counts() Counts {
	return Counts{Acked: c.acked.Load(), Failed: c.failed.Load(), Waiting: c.waiting.Load()}
}

// Stop lets the clients finish what they are at, for as long as grace, then ends it, and returns what they wrote down.
func (c *Crew) Stop(grace time.Duration) *verdict.History {
	c.stop()
	t := time.AfterFunc(grace, c.cut)
	c.wg.Wait()
	t.Stop()
	c.cut()
	return &verdict.History{Clients: c.o.Clients, Attempts: c.attempts, Refusals: c.refusals, Opened: int(c.opened.Load())}
}

func (c *Crew) since() time.Duration { return time.Since(c.o.Began) }

func (c *Crew) note(a verdict.Attempt) {
	if a.Acked {
		c.acked.Add(1)
	} else {
		c.failed.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, a)
}

func (c *Crew) refused(r verdict.Refusal) {
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals = append(c.refusals, r)
}

// worker is one client. Half of them keep a connection for as long as it is one, whatever errors come over it, as a
// program does that trusts its pooler; the others open a new one after each error.
type worker struct {
	c             *Crew
	n             int
	keeps         bool
	stopped, hard context.Context
	rng           *rand.Rand
	conn          *pgx.Conn
	seq           int64
	warned        bool // the server said that it did not wait for a standby
}

func (w *worker) work() {
	defer w.leave()
	w.pause(w.c.o.Think)
	for w.stopped.Err() == nil {
		if w.conn == nil && !w.connect() {
			w.pause(w.c.o.Backoff)
			continue
		}
		if w.attempt(w.draw()) {
			w.pause(w.c.o.Think)
			continue
		}
		if !w.keeps || w.conn.IsClosed() {
			w.leave()
		}
		w.pause(w.c.o.Backoff)
	}
}

// draw is what to do next. Each client's row of draws is the same in every arm; where it stands in it depends on how
// far it gets.
func (w *worker) draw() verdict.Kind {
	switch n := w.rng.IntN(100); {
	case n < 45:
		return verdict.Insert
	case n < 80:
		return verdict.Block
	}
	return verdict.Read
}

// pause waits between half and one and a half of the mean, or until the end.
func (w *worker) pause(mean time.Duration) {
	poll.For(w.stopped, mean/2+time.Duration(w.rng.Int64N(int64(mean)+1))) //nolint:errcheck // work looks at stopped
}

// leaveLimit bounds the goodbye to a server that may be gone.
const leaveLimit = 200 * time.Millisecond

func (w *worker) leave() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.hard), leaveLimit)
	defer cancel()
	w.conn.Close(ctx)
	w.conn = nil
}
