package shard

import (
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"fencepost/role"
)

// ErrNoPrimaryToPause says that there is nothing to switch over from.
var ErrNoPrimaryToPause = errors.New("no primary is known")

// pause is one that is under way, or the last one.
type pause struct {
	id    string
	from  role.Host
	began time.Time
	until time.Time
	ended bool
	past  []pastPause // those before it, the last one behind
}

// pastPause is one that has ended.
type pastPause struct {
	id   string
	from role.Host
}

// maxPastPauses is how many are known by their IDs.
const maxPastPauses = 100

func (a *decider) pauseWrites(now time.Time, m *PauseWrites) {
	a.endPauseIfDue(now) // its time may be over since before this process was frozen
	h, elected := &a.mem.pause, a.election.View().Elected
	answer := PauseState{Elected: string(elected)}
	past := slices.IndexFunc(h.past, func(p pastPause) bool { return p.id == m.ID })
	switch {
	case past >= 0:
		answer.From = string(h.past[past].from)
	case h.id == m.ID && h.ended:
	case h.id == m.ID:
		h.until = now.Add(m.For)
	case h.id != "" && !h.ended:
		answer.Err = errors.New("another switchover of the shard is under way")
	case elected == "":
		answer.Err = ErrNoPrimaryToPause
	default:
		if h.id != "" {
			h.past = append(h.past[max(0, len(h.past)-maxPastPauses+1):], pastPause{h.id, h.from})
		}
		*h = pause{id: m.ID, from: elected, began: now, until: now.Add(m.For), past: h.past}
		a.logTransition(now, zerolog.InfoLevel, "switchover", elected, "writes wait for another primary")
		a.probeAll()
	}
	if h.id == m.ID {
		answer.Paused, answer.From = !h.ended, string(h.from)
	}
	a.stale = true
	if m.Reply != nil {
		m.Reply <- answer
	}
}

// endPauseIfDue ends a pause whose time is over, or that has got what it waited for.
func (a *decider) endPauseIfDue(now time.Time) {
	h := &a.mem.pause
	if h.id == "" || h.ended {
		return
	}
	switch elected := a.election.View().Elected; {
	case elected != "" && elected != h.from:
		a.endPause(now, "another host is the primary: writes resume")
	case !now.Before(h.until):
		a.endPause(now, "given up: writes resume")
	}
}

func (a *decider) endPause(now time.Time, why string) {
	a.mem.pause.ended, a.stale = true, true
	a.logTransition(now, zerolog.InfoLevel, "switchover", a.election.View().Elected, why)
}

func (a *decider) resumeWrites(now time.Time, m *ResumeWrites) {
	if h := &a.mem.pause; h.id == m.ID && !h.ended {
		a.endPause(now, "ended: writes resume")
	}
}

// paused reports whether writes wait for a switchover.
func (a *decider) paused() bool { return a.mem.pause.id != "" && !a.mem.pause.ended }
