package soak

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Options say what a run does. DefaultOptions has what is left zero here.
type Options struct {
	Duration time.Duration // of the load, without start and end
	Clients  int           // that work at the same time
	Seed     uint64        // of every choice; the order in which things happen is not repeatable
	Think    time.Duration // mean pause of a client between two things it does

	PostgreSQL string // major version; "" is pgcluster's default
	Binary     string // of Fencepost; "" builds it
	Race       bool   // build it with the race detector
	Loops      int    // event loops
	LoopKind   string // implementation of the loops; "" is Fencepost's default

	Sabotage time.Duration // mean pause between two acts of sabotage; 0: none
	Restart  time.Duration // PostgreSQL is restarted once in each such time; 0: never
	// Only, if set, has clients do nothing but the activities whose name it matches, and leave in an orderly way.
	Only *regexp.Regexp

	OutDir   string        // where soak.json and, after a failure, the log go; "" for nowhere
	Out      io.Writer     // progress and the final table
	Progress time.Duration // between two lines of progress
}

// DefaultOptions are those of a full run.
func DefaultOptions() Options {
	return Options{
		Duration: 20 * time.Minute, Clients: 60, Seed: 1, Think: 40 * time.Millisecond, Loops: 1,
		Sabotage: 500 * time.Millisecond, Restart: 4 * time.Minute, OutDir: "out", Out: io.Discard, Progress: 5 * time.Second,
	}
}

func (o *Options) check() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(o.Duration >= minDuration, "duration %v: at least %v", o.Duration, minDuration)
	require(o.Clients >= 1 && o.Clients <= 500, "clients %d: from 1 to 500", o.Clients)
	require(o.Loops >= 1 && o.Loops <= 64, "loops %d: from 1 to 64", o.Loops)
	require(o.Think >= 0 && o.Sabotage >= 0 && o.Restart >= 0, "think, sabotage, restart: not negative")
	require(o.Progress > 0, "progress %v: above 0", o.Progress)
	require(o.Binary == "" || !o.Race, "race needs a build of our own")
	return errors.Join(errs...)
}

// minDuration leaves something to compare after the warm-up.
const minDuration = 5 * time.Second
