package monitor

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// cancelLimit bounds the attempt to cancel a query that was not answered.
const cancelLimit = time.Second

// worker is the goroutine that owns a monitor's connection and does all that blocks. It is started by the monitor's actor
// and ends with life. It has one job at a time, and answers each with one report.
type worker struct {
	cfg    *Config
	life   context.Context
	end    context.CancelFunc
	jobs   chan job // holds one, so that the actor never waits
	report func(any)
	link   *link
}

// job is an order to the worker.
type job struct {
	// hold: watch the connection until hold is over, then probe. nil: connect.
	hold context.Context
}

func startWorker(cfg *Config, report func(any)) *worker {
	w := &worker{cfg: cfg, jobs: make(chan job, 1), report: report}
	w.life, w.end = context.WithCancel(context.Background())
	go w.run()
	return w
}

// run ends with life, whose end also closes the connection under it.
func (w *worker) run() {
	defer w.close()
	for {
		select {
		case <-w.life.Done():
			return
		case j := <-w.jobs:
			if r := w.do(j); w.life.Err() == nil {
				w.report(r)
				if d, lost := r.(dropped); lost {
					w.giveUp(d.cause)
				}
			}
		}
	}
}

// do does a job. A panic on this goroutine would end the process; what made it is the connection's, which is given up.
func (w *worker) do(j job) (r any) {
	defer func() {
		if p := recover(); p != nil {
			w.cfg.Log.Error().Str("host", string(w.cfg.Host)).Interface("reason", p).Bytes("stack", debug.Stack()).Msg("monitor's worker failed")
			f := &failure{kind: Local, expected: true, err: fmt.Errorf("worker failed: %v", p)}
			if r = (dropped{w, f}); j.hold == nil {
				r = dialed{w, f}
			}
		}
	}()
	if j.hold == nil {
		w.close()
		l, f := connect(w.life, w.cfg)
		w.link = l
		return dialed{w, f}
	}
	if f := w.link.watch(j.hold); f != nil {
		return dropped{w, f}
	}
	id, senseless, lost := w.link.ask()
	if lost != nil {
		return dropped{w, lost}
	}
	return probed{w, id, senseless}
}

// giveUp closes a connection that was lost. A query that was not answered may still hang in the server: it is cancelled
// beside whatever comes next, on a goroutine that ends with cancelLimit or life.
func (w *worker) giveUp(cause *failure) {
	if l := w.link; l != nil && cause.kind == Silent {
		go l.cancel(w.life, w.cfg, cancelLimit)
	}
	w.close()
}

func (w *worker) close() {
	if w.link != nil {
		w.link.close()
		w.link = nil
	}
}
