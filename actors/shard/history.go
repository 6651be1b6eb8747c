package shard

import (
	"time"

	"github.com/rs/zerolog"

	"fencepost/role"
)

// keptTransitions is how many are kept for the console.
const keptTransitions = 100

// history is the transitions and counters that the console shows. It outlives a restart of the actor.
type history struct {
	transitions []Transition // the last ones, oldest first
	counts      Counts
}

func (h *history) add(t Transition) {
	if over := len(h.transitions) + 1 - keptTransitions; over > 0 {
		h.transitions = append(h.transitions[:0], h.transitions[over:]...)
	}
	h.transitions = append(h.transitions, t)
}

// logTransition logs a transition and keeps it for the console.
func (a *decider) logTransition(now time.Time, level zerolog.Level, kind string, host role.Host, reason string) {
	v := a.mem.view
	t := Transition{At: now, Epoch: v.Epoch, Kind: kind, Host: string(host), Elected: string(v.Elected), State: a.health.State(), Reason: reason}
	a.mem.history.add(t)
	a.log.WithLevel(level).Str("host", t.Host).Uint64("epoch", t.Epoch).Str("elected", t.Elected).Stringer("state", t.State).
		Str("reason", t.Reason).Msg("shard: " + kind)
}

// repeated counts what is logged at most once a minute.
type repeated struct {
	logged time.Time
	count  int
}

// due counts one more, and returns the count if it is time to log it.
func (r *repeated) due(now time.Time) (count int, due bool) {
	r.count++
	if !r.logged.IsZero() && now.Sub(r.logged) < time.Minute {
		return 0, false
	}
	count, r.count, r.logged = r.count, 0, now
	return count, true
}

// bug logs an event that no machine expects, at most once a minute.
func (r *repeated) bug(now time.Time, log zerolog.Logger, what string) {
	if count, due := r.due(now); due {
		log.Error().Str("what", what).Int("count", count).Msg("shard: unexpected event; assumed unsafe")
	}
}
