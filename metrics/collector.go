package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Prefix begins the name of every metric of Fencepost's own.
const Prefix = "fencepost_"

// DefaultTimeout is how long a Collector waits for its source.
const DefaultTimeout = 2 * time.Second

// Type is what a Family's values are. The zero value is no type; such a family
// is left out of the scrape and reported.
type Type uint8

const (
	// Counter only grows; the name ends in _total by convention.
	Counter Type = iota + 1
	// Gauge goes up and down.
	Gauge
	// Distribution is a Histogram of durations; the name ends in _seconds.
	Distribution
)

// Family is one metric with all its label values at the moment of a scrape.
// Within one scrape a name appears once.
type Family struct {
	// Name without Prefix, which the Collector adds.
	Name string
	// Help is one sentence.
	Help string
	Type Type
	// Labels are the label names, in the order of each Sample's values.
	Labels  []string
	Samples []Sample
}

// Sample is one value of a Family.
type Sample struct {
	// Labels are the values of Family.Labels, as many and in the same order.
	// Bytes that are not UTF-8 (a client may send any name) are replaced.
	Labels []string
	// Value of a Counter or Gauge.
	Value float64
	// Histogram of a Distribution: a Snapshot, no longer changed by anyone.
	Histogram *Histogram
}

// Source answers a scrape with copies. It returns when it has everything or
// when ctx ends, then with what it has. It may run on any goroutine but never
// twice at the same time.
type Source func(ctx context.Context) []Family

// Collector asks a Source at each scrape. It also exports what became of that:
// fencepost_scrape_complete (1, or 0 if the source gave no answer in time or
// part of it could not be used), fencepost_scrape_failures_total and
// fencepost_scrape_duration_seconds. Make it with NewCollector.
type Collector struct {
	source   Source
	timeout  time.Duration
	report   func(error)
	failures atomic.Uint64
	// asking has room for one: the source that has not returned yet. Scrapes
	// at the same time wait for each other.
	asking chan struct{}
}

// NewCollector returns a Collector that gives source at most timeout to answer
// (zero: DefaultTimeout). report, if not nil, is told of each thing that went
// wrong in a scrape; it must not block.
func NewCollector(source Source, timeout time.Duration, report func(error)) *Collector {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if report == nil {
		report = func(error) {}
	}
	return &Collector{source: source, timeout: timeout, report: report, asking: make(chan struct{}, 1)}
}

// Describe announces nothing: label names and families are known at the scrape
// only, which Prometheus calls an unchecked collector.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks the source and sends constant metrics to ch. It blocks until
// the source answers, at most for the timeout and a quarter of it.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	start := time.Now()
	families, err := c.ask()
	problems := []error{err}
	for i := range families {
		problems = append(problems, families[i].collect(ch))
	}
	complete := 1.0
	if err := errors.Join(problems...); err != nil {
		complete = 0
		c.failures.Add(1)
		c.report(err)
	}
	for _, f := range c.own(complete, time.Since(start)) {
		_ = f.collect(ch) // constant names, no labels: cannot fail
	}
}

func (c *Collector) own(complete float64, took time.Duration) []Family {
	one := func(v float64) []Sample { return []Sample{{Value: v}} }
	return []Family{
		{Name: "scrape_complete", Type: Gauge, Samples: one(complete),
			Help: "Whether this scrape has everything: 1, or 0 if something did not answer in time."},
		{Name: "scrape_failures_total", Type: Counter, Samples: one(float64(c.failures.Load())),
			Help: "Scrapes that did not have everything."},
		{Name: "scrape_duration_seconds", Type: Gauge, Samples: one(took.Seconds()),
			Help: "Time this scrape took to collect."},
	}
}

// ask runs the source on a goroutine that ends when the source returns. A
// source that ignores its context is not asked again before it has returned.
func (c *Collector) ask() ([]Family, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout+c.timeout/4)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("collect metrics: the source has not yet answered an earlier scrape")
	}
	type answer struct {
		families []Family
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		limited, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		var a answer
		a.families, a.err = c.call(limited)
		<-c.asking
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.families, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("collect metrics: no answer within %v", c.timeout)
	}
}

// call turns a panic of the source into a failed scrape: the data plane does
// not end because of its statistics.
func (c *Collector) call(ctx context.Context) (families []Family, err error) {
	defer func() {
		if r := recover(); r != nil {
			families, err = nil, fmt.Errorf("collect metrics: panic: %v", r)
		}
	}()
	return c.source(ctx), nil
}

// collect sends f's samples; what cannot be sent is named in the error.
func (f *Family) collect(ch chan<- prometheus.Metric) error {
	desc := prometheus.NewDesc(Prefix+f.Name, f.Help, f.Labels, nil)
	var problems []error
	for i := range f.Samples {
		m, err := f.metric(desc, &f.Samples[i])
		if err != nil {
			problems = append(problems, fmt.Errorf("metric %s%s: %w", Prefix, f.Name, err))
			continue
		}
		ch <- m
	}
	return errors.Join(problems...)
}

func (f *Family) metric(desc *prometheus.Desc, s *Sample) (prometheus.Metric, error) {
	labels := make([]string, len(s.Labels))
	for i, l := range s.Labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	switch f.Type {
	case Counter:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, labels...)
	case Gauge:
		return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, labels...)
	case Distribution:
		if s.Histogram == nil {
			return nil, errors.New("distribution without a histogram")
		}
		return prometheus.NewConstHistogram(desc, s.Histogram.Count(), s.Histogram.SumSeconds(), s.Histogram.Buckets(), labels...)
	}
	return nil, fmt.Errorf("unknown type %d", f.Type)
}
