package world

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Observer polls every server some dozens of times a second, without a relay between, writes a row of its own on every
// server that takes writes, and reads the servers' logs. What it has seen may be asked for from any goroutine, also after
// the world was closed.
type Observer struct {
	names []string // of the servers, in order
	log   zerolog.Logger

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	samples map[string][]Sample
	writes  []Write // by Acked
	lines   []Logged
}

// State is what the observer saw of a server.
type State struct {
	Answers    bool   // the server answered; if not, only Reason is set
	Reason     string // why not: "refused", "silent" (nothing came back), a SQLSTATE, or another error
	InRecovery bool
	ReadOnly   bool   // default_transaction_read_only, as the server's own settings have it
	Timeline   uint32 // out of recovery: by the name of the current WAL file; in recovery: received, 0 without a WAL receiver
}

// Writable reports whether the server would take a write.
func (s State) Writable() bool { return s.Answers && !s.InRecovery && !s.ReadOnly }

// Sample is a time during which every poll of a server saw the same. Between two samples of a server is the time in which
// it changed.
type Sample struct {
	State
	Server string
	From   time.Time // the first of the polls was answered
	Until  time.Time // the last of the polls was asked; before From if there was only one
	Polls  int
}

// Write is one row of the observer's, written and acknowledged (with synchronous replication: by a standby too).
type Write struct {
	Server   string
	Timeline uint32
	Asked    time.Time
	Acked    time.Time
	CutOff   bool // no client could have written there: the network around the server was down (KindPartition)
}

// Interval is a time from From to To.
type Interval struct{ From, To time.Time }

// Length of the interval.
func (i Interval) Length() time.Duration { return i.To.Sub(i.From) }

// Logged is one line of a server's log.
type Logged struct {
	Server   string
	At       time.Time // by the server's clock, which is ours; to the millisecond
	PID      int
	SQLSTATE string // "00000" where there is no error
	App      string // application_name of the session; "" for the server's own processes
	Severity string // LOG, ERROR, FATAL, …
	Text     string
}

// observe starts an observer. Its end method ends it.
func observe(servers []*Server, log zerolog.Logger) *Observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{log: log, cancel: cancel, samples: map[string][]Sample{}}
	for _, s := range servers {
		o.names = append(o.names, s.Name)
		// All of these end with ctx.
		o.running.Go(func() { (&poller{observer: o, server: s}).run(ctx) })
		o.running.Go(func() { (&writer{observer: o, server: s}).run(ctx) })
		o.running.Go(func() { (&reader{observer: o, server: s.Name, path: s.node.LogFile()}).run(ctx) })
	}
	return o
}

func (o *Observer) end() {
	o.cancel()
	o.running.Wait()
}

// note keeps what a poll saw.
func (o *Observer) note(server string, s State, asked, answered time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.samples[server]
	if n := len(all); n > 0 && all[n-1].State == s {
		all[n-1].Until = asked
		all[n-1].Polls++
		return
	}
	o.samples[server] = append(all, Sample{State: s, Server: server, From: answered, Until: asked, Polls: 1})
}

// last is what was seen of a server last.
func (o *Observer) last(server string) State {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.samples[server]
	if len(all) == 0 {
		return State{}
	}
	return all[len(all)-1].State
}

func (o *Observer) noteWrite(w Write) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes = append(o.writes, w)
}

// Samples returns what was seen of all servers that reaches into the time from from to to, ordered by From. A zero to means
// until now.
func (o *Observer) Samples(from, to time.Time) []Sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Sample
	for _, name := range o.names {
		for _, s := range o.samples[name] {
			if !s.Until.Before(from) && (to.IsZero() || !s.From.After(to)) {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Sample) int { return a.From.Compare(b.From) })
	return all
}

// At returns the last sample that began before t, of every server that was seen by then, in the order of World.Servers.
func (o *Observer) At(t time.Time) []Sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Sample
	for _, name := range o.names {
		list := o.samples[name]
		n, _ := slices.BinarySearchFunc(list, t, func(s Sample, t time.Time) int { return s.From.Compare(t) })
		if n > 0 {
			all = append(all, list[n-1])
		}
	}
	return all
}

// WritersAt returns those of At(t) that take writes, the one on the highest timeline first. There are two after a freeze, a
// partition and beside a promoted copy.
func (o *Observer) WritersAt(t time.Time) []Sample {
	all := slices.DeleteFunc(o.At(t), func(s Sample) bool { return !s.Writable() })
	slices.SortStableFunc(all, func(a, b Sample) int { return cmp.Compare(b.Timeline, a.Timeline) })
	return all
}

// WriterAt is the name of the first of WritersAt, "" if there is none.
func (o *Observer) WriterAt(t time.Time) string {
	if all := o.WritersAt(t); len(all) > 0 {
		return all[0].Server
	}
	return ""
}

// HighestTimeline is the highest one on which a server was seen out of recovery, read-only or not, from from to to.
func (o *Observer) HighestTimeline(from, to time.Time) uint32 {
	var highest uint32
	for _, s := range o.Samples(from, to) {
		if s.Answers && !s.InRecovery {
			highest = max(highest, s.Timeline)
		}
	}
	return highest
}

// rateLeast is the shortest sample that Rate believes: a few polls at odd times are no rate.
const rateLeast = 200 * time.Millisecond

// Rate is how many polls a second were answered, per server, over the times in which it answered the same for a while
// between from and to.
func (o *Observer) Rate(from, to time.Time) map[string]float64 {
	polls, lengths := map[string]float64{}, map[string]float64{}
	for _, s := range o.Samples(from, to) {
		length := s.Until.Sub(s.From).Seconds()
		if !s.Answers || length < rateLeast.Seconds() {
			continue
		}
		begin, end := s.From, s.Until
		if begin.Before(from) {
			begin = from
		}
		if !to.IsZero() && end.After(to) {
			end = to
		}
		part := end.Sub(begin).Seconds()
		polls[s.Server] += float64(s.Polls-1) * part / length
		lengths[s.Server] += part
	}
	rate := map[string]float64{}
	for _, name := range o.names {
		if lengths[name] > 0 {
			rate[name] = polls[name] / lengths[name]
		}
	}
	return rate
}
