package cancelrace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// counted is what Fencepost itself counts.
type counted struct {
	outcomes map[string]int64 // cancels by outcome
	running  int64            // on their way to a server now
	leases   int64
	leased   time.Duration // all leases together
}

// sent is how many cancels may have left for the server.
func (c *counted) sent() int64 {
	return c.outcomes["delivered"] + c.outcomes["timed_out"] + c.outcomes["uncertain"]
}

var outcomeLabel = regexp.MustCompile(`outcome="(\w+)"`)

// metrics reads what there is about cancels.
func (p *product) metrics(ctx context.Context) (*counted, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("/metrics: " + resp.Status)
	}
	m := &counted{outcomes: map[string]int64{}}
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		name, rest, ok := strings.Cut(s.Text(), "{")
		labels, text, more := strings.Cut(rest, "} ")
		if !ok || !more {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", s.Text(), err)
		}
		switch name {
		case "fencepost_pool_cancels_total":
			if l := outcomeLabel.FindStringSubmatch(labels); l != nil {
				m.outcomes[l[1]] += int64(value)
			}
		case "fencepost_pool_cancels":
			m.running += int64(value)
		case "fencepost_pool_cancel_lease_seconds_count":
			m.leases += int64(value)
		case "fencepost_pool_cancel_lease_seconds_sum":
			m.leased += time.Duration(value * float64(time.Second))
		}
	}
	if len(m.outcomes) == 0 && s.Err() == nil {
		return nil, errors.New("/metrics has no cancels by outcome")
	}
	return m, s.Err()
}

// settled reads them when no cancel is on its way any more.
func (p *product) settled(ctx context.Context) (*counted, error) {
	for end := time.Now().Add(stopLimit); ; {
		m, err := p.metrics(ctx)
		if err != nil || m.running == 0 {
			return m, err
		}
		if time.Now().After(end) {
			return m, fmt.Errorf("%d cancels are still on their way %v after the last client has left", m.running, stopLimit)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
