package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// watcher looks at Fencepost and at the server once a second and notes what may not be.
type watcher struct {
	r       *run
	mu      sync.Mutex // guards samples
	samples []sample
	direct  *pgx.Conn
	suspect map[string]time.Time // what would be a violation if it lasted, since when
	open    []int                // the load's open connections at the last looks
	missed  int                  // looks in a row that failed
	unheard int                  // scrapes in a row in which a loop did not answer
	sweeps  int
}

// How long something may last before it is a violation, and the slack in counts that are read one after the other.
const (
	ownerlessFor = 5 * time.Second  // a transaction of a session that is gone; a pooler has two seconds to end it
	workingFor   = 6 * time.Second  // a statement of a session that is gone; the cancel comes after two seconds
	carriedFor   = 30 * time.Second // the same if the session left with Terminate: what it sent is carried out
	overFor      = 6 * time.Second  // more backends than allowed: one that was closed takes a moment to go
	goneWithin   = 8                // looks: a client that left is not counted any more
	countSlack   = 10
	loopBeat     = 5.0 // seconds: the oldest heartbeat of a loop
)

// work looks until ctx ends.
func (w *watcher) work(ctx context.Context) {
	defer func() {
		if w.direct != nil {
			end, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			w.direct.Close(end) //nolint:errcheck // leaving anyway
		}
	}()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.r.product.Process().Done():
			w.r.violate(processTrouble, "%v\n%s", w.r.product.Process().Alive(), lastLines(w.r.log.tail(), 30))
			w.r.giveUp()
			return
		case <-t.C:
		}
		w.look(ctx)
		w.activity(ctx)
		if w.sweeps++; w.sweeps%30 == 0 {
			w.r.owners.sweep()
		}
	}
}

func lastLines(text string, n int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(len(all)-n, 0):], "\n")
}

// look takes a sample and checks what must hold at every moment.
func (w *watcher) look(ctx context.Context) {
	s, err := w.r.look(ctx)
	if err != nil {
		if w.missed++; w.missed == 3 && ctx.Err() == nil {
			w.r.violate(processTrouble, "no metrics three times in a row: %v", err)
		}
		return
	}
	w.missed = 0
	w.mu.Lock()
	w.samples = append(w.samples, s)
	if n := len(w.samples); n > 1 {
		w.samples[n-2].metrics = nil // only the newest is needed whole
	}
	w.mu.Unlock()
	m := s.metrics
	if n := m.Sum("fencepost_loop_panics_total"); n > 0 {
		w.r.violateOnce(processTrouble, "%.0f panics in the loops", n)
	}
	if m.Sum("fencepost_loops_answered") == 0 {
		if w.unheard++; w.unheard == 3 {
			w.r.violate(processTrouble, "a loop did not answer three scrapes in a row")
		}
	} else {
		w.unheard = 0
	}
	if age := m.Sum("fencepost_loop_heartbeat_age_seconds"); age > loopBeat*float64(w.r.opts.Loops) {
		w.r.violate(processTrouble, "the heartbeats of the loops are %.1f s old", age)
	}
	w.counts(s)
}

// counts compares Fencepost's counts with the load's and with the limits.
func (w *watcher) counts(s sample) {
	w.open = append(w.open, s.Open)
	if len(w.open) > goneWithin {
		w.open = w.open[1:]
	}
	// Fencepost counts clients, not the connections of cancels; it may lag behind, in both directions.
	if most := slices.Max(w.open) + countSlack; s.Clients > most {
		w.lasts("clients", overFor, tooMany, "fencepost counts %d clients, the load had at most %d connections in the last %d seconds", s.Clients, most-countSlack, goneWithin)
	} else {
		w.over("clients")
	}
	if most := s.Open + s.Servers + w.r.base.FDs + 3*countSlack; s.FDs > most {
		w.lasts("descriptors", overFor, leak, "%d descriptors with %d connections of clients and %d of servers", s.FDs, s.Open, s.Servers)
	} else {
		w.over("descriptors")
	}
	for i := range w.r.dbs {
		d := &w.r.dbs[i]
		label := fmt.Sprintf("database=%q", d.name)
		for _, u := range users {
			n := int(s.metrics.Sum("fencepost_pool_servers", label, fmt.Sprintf("user=%q", u)))
			if size := d.mostBackends(); n > size {
				w.r.violate(tooMany, "fencepost counts %d server connections of %s/%s, pool_size is %d", n, d.name, u, size)
			}
		}
		if n := int(s.metrics.Sum("fencepost_pool_servers", label)); d.maxConns > 0 && n > d.maxConns {
			w.r.violate(tooMany, "fencepost counts %d server connections of %s, max_db_connections is %d", n, d.name, d.maxConns)
		}
	}
}

