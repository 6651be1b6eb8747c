package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// logWatch reads Fencepost's log as it is written.
type logWatch struct {
	t       *tally
	secrets []string
	mu      sync.Mutex // guards all below
	counts  map[string]int
	recent  []string // the last lines, oldest first from next on
	next    int
	bad     []string // lines at warn and above, and what is no line of the log
}

// How many lines are kept.
const (
	recentLines = 4000
	badLines    = 2000
)

func newLogWatch(t *tally) *logWatch {
	l := &logWatch{t: t, counts: map[string]int{}}
	for _, u := range append([]string{opsUser}, users...) {
		l.secrets = append(l.secrets, password(u))
	}
	return l
}

// tolerated are lines at level error that the load brings about on purpose.
var tolerated = []string{"reload failed, the old settings stay in force"}

// alarming are words that no line may have.
var alarming = []string{"unhandled message", "panic", "impossible event", "actor failed", "did not stop in time"}

// line takes one line.
func (l *logWatch) line(text string) {
	l.keep(text)
	for _, s := range l.secrets {
		if strings.Contains(text, s) {
			l.t.violate(logged, "a password is in the log: %s", text)
		}
	}
	var entry struct{ Level, Message, Code, Cause string }
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		l.note("no line of the log", text)
		l.t.violate(logged, "not a line of the log: %s", text)
		return
	}
	key := entry.Level + ": " + entry.Message
	if entry.Cause != "" || entry.Message == "server connection lost" {
		key += strings.TrimRight(fmt.Sprintf(" (%s %s", entry.Code, entry.Cause), " ") + ")"
	}
	switch entry.Level {
	case "debug", "info":
		l.count(key)
	default:
		l.note(key, text)
	}
	for _, word := range alarming {
		if strings.Contains(entry.Message, word) {
			l.t.violate(logged, "%s", text)
			return
		}
	}
	if (entry.Level == "error" || entry.Level == "fatal" || entry.Level == "panic") && !slices.Contains(tolerated, entry.Message) {
		l.t.violate(logged, "%s", text)
	}
}

func (l *logWatch) keep(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) < recentLines {
		l.recent = append(l.recent, text)
		return
	}
	l.recent[l.next] = text
	l.next = (l.next + 1) % recentLines
}

func (l *logWatch) count(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[key]++
}

func (l *logWatch) note(key, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[key]++
	if len(l.bad) < badLines {
		l.bad = append(l.bad, text)
	}
}

// tail is the last lines.
func (l *logWatch) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(slices.Clone(l.recent[l.next:]), l.recent[:l.next]...)
	return strings.Join(all, "\n")
}

// about returns the kept lines about the client that connected from addr, as far as they are kept.
func (l *logWatch) about(addr string) string {
	var id string
	var found []string
	for line := range strings.Lines(l.tail()) {
		if strings.Contains(line, fmt.Sprintf("%q:%q", "addr", addr)) {
			var entry struct{ Client json.Number }
			if json.Unmarshal([]byte(line), &entry) == nil {
				id = entry.Client.String()
				found = nil // an earlier client from the same port is another one
			}
		}
		if id != "" && (strings.Contains(line, `"client":`+id+",") || strings.Contains(line, `"client":`+id+"}")) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n    ")
}

// warnings are the kept lines at warn and above.
func (l *logWatch) warnings() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.bad, "\n")
}

// messages is how often each message was logged.
func (l *logWatch) messages() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}
