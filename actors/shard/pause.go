package shard

import (
	"errors"
	"slices"
	"time"

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

// request begins a pause of writes to the elected host, or prolongs the one with the same ID.
func (p *pause) request(now time.Time, m *PauseWrites, elected role.Host) (answer PauseState, began bool) {
	answer.Elected = string(elected)
	past := slices.IndexFunc(p.past, func(p pastPause) bool { return p.id == m.ID })
	switch {
	case past >= 0:
		answer.From = string(p.past[past].from)
	case p.id == m.ID && p.ended:
	case p.id == m.ID:
		p.until = now.Add(m.For)
	case p.active():
		answer.Err = errors.New("another switchover of the shard is under way")
	case elected == "":
		answer.Err = ErrNoPrimaryToPause
	default:
		if p.id != "" {
			p.past = append(p.past[max(0, len(p.past)-maxPastPauses+1):], pastPause{p.id, p.from})
		}
		*p = pause{id: m.ID, from: elected, began: now, until: now.Add(m.For), past: p.past}
		began = true
	}
	if p.id == m.ID {
		answer.Paused, answer.From = !p.ended, string(p.from)
	}
	return answer, began
}

// active reports whether writes wait for a switchover.
func (p *pause) active() bool { return p.id != "" && !p.ended }

// over says why an active pause ends now; "" if it does not.
func (p *pause) over(now time.Time, elected role.Host) string {
	switch {
	case !p.active():
	case elected != "" && elected != p.from:
		return "another host is the primary: writes resume"
	case !now.Before(p.until):
		return "given up: writes resume"
	}
	return ""
}
