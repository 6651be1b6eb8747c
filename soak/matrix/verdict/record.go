// Package verdict says what a run of the failover matrix has shown: from what the clients wrote down, what the observer
// saw and what the ledger holds in the end. It is pure; docs/soak.md has each figure's definition.
//
// All times are since the beginning of the run.
package verdict

import "time"

// Kind is what an attempt does.
type Kind uint8

// The kinds.
const (
	Insert Kind = iota // one INSERT, committed by itself
	Block              // BEGIN, SELECT, INSERT, COMMIT
	Read               // one SELECT
)

// Writes reports whether an attempt of this kind is a write checkout.
func (k Kind) Writes() bool { return k != Read }

// ReadOnlyError is the SQLSTATE of a write on a server, or in a transaction, that is read-only.
const ReadOnlyError = "25006"

// Server is what the server said of itself in the answer to an attempt's first statement.
type Server struct {
	Port       int   // its own, behind any relay
	Started    int64 // when its postmaster started, in milliseconds since 1970
	InRecovery bool
	ReadOnly   bool   // transaction_read_only
	Timeline   uint32 // 0 in recovery
}

// incarnation tells a server from itself after a restart.
type incarnation struct {
	port    int
	started int64
}

func (s *Server) incarnation() incarnation { return incarnation{s.Port, s.Started} }

// Attempt is one transaction of a client, or its try.
type Attempt struct {
	Client int
	Kind   Kind
	Seq    int64 // of its row in the ledger, 0 for reads

	Start   time.Duration // its first statement was sent
	Bound   *Server       // by the answer to the first statement; nil: there was none
	BoundAt time.Duration // when that came
	End     time.Duration

	CommitSent bool // what could commit it may have reached a server
	Acked      bool
	// SyncCancelled: the server warned that it had not waited for a standby.
	SyncCancelled bool
	Cut           bool   // unfinished at the run's end, and ended by it
	Code          string // SQLSTATE, or a word for what is no server's error; "" if Acked
	Message       string
}

// Refusal is a connection that could not be opened.
type Refusal struct {
	Client     int
	Start, End time.Duration
	Code       string
	Message    string
}

// Sighting is a timeline that somebody saw a server on out of recovery.
type Sighting struct {
	At       time.Duration
	Timeline uint32
}

// History is what happened to the clients of one run.
type History struct {
	Clients   int
	Attempts  []Attempt // in any order
	Refusals  []Refusal
	Opened    int  // connections that were opened
	PerClient bool // each client is a member by itself: nothing stands between them and the servers
	// Seen is what the member says it has seen, beside what its clients were told.
	Seen []Sighting
}

// Truth is what the observer knows of the run.
type Truth struct {
	Began    time.Duration  // of the event
	Old, New string         // the primary before and after
	Ports    map[string]int // of the servers, by name
	// NewFirst is the first write that the observer got acknowledged by New after it had become the primary, or had come
	// back. HasNew is false if nobody was promoted or restarted.
	NewFirst    time.Duration
	HasNew      bool
	NewTimeline uint32

	Sightings []Sighting // every rise of the highest timeline
	NoWriter  time.Duration
	// Forgets are the times at which the operator said that the highest timeline counts no more.
	Forgets []time.Duration
	// Writer takes the writes at the end, by name; "" if nobody does.
	Writer string
	// LogErrors is how often the servers' logs have an error ReadOnlyError of a client's.
	LogErrors int
}

// Row names a row of the ledger.
type Row struct {
	Client int
	Seq    int64
}

// Ledger is how often each row is in the ledger of the writer at the end.
type Ledger map[Row]int
