// Package matrix compares how clients fare in failovers: real PostgreSQL clusters, events of every kind, and one arm after
// the other in front of them, with the same clients. docs/soak.md defines what it prints.
//
//	for each kind of event, for each arm:
//	    a world (package world), the arm (package arm)
//	    as often as wanted: clients (package client) at work, the event, time to recover, the verdict (package verdict)
//
// What is done is kept in a file; a run that was interrupted goes on from there.
package matrix

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/world"
)

// Modes of pooling.
const (
	Transaction = "transaction"
	Session     = "session"
)

// Options say what a run does. DefaultOptions has what is left zero here.
type Options struct {
	Events   []string // kinds of events, names of package world
	Arms     []string // names of package arm
	PerEvent int      // how often each event happens to Fencepost and the control
	Others   int      // … and to the other arms; 0: as often
	Short    bool     // the events' short timing

	Clients     int
	Mode        string // transaction or session
	Synchronous bool   // a commit waits for a standby
	PostgreSQL  string // major version; "" is pgcluster's default
	Pool        int    // server connections of a pool in transaction mode; in session mode there are as many as clients
	Warm        int    // Fencepost's failover_warm; negative: none in transaction mode, one for each client in session mode
	Seed        uint64
	Binary      string // of Fencepost; "" builds it

	Think   time.Duration // mean pause of a client between two transactions
	Backoff time.Duration // … after an error
	Limit   time.Duration // of a transaction; then the client gives its connection up
	Before  time.Duration // from the time that all clients are served to the event
	After   time.Duration // from the time that the world is whole again to the end

	OutDir   string        // for what is kept; "": nothing is
	Fresh    bool          // begin anew, whatever is there
	Out      io.Writer     // progress and the tables
	Progress time.Duration // between two lines while an event is under way
}

// Events are the names of all kinds of events.
func Events() []string {
	var names []string
	for _, e := range world.Events(world.DefaultTiming()) {
		names = append(names, e.Name())
	}
	return names
}

// DefaultOptions are those of a long run.
func DefaultOptions() Options {
	return Options{
		Events: Events(), Arms: slices.Clone(arm.Names), PerEvent: 5, Others: 2,
		Clients: 60, Mode: Transaction, Synchronous: true, Pool: 20, Warm: -1, Seed: 1,
		Think: 80 * time.Millisecond, Backoff: 50 * time.Millisecond, Limit: 10 * time.Second,
		Before: 2 * time.Second, After: 5 * time.Second,
		OutDir: "out/matrix", Out: io.Discard, Progress: 5 * time.Second,
	}
}

func (o *Options) check() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(len(o.Events) > 0 && len(o.Arms) > 0, "nothing to do: name events and arms")
	for _, e := range o.Events {
		require(slices.Contains(Events(), e), "no event is called %q: there are %s", e, strings.Join(Events(), ", "))
	}
	for _, a := range o.Arms {
		require(slices.Contains(arm.Names, a), "no arm is called %q: there are %s", a, strings.Join(arm.Names, ", "))
	}
	require(o.PostgreSQL == "" || slices.Contains(pgcluster.Versions(), o.PostgreSQL), "PostgreSQL %q: one of %v", o.PostgreSQL, pgcluster.Versions())
	require(o.Mode == Transaction || o.Mode == Session, "mode %q: %s or %s", o.Mode, Transaction, Session)
	require(o.PerEvent >= 1 && o.Others >= 0, "per event %d, for others %d: at least 1 and 0", o.PerEvent, o.Others)
	require(o.Clients >= 1 && o.Clients <= 200, "clients %d: from 1 to 200", o.Clients)
	require(o.Pool >= 1 && o.Pool <= 200, "pool %d: from 1 to 200", o.Pool)
	require(o.Think > 0 && o.Backoff > 0 && o.Limit > 0 && o.Progress > 0 && o.Before >= 0 && o.After >= 0, "times: above 0")
	return errors.Join(errs...)
}

// repeats is how often an event happens to an arm.
func (o *Options) repeats(name string) int {
	if name == arm.Fencepost || name == arm.Control || o.Others == 0 {
		return o.PerEvent
	}
	return min(o.Others, o.PerEvent)
}

// timing is that of the events.
func (o *Options) timing() world.Timing {
	if o.Short {
		return world.ShortTiming()
	}
	return world.DefaultTiming()
}

// slowLimit is the clients' patience with a slow primary, of which they shall see the end.
const slowLimit = time.Minute

// limit is the time for a transaction.
func (o *Options) limit(event string) time.Duration {
	if event == world.KindSlow {
		return max(o.Limit, slowLimit)
	}
	return o.Limit
}

// pool and warm as the arms get them.
func (o *Options) pool() int {
	if o.Mode == Session {
		return o.Clients
	}
	return o.Pool
}

func (o *Options) warm() int {
	switch {
	case o.Warm >= 0:
		return o.Warm
	case o.Mode == Session:
		return o.Clients
	}
	return 0
}

// settings are what all cells of one file have in common.
type settings struct {
	Clients     int    `json:"clients"`
	Mode        string `json:"mode"`
	Synchronous bool   `json:"synchronous"`
	PostgreSQL  string `json:"postgresql"`
	Pool        int    `json:"pool"`
	Warm        int    `json:"warm"`
	Seed        uint64 `json:"seed"`
	Short       bool   `json:"short_events"`
	Think       string `json:"think"`
	Backoff     string `json:"backoff"`
	Limit       string `json:"limit"`
}

func (o *Options) settings() settings {
	pg := o.PostgreSQL
	if pg == "" {
		pg = pgcluster.DefaultVersion
	}
	return settings{o.Clients, o.Mode, o.Synchronous, pg, o.pool(), o.warm(), o.Seed, o.Short, o.Think.String(), o.Backoff.String(), o.Limit.String()}
}
