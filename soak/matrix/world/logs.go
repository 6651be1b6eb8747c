package world

import (
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fencepost/internal/poll"
)

// logPrefix is the servers' log_line_prefix, which logLine takes apart. What follows %q only sessions have.
const logPrefix = "%m [%p] %e %q<%u@%d/%a> "

var logLine = regexp.MustCompile(`^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) UTC \[(\d+)\] ([0-9A-Z]{5}) (?:<([^@]*@[^/]*)/(.*?)> )?([A-Z]+\d?):  (.*)$`)

// Errors of sessions that a failover brings: read only transaction, the server ends or cannot be used.
var telling = []string{"25006", "57P01", "57P02", "57P03"}

// maxLines bounds what is kept of the logs.
const maxLines = 200_000

// reader follows the log of one server.
type reader struct {
	observer *Observer
	server   string
	path     string
	offset   int64
	rest     string // an unfinished line
}

func (r *reader) run(ctx context.Context) {
	poll.Each(ctx, logPause, r.read)
	r.read()
}

func (r *reader) read() {
	f, err := os.Open(r.path)
	if err != nil {
		return // the server has not logged anything yet
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, r.offset, 1<<40))
	if err != nil {
		r.observer.log.Warn().Str("server", r.server).Err(err).Msg("server log cannot be read")
		return
	}
	r.offset += int64(len(b))
	lines := strings.Split(r.rest+string(b), "\n")
	r.rest = lines[len(lines)-1]
	for _, text := range lines[:len(lines)-1] {
		if l, ok := parseLine(text); ok {
			l.Server = r.server
			r.observer.noteLine(l)
		}
	}
}

// parseLine takes a line apart. False for one that does not tell of the server's life, and for what continues a line.
func parseLine(text string) (Logged, bool) {
	m := logLine.FindStringSubmatch(text)
	if m == nil {
		return Logged{}, false
	}
	at, err := time.Parse("2006-01-02 15:04:05.000", m[1])
	if err != nil {
		return Logged{}, false
	}
	pid, err := strconv.Atoi(m[2])
	l := Logged{At: at, PID: pid, SQLSTATE: m[3], App: m[5], Severity: m[6], Text: m[7]}
	session := m[4] != ""
	return l, err == nil && (slices.Contains(telling, l.SQLSTATE) || !session && l.Severity != "ERROR" && l.Severity != "WARNING")
}

func (o *Observer) noteLine(l Logged) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) < maxLines {
		o.lines = append(o.lines, l)
	}
}

// Log returns the lines of all servers' logs from from to to that tell of a server's life (what its own processes say) or
// that have one of the SQLSTATEs a failover brings (25006, 57P01, 57P02, 57P03), in the order of time. They are read some
// tenths of a second late. A zero to means until now.
func (o *Observer) Log(from, to time.Time) []Logged {
	o.mu.Lock()
	defer o.mu.Unlock()
	var some []Logged
	for _, l := range o.lines {
		if !l.At.Before(from.Truncate(time.Millisecond)) && (to.IsZero() || !l.At.After(to)) {
			some = append(some, l)
		}
	}
	slices.SortStableFunc(some, func(a, b Logged) int { return a.At.Compare(b.At) })
	return some
}
