package soak

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// kind is a kind of violation: each must be zero at the end.
type kind string

const (
	foreignAnswer  kind = "foreign answer"
	staleAnswer    kind = "stale answer"
	wrongAnswer    kind = "wrong answer"
	wrongSetting   kind = "wrong setting"
	foreignCancel  kind = "foreign cancel"
	lostCancel     kind = "cancel without effect"
	foreignNotice  kind = "foreign notification"
	leakedState    kind = "state of another session"
	unexpected     kind = "unexpected error"
	wordless       kind = "closed without a word"
	noAnswer       kind = "no answer in time"
	notClosed      kind = "connection not closed"
	ledgerBroken   kind = "ledger"
	orphan         kind = "backend without owner"
	tooMany        kind = "too many backends"
	leak           kind = "leak"
	memoryGrowth   kind = "memory"
	gaugeOff       kind = "gauge not at rest"
	countsOff      kind = "counts do not match"
	logged         kind = "log"
	processTrouble kind = "process"
	harness        kind = "the load itself"
)

// keptTexts is how many violations of a kind are kept in full.
const keptTexts = 10

// violation is one, as it goes into the report.
type violation struct {
	Kind kind    `json:"kind"`
	At   float64 `json:"at_seconds"`
	Text string  `json:"text"`
}

// tally is what a run has seen. Safe for concurrent use.
type tally struct {
	mu         sync.Mutex // guards all below
	began      time.Time
	counts     map[kind]int
	violations []violation
	codes      map[string]*seen
	acts       map[string]*act
	acted      int // since the last look
	tell       func(violation)
}

// seen is how often an error that may happen did.
type seen struct {
	Count int    `json:"count"`
	Text  string `json:"first"`
}

// act is what became of an activity.
type act struct {
	Done      int           `json:"done"`
	Disturbed int           `json:"disturbed"` // ended by an error that may happen
	Total     time.Duration `json:"total_ns"`
	Longest   time.Duration `json:"longest_ns"`
}

func newTally(tell func(violation)) *tally {
	return &tally{began: time.Now(), counts: map[kind]int{}, codes: map[string]*seen{}, acts: map[string]*act{}, tell: tell}
}

// violate notes a violation.
func (t *tally) violate(k kind, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[k]++
	if t.counts[k] > keptTexts {
		return
	}
	v := violation{k, time.Since(t.began).Seconds(), fmt.Sprintf(format, args...)}
	t.violations = append(t.violations, v)
	t.tell(v)
}

// count is the number of violations.
func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, k := range t.counts {
		n += k
	}
	return n
}

// foreign is the number of answers, cancels and notifications that were somebody else's.
func (t *tally) foreign() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[foreignAnswer] + t.counts[staleAnswer] + t.counts[foreignCancel] + t.counts[foreignNotice]
}

// error notes an error that may happen.
func (t *tally) error(code, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.codes[code]
	if s == nil {
		s = &seen{Text: text}
		t.codes[code] = s
	}
	s.Count++
}

// errors is how often errors with these codes were seen.
func (t *tally) errors(codes ...string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range codes {
		if s := t.codes[c]; s != nil {
			n += s.Count
		}
	}
	return n
}

// did notes an activity that has ended.
func (t *tally) did(name string, took time.Duration, disturbed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.acts[name]
	if a == nil {
		a = &act{}
		t.acts[name] = a
	}
	if disturbed {
		a.Disturbed++
		return
	}
	t.acted++
	a.Done++
	a.Total += took
	a.Longest = max(a.Longest, took)
}

// recent is how many activities have ended since the last call.
func (t *tally) recent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.acted
	t.acted = 0
	return n
}

// counted lists the errors that may happen, most frequent first.
func (t *tally) counted() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	codes := slices.SortedFunc(maps.Keys(t.codes), func(a, b string) int { return t.codes[b].Count - t.codes[a].Count })
	s := ""
	for _, c := range codes {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%s %d", c, t.codes[c].Count)
	}
	return s
}