// mostBackends is the pool's size, the largest that a reload may set.
func (d *database) mostBackends() int {
	if d.scarce {
		return smallPoolMax
	}
	return d.poolSize
}

// lasts notes a violation when the same has been seen for a time.
func (w *watcher) lasts(key string, limit time.Duration, k kind, format string, args ...any) {
	since, known := w.suspect[key]
	if !known {
		w.suspect[key] = time.Now()
		return
	}
	if time.Since(since) >= limit {
		w.r.violate(k, "for %.0f s: %s", time.Since(since).Seconds(), fmt.Sprintf(format, args...))
		delete(w.suspect, key)
	}
}

func (w *watcher) over(key string) { delete(w.suspect, key) }

// backendNow is a row of pg_stat_activity.
type backendNow struct {
	pid                              int
	db, user, app, state, key, query string
}

// activity looks at what the server's backends do and whose they are.
func (w *watcher) activity(ctx context.Context) {
	all, err := w.backends(ctx)
	if err != nil {
		return // the server is down, or we end
	}
	seen := map[string]bool{}
	count := map[string]int{}
	for _, b := range all {
		count[b.db]++
		count[b.db+"/"+b.user]++
		own := w.r.owners.find(b.app)
		gone := own == nil || own.goneFor() >= 0
		key := fmt.Sprintf("%d %s %s", b.pid, b.state, b.key)
		what := fmt.Sprintf("backend %d of %s/%s is %s for %q, which %s; query: %s", b.pid, b.db, b.user, b.state, b.app, ownerState(own), short(b.query, 200))
		switch {
		case strings.HasPrefix(b.state, "idle in transaction") && (gone || !own.busy.Load()):
			seen[key] = true
			w.lasts(key, ownerlessFor, orphan, "%s", what)
		case b.state == "active" && gone:
			seen[key] = true
			limit := workingFor
			if own != nil && own.said.Load() {
				limit = carriedFor
			}
			w.lasts(key, limit, orphan, "%s", what)
		}
	}
	for i := range w.r.dbs {
		d := &w.r.dbs[i]
		limits := map[string]int{}
		if d.maxConns > 0 {
			limits[d.server] = d.maxConns
		}
		for _, u := range users {
			limits[d.server+"/"+u] = d.mostBackends()
		}
		for what, most := range limits {
			if count[what] > most {
				seen[what] = true
				w.lasts(what, overFor, tooMany, "%d backends of %s, allowed are %d", count[what], what, most)
			}
		}
	}
	for key := range w.suspect {
		if key != "clients" && key != "descriptors" && !seen[key] {
			delete(w.suspect, key)
		}
	}
}

func ownerState(o *owner) string {
	switch {
	case o == nil:
		return "nobody is"
	case o.goneFor() >= 0:
		return fmt.Sprintf("left %.1f s ago (%s)", o.goneFor().Seconds(), *o.how.Load())
	case o.busy.Load():
		return "is at work"
	}
	return "is at rest"
}

func (w *watcher) backends(ctx context.Context) (all []backendNow, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if w.direct == nil || w.direct.IsClosed() {
		if w.direct, err = w.r.node.Connect(ctx, "postgres"); err != nil {
			w.direct = nil
			return nil, err
		}
	}
	rows, err := w.direct.Query(ctx, `SELECT pid, datname, usename, application_name, coalesce(state, ''),
		concat_ws(' ', backend_start, xact_start, query_start), query
		FROM pg_stat_activity WHERE usename = ANY($1)`, users)
	if err != nil {
		return nil, err
	}
	var b backendNow
	_, err = pgx.ForEachRow(rows, []any{&b.pid, &b.db, &b.user, &b.app, &b.state, &b.key, &b.query}, func() error {
		all = append(all, b)
		return nil
	})
	return all, err
}

// last is the newest sample.
func (w *watcher) last() sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.samples) == 0 {
		return sample{}
	}
	return w.samples[len(w.samples)-1]
}

// all are the samples so far.
func (w *watcher) all() []sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.samples)
}
