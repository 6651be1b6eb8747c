package monitor

import (
	"time"

	"github.com/rs/zerolog"

	"fencepost/role"
)

const (
	// quietFor is how long what repeats stays out of the log.
	quietFor = time.Minute
	// maxLines bounds the transitions logged in quietFor, for a server that comes and goes.
	maxLines = 20
)

// journal writes a monitor's log: a line per transition, and what repeats at most once a minute with the count.
type journal struct {
	log zerolog.Logger

	since         time.Time // the present minute of transitions
	lines, hidden int

	kind     Kind // as logged last
	verdict  role.Verdict
	timeline uint32
	system   uint64
	failing  repeated
	late     repeated
}

// repeated counts what is logged at most once a minute.
type repeated struct {
	logged time.Time
	count  int
}

// due counts one more, and returns the count if it is time to log it.
func (r *repeated) due(now time.Time) (count int, due bool) {
	r.count++
	if !r.logged.IsZero() && now.Sub(r.logged) < quietFor {
		return 0, false
	}
	count, r.count, r.logged = r.count, 0, now
	return count, true
}

// note logs a message to the shard.
func (j *journal) note(now time.Time, e effect) {
	switch e := e.(type) {
	case *State:
		j.state(now, e)
	case *Observed:
		j.observed(now, e)
	case *Lost:
		level := zerolog.WarnLevel
		if e.Expected {
			level = zerolog.InfoLevel
		}
		if ev := j.transition(now, j.log.WithLevel(level)); ev != nil {
			ev.Stringer("kind", e.Kind).Str("code", e.Code).Bool("expected", e.Expected).Err(e.Err).Msg("monitor lost its connection")
		}
	case *Refused:
		j.failure(now, e.Kind, e.Code, e.Err)
	case *Failed:
		j.failure(now, e.Kind, e.Code, e.Err)
	case *Late:
		if n, due := j.late.due(now); due {
			j.log.Warn().Int("count", n).Time("asked", e.Asked).Msg("probe is late")
		}
	}
}

// state logs a transition. A failure's first line is this one; the ones that follow are counted.
func (j *journal) state(now time.Time, s *State) {
	j.kind = s.Kind
	switch s.Kind {
	case Connecting: // Lost was logged
	case Up:
		j.failing = repeated{}
		if ev := j.transition(now, j.log.Info()); ev != nil {
			ev.Msg("monitor is up")
		}
	default:
		j.failing = repeated{logged: now}
		if ev := j.transition(now, j.log.Warn()); ev != nil {
			ev.Stringer("kind", s.Kind).Str("code", s.Code).Err(s.Err).Msg("monitor cannot see its host")
		}
	}
}

// failure counts one that brings no transition; one that does is logged by state, which comes right behind it.
func (j *journal) failure(now time.Time, k Kind, code string, err error) {
	if k != j.kind {
		return
	}
	if n, due := j.failing.due(now); due {
		j.log.Warn().Int("count", n).Stringer("kind", k).Str("code", code).Err(err).Msg("monitor still cannot see its host")
	}
}

// observed logs what the host is when that has changed.
func (j *journal) observed(now time.Time, o *Observed) {
	if o.Verdict == j.verdict && o.Timeline == j.timeline && o.SystemID == j.system {
		return
	}
	j.verdict, j.timeline, j.system = o.Verdict, o.Timeline, o.SystemID
	if ev := j.transition(now, j.log.Info()); ev != nil {
		ev.Stringer("verdict", o.Verdict).Uint32("timeline", o.Timeline).Uint64("system_identifier", o.SystemID)
		if o.NoTimelines {
			ev.Bool("no_timelines", true)
		}
		ev.Msg("host shows its role")
	}
}

// transition is the event to log, or nil if there have been too many.
func (j *journal) transition(now time.Time, ev *zerolog.Event) *zerolog.Event {
	if j.since.IsZero() || now.Sub(j.since) >= quietFor {
		j.since, j.lines = now, 0
	}
	if j.lines >= maxLines {
		j.hidden++
		return nil
	}
	j.lines++
	if j.hidden > 0 {
		ev.Int("hidden", j.hidden)
		j.hidden = 0
	}
	return ev
}
