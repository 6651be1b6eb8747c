package soak

import (
	"context"
	"fmt"
	"time"

	"fencepost/internal/product"
)

// sample is what the run looked like at one moment.
type sample struct {
	At         float64 `json:"at_seconds"`
	Goroutines int     `json:"goroutines"`
	Actors     int     `json:"actors"`
	FDs        int     `json:"descriptors"`
	RSS        int64   `json:"rss_bytes"`
	Heap       int64   `json:"heap_bytes"`      // live and not yet collected
	HeapInUse  int64   `json:"heap_used_spans"` // pages of the heap in use
	Live       int64   `json:"live_bytes"`      // of the heap after a collection; only at rest
	Clients    int     `json:"clients"`         // as Fencepost counts them
	Open       int     `json:"connections"`     // as the load counts them
	Servers    int     `json:"servers"`         // server connections, as Fencepost counts them
	Queued     int64   `json:"queued_bytes"`
	CPU        float64 `json:"cpu_seconds"`
	Queries    int64   `json:"queries"`
	metrics    product.Metrics
}

// look takes a sample.
func (r *run) look(ctx context.Context) (sample, error) {
	m, err := r.product.Metrics(ctx)
	if err != nil {
		return sample{}, err
	}
	for _, name := range []string{"go_goroutines", "fencepost_actors", "fencepost_clients", "fencepost_pool_servers", "fencepost_pool_queries_total",
		"fencepost_loop_panics_total", "fencepost_loops_answered", "go_memstats_heap_alloc_bytes"} {
		if !m.Has(name) {
			return sample{}, fmt.Errorf("/metrics has no %s", name)
		}
	}
	s := sample{
		At: time.Since(r.began).Seconds(), metrics: m,
		Goroutines: int(m.Sum("go_goroutines")), Actors: int(m.Sum("fencepost_actors")),
		Heap: int64(m.Sum("go_memstats_heap_alloc_bytes")), HeapInUse: int64(m.Sum("go_memstats_heap_inuse_bytes")),
		Clients: int(m.Sum("fencepost_clients")), Open: int(r.meter.Open.Load()), Servers: int(m.Sum("fencepost_pool_servers")),
		Queued: int64(m.Sum("fencepost_loop_queued_bytes")), CPU: m.Sum("process_cpu_seconds_total"),
		Queries: int64(m.Sum("fencepost_pool_queries_total")),
	}
	if s.RSS, err = residentBytes(r.product.Process().PID()); err != nil {
		return sample{}, err
	}
	s.FDs, err = product.Descriptors(r.product.Process().PID())
	return s, err
}
