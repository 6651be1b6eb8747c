package cluster

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// journal logs what goes wrong, each problem at once and then at most once a minute with its count, and remembers it for
// SHOW FLEET. It is memberlist's log, too. It may be used on any goroutine.
type journal struct {
	log zerolog.Logger
	now func() time.Time

	mu       sync.Mutex // guards what follows; nothing but the log is called while it is held
	problems map[string]*problem
}

type problem struct {
	ProblemRow
	logged   time.Time
	unlogged uint64
}

// ProblemRow is one problem of the fleet: what it is, where it came from last, how often and when.
type ProblemRow struct {
	What        string
	Detail      string // of the last time
	Count       uint64
	First, Last time.Time
}

// Limits of a journal.
const (
	maxProblems = 128
	maxDetail   = 300
	logEvery    = time.Minute
)

func newJournal(log zerolog.Logger) *journal {
	return &journal{log: log, now: time.Now, problems: make(map[string]*problem)}
}

// note notes a problem. what is always the same text for the same problem.
func (j *journal) note(level zerolog.Level, what, detail string) {
	detail = detail[:min(len(detail), maxDetail)]
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	p := j.problems[what]
	if p == nil {
		j.makeRoom()
		p = &problem{ProblemRow: ProblemRow{What: what, First: now}}
		j.problems[what] = p
	}
	p.Count++
	p.Last, p.Detail = now, detail
	if !p.logged.IsZero() && now.Sub(p.logged) < logEvery {
		p.unlogged++
		return
	}
	e := j.log.WithLevel(level).Str("problem", what).Str("detail", detail)
	if p.unlogged > 0 {
		e = e.Uint64("not_logged", p.unlogged)
	}
	e.Msg("fleet: problem")
	p.logged, p.unlogged = now, 0
}

// makeRoom drops the problem that was last seen longest ago.
func (j *journal) makeRoom() {
	if len(j.problems) < maxProblems {
		return
	}
	var oldest string
	for what, p := range j.problems {
		if oldest == "" || p.Last.Before(j.problems[oldest].Last) {
			oldest = what
		}
	}
	delete(j.problems, oldest)
}

// rows are all problems, the latest first.
func (j *journal) rows() []ProblemRow {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows := make([]ProblemRow, 0, len(j.problems))
	for _, p := range j.problems {
		rows = append(rows, p.ProblemRow)
	}
	slices.SortFunc(rows, func(a, b ProblemRow) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.What, b.What)) })
	return rows
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.problems)
}

var (
	lineLevel = regexp.MustCompile(`^\[([A-Z]+)\] (?:memberlist: )?`)
	// variable is what differs between two lines about one problem: quoted names, addresses, numbers.
	variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\bfrom=\S+|\[?[0-9a-fA-F:.]*[.:][0-9a-fA-F:.]*[0-9]\]?(:[0-9]+)?|\S*@[0-9a-f]{16}|[0-9]+`)
)

// Write takes a line of memberlist's log. Its errors are the network's, and others' mistakes: worth a warning.
func (j *journal) Write(b []byte) (int, error) {
	line := string(bytes.TrimSpace(b[:min(len(b), 4*maxDetail)]))
	level := zerolog.WarnLevel
	if m := lineLevel.FindStringSubmatch(line); m != nil {
		line = line[len(m[0]):]
		if m[1] == "DEBUG" || m[1] == "INFO" {
			level = zerolog.DebugLevel
		}
	}
	if level == zerolog.DebugLevel {
		j.log.Debug().Str("detail", line[:min(len(line), maxDetail)]).Msg("memberlist")
		return len(b), nil
	}
	what := variable.ReplaceAllString(line, "…")
	j.note(level, what[:min(len(what), 120)], line)
	return len(b), nil
}
