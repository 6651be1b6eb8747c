package supervisor

import (
	"bytes"
	"runtime"
	"time"

	"fencepost/eventloop"
	"fencepost/standstill"
)

const (
	// slowStart is how long a start may take before a line in the log says so.
	slowStart = 5 * time.Second
	// loopLimit is how long an event loop may go without a sign of life before a line in the log says so.
	loopLimit = 2 * time.Second
	// standstillPause is the time between two lines about standstills.
	standstillPause = time.Minute
)

// warnOfSlowStart logs a line unless the timer it returns is stopped in time.
func (s *Fencepost) warnOfSlowStart() *time.Timer {
	return time.AfterFunc(slowStart, func() { s.log.Warn().Dur("after", slowStart).Msg("the start is slow: clients are not served yet") })
}

// watching is what the watch over the process does: log lines about standstills and about event loops.
func (s *Fencepost) watching() standstill.Options {
	var said time.Time
	more := 0 // since then
	stuck := make([]bool, len(s.group.Loops()))
	return standstill.Options{
		Noticed: func(g standstill.Gap) {
			if more++; time.Since(said) < standstillPause {
				return
			}
			s.log.Warn().Dur("length", g.Length).Dur("machine_asleep", g.Asleep).Int("since_last_line", more).Msg("the process stood still")
			said, more = time.Now(), 0
		},
		Beat: func(now time.Time) {
			for i, l := range s.group.Loops() {
				s.watchLoop(l, now, &stuck[i])
			}
		},
	}
}

// watchLoop logs when a loop gives no sign of life, with where it is, and when it does again.
func (s *Fencepost) watchLoop(l eventloop.Loop, now time.Time, stuck *bool) {
	age := now.Sub(l.Stats().Heartbeat)
	switch {
	case age > loopLimit && !*stuck:
		*stuck = true
		s.log.Error().Int("loop", l.Index()).Dur("age", age).Bytes("stacks", loopStacks()).Msg("an event loop stands still")
	case age <= loopLimit && *stuck:
		*stuck = false
		s.log.Info().Int("loop", l.Index()).Msg("the event loop goes on")
	}
}

// loopStacks is where the event loops are.
func loopStacks() []byte {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var loops [][]byte
	for _, g := range bytes.Split(all, []byte("\n\n")) {
		if bytes.Contains(g, []byte("eventloop.(*loop).run(")) {
			loops = append(loops, g)
		}
	}
	return bytes.Join(loops, []byte("\n\n"))
}
