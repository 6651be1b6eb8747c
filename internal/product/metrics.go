package product

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

// Metrics is one scrape: values by name and labels, as they are written.
type Metrics map[string]float64

// Get reads a page of the HTTP server on a connection of its own, which is closed then.
func (f *Fencepost) Get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.HTTP+path, nil)
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
		err = fmt.Errorf("%s of %s: %s", path, f.Name, resp.Status)
	}
	return string(b), err
}

// Metrics reads /metrics.
func (f *Fencepost) Metrics(ctx context.Context) (Metrics, error) {
	text, err := f.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return ParseMetrics(text)
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(text string) (Metrics, error) {
	m := Metrics{}
	s := bufio.NewScanner(strings.NewReader(text))
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

// Sum adds up a metric over its labels; with pairs like database="tx" only those that have them all.
func (m Metrics) Sum(name string, pairs ...string) float64 {
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

// By adds up a metric by the values of one of its labels; with pairs as Sum.
func (m Metrics) By(name, label string, pairs ...string) map[string]float64 {
	by := map[string]float64{}
	for k := range m {
		if _, rest, ok := strings.Cut(k, label+`="`); ok && strings.HasPrefix(k, name+"{") {
			value, _, _ := strings.Cut(rest, `"`)
			by[value] = m.Sum(name, append(pairs, label+`="`+value+`"`)...)
		}
	}
	return by
}

// Has reports whether there is such a metric.
func (m Metrics) Has(name string) bool {
	for k := range m {
		if base, _, _ := strings.Cut(k, "{"); base == name {
			return true
		}
	}
	return false
}

// Descriptors is how many files a process has open.
func Descriptors(pid int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all), err
}
