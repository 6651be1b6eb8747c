package world

import "time"

// Observer polls every server some dozens of times a second, without a relay between, writes a row of its own on every
// server that takes writes, and reads the servers' logs. What it has seen may be asked for from any goroutine, also after
// the world was closed.
type Observer struct{}

// State is what the observer saw of a server.
type State struct {
	Answers    bool   // the server answered; if not, only Reason is set
	Reason     string // why not: "refused", "silent" (connected, no answer), or the error
	InRecovery bool
	ReadOnly   bool   // default_transaction_read_only, as the server's own settings have it
	Timeline   uint32 // out of recovery: by the name of the current WAL file; in recovery: received, 0 without a WAL receiver
	SystemID   uint64
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

// Sure reports whether t lies between two polls that saw this.
func (s Sample) Sure(t time.Time) bool { return !t.Before(s.From) && !t.After(s.Until) }

// Write is one row of the observer's, written and acknowledged (with synchronous replication: by a standby too).
type Write struct {
	Server   string
	Timeline uint32
	Asked    time.Time
	Acked    time.Time
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

// Samples returns what was seen of all servers that reaches into the time from from to to, ordered by From. A zero to means
// until now.
func (o *Observer) Samples(from, to time.Time) []Sample { return nil }

// At returns the last sample that began before t, of every server that was seen by then, in the order of World.Servers.
func (o *Observer) At(t time.Time) []Sample { return nil }

// WritersAt returns those of At(t) that take writes, the one on the highest timeline first. There are two after a freeze, a
// partition and beside a promoted copy.
func (o *Observer) WritersAt(t time.Time) []Sample { return nil }

// WriterAt is the name of the first of WritersAt, "" if there is none.
func (o *Observer) WriterAt(t time.Time) string { return "" }

// FirstWrite returns the observer's first acknowledged write on a server (any for "") that was asked for after t. False if
// there is none so far.
func (o *Observer) FirstWrite(server string, after time.Time) (Write, bool) { return Write{}, false }

// NoWriterIntervals returns the times between from and to in which the observer got no write acknowledged by any server,
// from the last one that was to the next, as far as they are longer than the observer's usual pause between two writes
// (see NoWriterMin).
func (o *Observer) NoWriterIntervals(from, to time.Time) []Interval { return nil }

// NoWriterMin is the shortest time without an acknowledged write that counts as one without a writer.
const NoWriterMin = 150 * time.Millisecond

// HighestTimeline is the highest one on which a server was seen out of recovery, read-only or not, from from to to.
func (o *Observer) HighestTimeline(from, to time.Time) uint32 { return 0 }

// Rate is how many polls a second were answered, per server, over the times in which it answered between from and to.
func (o *Observer) Rate(from, to time.Time) map[string]float64 { return nil }

// Log returns the lines of all servers' logs from from to to that tell of a server's life (LOG, FATAL, PANIC of its own
// processes) or carry one of the SQLSTATEs that a failover brings: 25006, 57P01, 57P02, 57P03.
func (o *Observer) Log(from, to time.Time) []Logged { return nil }
