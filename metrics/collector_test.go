package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// families of every type, as a source gives them.
func families() []Family {
	var h Histogram
	h.Observe(40 * time.Microsecond)
	h.Observe(3 * time.Second)
	h.Observe(200 * time.Second)
	return []Family{
		{Name: "transactions_total", Help: "Transactions that ended.", Type: Counter, Labels: []string{"database", "user"},
			Samples: []Sample{{Labels: []string{"app", "u"}, Value: 7}, {Labels: []string{"b\xffd", `"\`}, Value: 1}}},
		{Name: "clients", Help: "Client sessions.", Type: Gauge, Samples: []Sample{{Value: 3}}},
		{Name: "empty", Help: "Nothing to say.", Type: Gauge},
		{Name: "wait_seconds", Help: "Time clients waited.", Type: Distribution, Labels: []string{"database"},
			Samples: []Sample{{Labels: []string{"app"}, Histogram: &h}}},
	}
}

func fixed(f []Family) Source { return func(context.Context) []Family { return f } }

func TestCollector(t *testing.T) {
	c := NewCollector(fixed(families()), 0, func(err error) { t.Errorf("reported: %v", err) })
	want := `
# HELP fencepost_clients Client sessions.
# TYPE fencepost_clients gauge
fencepost_clients 3
# HELP fencepost_scrape_complete Whether this scrape has everything: 1, or 0 if something did not answer in time.
# TYPE fencepost_scrape_complete gauge
fencepost_scrape_complete 1
# HELP fencepost_scrape_failures_total Scrapes that did not have everything.
# TYPE fencepost_scrape_failures_total counter
fencepost_scrape_failures_total 0
# HELP fencepost_transactions_total Transactions that ended.
# TYPE fencepost_transactions_total counter
fencepost_transactions_total{database="app",user="u"} 7
fencepost_transactions_total{database="b` + "\uFFFD" + `d",user="\"\\"} 1
# HELP fencepost_wait_seconds Time clients waited.
# TYPE fencepost_wait_seconds histogram
fencepost_wait_seconds_bucket{database="app",le="5e-05"} 1
fencepost_wait_seconds_bucket{database="app",le="0.0001"} 1
fencepost_wait_seconds_bucket{database="app",le="0.0002"} 1
fencepost_wait_seconds_bucket{database="app",le="0.0003"} 1
fencepost_wait_seconds_bucket{database="app",le="0.0005"} 1
fencepost_wait_seconds_bucket{database="app",le="0.001"} 1
fencepost_wait_seconds_bucket{database="app",le="0.002"} 1
fencepost_wait_seconds_bucket{database="app",le="0.003"} 1
fencepost_wait_seconds_bucket{database="app",le="0.005"} 1
fencepost_wait_seconds_bucket{database="app",le="0.01"} 1
fencepost_wait_seconds_bucket{database="app",le="0.02"} 1
fencepost_wait_seconds_bucket{database="app",le="0.03"} 1
fencepost_wait_seconds_bucket{database="app",le="0.05"} 1
fencepost_wait_seconds_bucket{database="app",le="0.1"} 1
fencepost_wait_seconds_bucket{database="app",le="0.2"} 1
fencepost_wait_seconds_bucket{database="app",le="0.3"} 1
fencepost_wait_seconds_bucket{database="app",le="0.5"} 1
fencepost_wait_seconds_bucket{database="app",le="1"} 1
fencepost_wait_seconds_bucket{database="app",le="2"} 1
fencepost_wait_seconds_bucket{database="app",le="5"} 2
fencepost_wait_seconds_bucket{database="app",le="10"} 2
fencepost_wait_seconds_bucket{database="app",le="30"} 2
fencepost_wait_seconds_bucket{database="app",le="60"} 2
fencepost_wait_seconds_bucket{database="app",le="120"} 2
fencepost_wait_seconds_bucket{database="app",le="+Inf"} 3
fencepost_wait_seconds_sum{database="app"} 203.00004
fencepost_wait_seconds_count{database="app"} 3
`
	names := []string{"fencepost_clients", "fencepost_empty", "fencepost_scrape_complete", "fencepost_scrape_failures_total",
		"fencepost_transactions_total", "fencepost_wait_seconds"}
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestUnusableFamilies promises: a sample that cannot be used is left out and
// reported, and costs no other.
func TestUnusableFamilies(t *testing.T) {
	for name, bad := range map[string]Family{
		"too few labels":   {Name: "x", Type: Gauge, Labels: []string{"a", "b"}, Samples: []Sample{{Labels: []string{"1"}}}},
		"too many labels":  {Name: "x", Type: Gauge, Samples: []Sample{{Labels: []string{"1"}}}},
		"no type":          {Name: "x", Samples: []Sample{{}}},
		"unknown type":     {Name: "x", Type: Distribution + 1, Samples: []Sample{{}}},
		"no histogram":     {Name: "x", Type: Distribution, Samples: []Sample{{Value: 1}}},
		"label name twice": {Name: "x", Type: Gauge, Labels: []string{"a", "a"}, Samples: []Sample{{Labels: []string{"1", "2"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []error
			c := NewCollector(fixed(append(families(), bad)), 0, func(err error) { reported = append(reported, err) })
			checkScrape(t, c, 0, 1, 3)
			if len(reported) != 1 || !strings.Contains(reported[0].Error(), "fencepost_x") {
				t.Errorf("reported %v", reported)
			}
		})
	}
}

func TestUnusableSampleAmongGood(t *testing.T) {
	f := Family{Name: "clients", Help: "Client sessions.", Type: Gauge, Labels: []string{"database"},
		Samples: []Sample{{}, {Labels: []string{"app"}, Value: 5}}}
	checkScrape(t, NewCollector(fixed([]Family{f}), 0, nil), 0, 1, 5)
}

// checkScrape gathers c once and checks what it says of itself and of clients
// (-1: not there).
func checkScrape(t *testing.T, c *Collector, complete, failures, clients float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	got, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{"fencepost_clients": -1}
	for _, f := range got {
		for _, m := range f.GetMetric() {
			values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"fencepost_scrape_complete": complete, "fencepost_scrape_failures_total": failures, "fencepost_clients": clients,
	} {
		if v, ok := values[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
}

// TestSlowSource promises: a scrape has a time limit, a source that keeps it
// loses nothing, one that ignores it is not asked twice at a time and recovers.
func TestSlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		release := make(chan struct{})
		ignoring := true
		source := func(ctx context.Context) []Family {
			if n := asked.Add(1); n > 1 && ignoring {
				t.Error("asked again before it returned")
			}
			if ignoring {
				<-release
			}
			return families()
		}
		c := NewCollector(source, 4*time.Second, nil)
		start := time.Now()
		checkScrape(t, c, 0, 1, -1)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the scrape took %v", took)
		}
		checkScrape(t, c, 0, 2, -1)
		close(release)
		synctest.Wait()
		ignoring = false
		checkScrape(t, c, 1, 2, 3)
		if asked.Load() != 2 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

func TestPartialAnswerAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := NewCollector(func(ctx context.Context) []Family {
			<-ctx.Done()
			return families()[1:2]
		}, 0, func(err error) { t.Errorf("reported: %v", err) })
		checkScrape(t, c, 1, 0, 3)
		if took := time.Since(start); took != DefaultTimeout {
			t.Errorf("the source had %v", took)
		}
	})
}

func TestScrapesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		c := NewCollector(func(context.Context) []Family {
			if running.Add(1) > 1 {
				t.Error("the source runs twice at the same time")
			}
			time.Sleep(time.Second) // in the bubble
			running.Add(-1)
			return families()
		}, 4*time.Second, nil)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { checkScrape(t, c, 1, 0, 3) })
		}
		wg.Wait()
	})
}

func TestPanickingSource(t *testing.T) {
	var reported error
	c := NewCollector(func(context.Context) []Family { panic("boom") }, 0, func(err error) { reported = err })
	checkScrape(t, c, 0, 1, -1)
	checkScrape(t, c, 0, 2, -1)
	if reported == nil || !strings.Contains(reported.Error(), "boom") {
		t.Errorf("reported %v", reported)
	}
}

func TestRegistry(t *testing.T) {
	r := NewRegistry()
	r.MustRegister(NewCollector(fixed(families()), 0, nil))
	got, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range got {
		there[f.GetName()] = true
		if name := f.GetName(); !strings.HasPrefix(name, Prefix) && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("metric %s has another prefix", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "fencepost_clients"} {
		if !there[name] {
			t.Errorf("no %s", name)
		}
	}
	ours, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ours {
		if strings.HasPrefix(f.GetName(), Prefix) {
			t.Errorf("%s is in the default registry", f.GetName())
		}
	}
}

// invalid is a collector that has nothing but an error.
type invalid struct{}

func (invalid) Describe(chan<- *prometheus.Desc) {}
func (invalid) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("x", "", nil, nil), errors.New("nothing"))
}

// TestHandler promises: what can be served is, even beside what cannot.
func TestHandler(t *testing.T) {
	twice := append(families(), Family{Name: "clients", Help: "Client sessions.", Type: Gauge, Samples: []Sample{{Value: 4}}})
	for name, f := range map[string][]Family{"good": families(), "a family twice": twice} {
		r := NewRegistry()
		r.MustRegister(NewCollector(fixed(f), 0, nil))
		answer := httptest.NewRecorder()
		Handler(r).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if answer.Code != 200 || !strings.Contains(answer.Body.String(), "fencepost_wait_seconds_count") {
			t.Errorf("%s: %d\n%.300s", name, answer.Code, answer.Body)
		}
	}
	nothing := prometheus.NewRegistry()
	nothing.MustRegister(invalid{})
	answer := httptest.NewRecorder()
	Handler(nothing).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 500 {
		t.Errorf("nothing gathered: %d", answer.Code)
	}
}
