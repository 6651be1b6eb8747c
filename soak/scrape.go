package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
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
	metrics    metricSet
}

// metricSet is one scrape: values by name and labels, as they are written.
type metricSet map[string]float64

// get reads a page of the HTTP server on a connection of its own.
func (p *product) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(b), err
}

// scrape reads /metrics. Its connection is closed before the descriptors are counted.
func (p *product) scrape(ctx context.Context) (metricSet, error) {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(strings.NewReader(text))
}

func parseMetrics(r io.Reader) (metricSet, error) {
	m := metricSet{}
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("not a metric: %q", line)
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		m[line[:i]] = v
	}
	return m, s.Err()
}

// sum adds up a metric over its labels; with pairs like database="tx" only those that have them all.
func (m metricSet) sum(name string, pairs ...string) float64 {
	total := 0.0
next:
	for k, v := range m {
		base, labels, _ := strings.Cut(k, "{")
		if base != name {
			continue
		}
		for _, p := range pairs {
			if !strings.Contains(labels, p) {
				continue next
			}
		}
		total += v
	}
	return total
}

// has reports whether there is such a metric.
func (m metricSet) has(name string) bool {
	for k := range m {
		if base, _, _ := strings.Cut(k, "{"); base == name {
			return true
		}
	}
	return false
}

// look takes a sample.
func (r *run) look(ctx context.Context) (sample, error) {
	m, err := r.product.scrape(ctx)
	if err != nil {
		return sample{}, err
	}
	for _, name := range []string{"go_goroutines", "fencepost_actors", "fencepost_clients", "fencepost_pool_servers", "fencepost_pool_queries_total",
		"fencepost_loop_panics_total", "fencepost_loops_answered", "go_memstats_heap_alloc_bytes"} {
		if !m.has(name) {
			return sample{}, fmt.Errorf("/metrics has no %s", name)
		}
	}
	s := sample{
		At: time.Since(r.began).Seconds(), metrics: m,
		Goroutines: int(m.sum("go_goroutines")), Actors: int(m.sum("fencepost_actors")),
		Heap: int64(m.sum("go_memstats_heap_alloc_bytes")), HeapInUse: int64(m.sum("go_memstats_heap_inuse_bytes")),
		Clients: int(m.sum("fencepost_clients")), Open: int(r.meter.Open.Load()), Servers: int(m.sum("fencepost_pool_servers")),
		Queued: int64(m.sum("fencepost_loop_queued_bytes")), CPU: m.sum("process_cpu_seconds_total"),
		Queries: int64(m.sum("fencepost_pool_queries_total")),
	}
	if s.RSS, err = residentBytes(r.product.pid()); err != nil {
		return sample{}, err
	}
	s.FDs, err = descriptors(r.product.pid())
	return s, err
}

// liveHeap has the process collect its garbage and returns what is left: the heap profile's page does both.
func (p *product) liveHeap(ctx context.Context) (live int64, err error) {
	for range 2 { // what finalizers hold is free after the second
		text, err := p.get(ctx, "/debug/pprof/heap?debug=1&gc=1")
		if err != nil {
			return 0, err
		}
		_, rest, found := strings.Cut(text, "\n# HeapAlloc = ")
		number, _, _ := strings.Cut(rest, "\n")
		if live, err = strconv.ParseInt(number, 10, 64); !found || err != nil {
			return 0, fmt.Errorf("the heap profile does not say HeapAlloc: %w", err)
		}
	}
	return live, nil
}

// residentBytes is a process's resident memory.
func residentBytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}

// descriptors is how many files a process has open.
func descriptors(pid int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all), err
}
