package lane

import (
	"time"

	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane/pool"
	"fencepost/metrics"
)

// Stats are a lane's counters since start. They belong to the lane's loop: the lane and the frontends on it add to them,
// everybody else gets copies by Describe.
type Stats struct {
	Assignments, Transactions, Queries uint64
	Received, Sent                     uint64 // bytes from and to clients
	TransactionTime, QueryTime         time.Duration
	WaitTime                           time.Duration
	Logins                             uint64
	Parses, Binds                      uint64
	UnownedStatements                  uint64 // messages about statements that their client did not have
	Refused                            uint64 // checkouts refused at their deadline
	Dials, DialFailures, Losses        uint64

	Cancels      [cancellease.Outcomes]uint64 // by cancellease.Outcome
	QueueCancels uint64                       // cancels of clients that were waiting for a backend
	IdleCancels  uint64                       // cancels of clients that ran nothing

	Fences [FenceVerdicts]uint64 // by FenceVerdict

	Wait, Query, Transaction, CancelLease metrics.Histogram
	// FenceTime is from the question to the answer; PrimaryWait how long writes waited that found no primary.
	FenceTime, PrimaryWait metrics.Histogram
}

// FenceVerdict is how a fence ended.
type FenceVerdict uint8

// The verdicts.
const (
	FenceOK     FenceVerdict = iota // the server can take writes
	FenceNo                         // it said that it cannot
	FenceFailed                     // it answered with an error, or the connection was lost
	FenceSlow                       // nothing came before the checkout's deadline
	FenceVerdicts
)

var fenceVerdictNames = [...]string{"ok", "no", "failed", "slow"}

func (v FenceVerdict) String() string { return fenceVerdictNames[v] }

// LaneRow describes a lane for the console; a copy.
type LaneRow struct {
	Loop       int
	Pool       PoolKey
	Spec       *PoolSpec
	Clients    int
	Waiting    int
	OldestWait time.Duration
	Counts     [pool.Closing + 1]int
	Cancelling int
	Paused     bool
	Failing    bool
	Stats      Stats
	Backends   []BackendRow
}

// BackendRow describes a backend for the console; a copy.
type BackendRow struct {
	ID              uint64
	State           pool.State
	Host            string
	Remote, Local   string
	RemotePort      uint16
	LocalPort       uint16
	PID             uint32
	Opened, Since   time.Time
	Retiring        bool
	Cancelling      bool
	ApplicationName string
}

// unfinished is how many backends keep a Pause or Reconnect from being complete.
func (l *Lane) unfinished(wait Verb) int {
	n := 0
	for _, hp := range l.hostPools {
		hp.machine.Slots(func(s *pool.Slot) {
			if wait == Pause || s.Retiring() || s.State() == pool.Closing {
				n++
			}
		})
	}
	return n
}

func (l *Lane) describe(now time.Time) LaneRow {
	r := LaneRow{Loop: l.loop.Index(), Pool: l.key, Spec: l.spec, Clients: l.clients, Paused: l.paused, Failing: l.failing(), Stats: *l.stats}
	l.all(func(hp *hostPool) {
		r.Waiting += hp.machine.Waiting()
		if t := hp.machine.OldestWait(); !t.IsZero() {
			r.OldestWait = max(r.OldestWait, now.Sub(t))
		}
		for s := range r.Counts {
			r.Counts[s] += hp.machine.Count(pool.State(s))
		}
		hp.entries(func(e *entry) {
			if e.b != nil {
				r.Backends = append(r.Backends, e.row())
				r.Cancelling += e.b.Cancelling()
			}
		})
	})
	return r
}

// failing reports whether no server connection is open and the last attempt failed, or nobody is known to attempt.
func (l *Lane) failing() bool {
	for _, hp := range l.hostPools {
		if hp.machine.Failing() {
			return true
		}
	}
	return l.unplaced.machine.Waiting() > 0
}

func (e *entry) row() BackendRow {
	s := e.slot
	row := BackendRow{ID: e.b.ID, State: s.State(), Host: e.b.Host(), Opened: e.b.OpenedAt(), Since: s.Since(), Retiring: s.Retiring(), Cancelling: e.b.Cancelling() > 0}
	remote, local := e.b.Addrs()
	row.Remote, row.RemotePort = addrText(remote)
	row.Local, row.LocalPort = addrText(local)
	if lg := e.b.Login(); lg != nil {
		row.PID = lg.PID
		row.ApplicationName = e.hp.lane.deps.Backend.Names.Value(e.b.Params, "application_name")
	}
	return row
}
