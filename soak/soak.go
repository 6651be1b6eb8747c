// Package soak puts Fencepost under a mixed load of clients that work, fail, cancel and vanish, while its server
// connections are terminated and its server restarted, and checks every answer.
//
// It uses nothing of Fencepost's but its program: it starts a real PostgreSQL and the real binary with a settings file,
// and talks to both by the public protocol. docs/soak.md says what is done and what is checked.
//
//	soak.go       a run from its start (start.go) to its end
//	worker.go     a client: sessions (acts*.go, partings.go), sessions with pgx (pgx.go, acts_pgx.go), visitors (visitors.go)
//	session.go    a question and its answer; causes.go: which errors may happen
//	saboteur.go   what is done to Fencepost and PostgreSQL
//	watch.go      what is looked at every second; finish.go: at the end; memory.go: the rule for memory
package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/product"
	"fencepost/soak/ledger"
	"fencepost/soak/raw"
)

// ErrViolations says that something was seen that may not be.
var ErrViolations = errors.New("there were violations")

// ErrInterrupted says that the run was ended before its time.
var ErrInterrupted = errors.New("interrupted")

// run is one run.
type run struct {
	*tally
	opts      Options
	out       sync.Mutex // guards opts.Out
	dir       string
	dbs       []database
	addr      string
	node      *pgcluster.Node
	product   *product.Fencepost
	log       *logWatch
	meter     raw.Meter // the load's connections
	aside     raw.Meter // of the first logins
	book      *ledger.Book
	owners    owners
	causes    causes
	listeners listeners
	lastBig   atomic.Int64
	side      sync.WaitGroup  // what sessions leave behind
	hard      context.Context // its end is the end of all waiting
	abandon   context.CancelFunc
	giveUp    func() // ends the load before its time
	base      sample // before the load
	settled   sample // after it
	memories  []memoryResult
	committed int // transactions of unknown outcome that were found
	loadEnd   float64
	once      sync.Map // violations that are noted once
	files     atomic.Int64
	workers   []*worker
	sab       *saboteur
	watch     *watcher
}

// violateOnce notes a violation of which one is enough.
func (r *run) violateOnce(k kind, format string, args ...any) {
	if _, before := r.once.LoadOrStore(format, true); !before {
		r.violate(k, format, args...)
	}
}

// How long the parts of a run may take that are not the load.
const (
	startLimit  = 3 * time.Minute  // with the build
	stopClients = 30 * time.Second // nothing that clients wait for takes longer
	finishLimit = 2 * time.Minute
)

// Run makes a run. It returns the report and, if anything was seen that may not be, ErrViolations; it has stopped all it
// started. When ctx ends the load ends, what can still be checked is checked, and the error is ErrInterrupted.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &run{opts: o, dbs: databases(), book: ledger.NewBook()}
	r.tally = newTally(func(v violation) { r.say("VIOLATION %s: %s", v.Kind, short(v.Text, 3000)) })
	r.log = newLogWatch(r.tally)
	dir, err := os.MkdirTemp("", "fencepost-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r.dir = dir
	stop, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	hard, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	r.hard, r.abandon = hard, abandon
	err = r.warmUp(ctx)
	if err == nil {
		interrupted := r.load(ctx)
		r.finish()
		if interrupted {
			err = ErrInterrupted
		}
	}
	if serr := stop(); serr != nil {
		r.violate(processTrouble, "stop: %v", serr)
	}
	report := r.report()
	if report.Violations > 0 {
		err = errors.Join(err, ErrViolations)
	}
	if werr := r.write(report); werr != nil {
		err = errors.Join(err, werr)
	}
	return report, err
}

// load runs the clients, the saboteur and the watcher for the time of the run; true if it was cut short.
func (r *run) load(ctx context.Context) (interrupted bool) {
	r.began = time.Now()
	soft, cancel := context.WithTimeout(ctx, r.opts.Duration)
	defer cancel()
	r.giveUp = cancel
	r.watch = &watcher{r: r, suspect: map[string]time.Time{}}
	r.sab = &saboteur{r: r, rng: r.source(1 << 32), console: r.product.OpenConsole(), done: map[string]int{}}
	var clients, others sync.WaitGroup
	for i := range r.opts.Clients {
		w := &worker{r: r, rng: r.source(uint64(i + 1)), soft: soft, id: i + 1}
		r.workers = append(r.workers, w)
		clients.Go(w.work)
	}
	if r.opts.Sabotage > 0 {
		others.Go(func() { r.sab.work(soft) })
	}
	if r.opts.Restart > 0 {
		others.Go(func() { r.sab.restarts(soft, r.source(1<<33)) })
	}
	looking, look := context.WithCancel(r.hard)
	var watching sync.WaitGroup
	watching.Go(func() { r.watch.work(looking) })
	watching.Go(func() { r.progress(looking) })
	<-soft.Done()
	r.loadEnd = time.Since(r.began).Seconds()
	r.say("the load ends: %d connections open", r.meter.Open.Load())
	others.Wait() // whatever was paused or stopped runs again
	r.leaveAll(&clients)
	look()
	watching.Wait()
	return ctx.Err() != nil
}

// leaveAll waits until the clients are gone; those that still wait after a while are cut off.
func (r *run) leaveAll(clients *sync.WaitGroup) {
	gone := make(chan struct{})
	go func() { // ends with the last client
		clients.Wait()
		r.side.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(stopClients):
		var late []string
		for _, w := range r.workers {
			if what := w.now.Load(); what != nil {
				late = append(late, *what)
			}
		}
		r.violate(noAnswer, "%v after the end of the load are still at work: %s; %s", stopClients, strings.Join(late, "; "), r.clientsNow())
		r.abandon()
		r.meter.CloseAll()
		<-gone
	}
	r.abandon()
	r.meter.CloseAll()
}

// say prints a line.
func (r *run) say(format string, args ...any) {
	r.out.Lock()
	defer r.out.Unlock()
	fmt.Fprintf(r.opts.Out, format+"\n", args...)
}
