package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// kind of client.
type kind int

const (
	writer kind = iota
	reader
	kinds
)

func (k kind) String() string { return [...]string{"writes", "reads"}[k] }

// tally is what the clients have seen: since the last line that was printed, and since the last failover began.
type tally struct {
	mu     sync.Mutex // guards the fields
	second [kinds]seen
	event  [kinds]seen
	last   map[string]time.Time // the last success of each client
}

// seen is what the clients of one kind have seen.
type seen struct {
	took    []time.Duration
	servers map[int]int // port: transactions
	errors  map[string]int
	pause   time.Duration // longest time that a client was without a success
}

func newTally() *tally {
	t := &tally{last: map[string]time.Time{}}
	t.forget()
	for k := range kinds {
		t.second[k] = newSeen()
	}
	return t
}

func newSeen() seen { return seen{servers: map[int]int{}, errors: map[string]int{}} }

// forget begins to count anew for a failover.
func (t *tally) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range kinds {
		t.event[k] = newSeen()
	}
}

func (t *tally) done(k kind, client string, port int, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	pause := time.Duration(0)
	if last, ok := t.last[client]; ok {
		pause = now.Sub(last)
	}
	t.last[client] = now
	for _, s := range []*seen{&t.second[k], &t.event[k]} {
		s.servers[port]++
		s.pause = max(s.pause, pause)
	}
	t.second[k].took = append(t.second[k].took, now.Sub(began))
}

func (t *tally) failed(k kind, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.second[k].errors[text]++
	t.event[k].errors[text]++
}

// line is the last second in a line.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts, errors []string
	for k := range kinds {
		s := &t.second[k]
		slices.Sort(s.took)
		p99 := time.Duration(0)
		if len(s.took) > 0 {
			p99 = s.took[len(s.took)*99/100]
		}
		parts = append(parts, fmt.Sprintf("%4d %s/s on %s, p99 %s", len(s.took), k, s.where(), p99.Round(100*time.Microsecond)))
		if len(s.errors) > 0 {
			errors = append(errors, s.failures(k))
		}
		*s = newSeen()
	}
	line := time.Now().Format("15:04:05") + "  " + strings.Join(parts, "; ")
	if len(errors) > 0 {
		line += "; " + strings.Join(errors, ", ")
	}
	return line
}

func (s *seen) where() string {
	var list []string
	for _, port := range slices.Sorted(maps.Keys(s.servers)) {
		list = append(list, fmt.Sprint(port))
	}
	if len(list) == 0 {
		return "nobody"
	}
	return strings.Join(list, " and ")
}

func (s *seen) failures(k kind) string {
	var list []string
	for _, text := range slices.Sorted(maps.Keys(s.errors)) {
		list = append(list, fmt.Sprintf("%d with %s", s.errors[text], text))
	}
	if len(list) == 0 {
		return "no " + k.String() + " failed"
	}
	return k.String() + " failed: " + strings.Join(list, ", ")
}

// since says what the clients of a kind have noticed since forget.
func (t *tally) since(k kind) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.event[k]
	return fmt.Sprintf("longest pause %s; %s", s.pause.Round(time.Millisecond), s.failures(k))
}

// servedBy reports whether a transaction of the kind was done at a server since forget.
func (t *tally) servedBy(k kind, port int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.event[k].servers[port] > 0
}
