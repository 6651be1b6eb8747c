package shard

import (
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"fencepost/role"
)

// Messages for a planned switchover (SWITCHOVER on the console).
type (
	// Hold makes writes wait, at their transaction boundaries, as if no primary were known, until another host is elected,
	// For is over, or Release comes. Repeated with the same ID it goes on for that much longer; it never begins anew once it
	// has ended, also if others came since: who gives the order may have been frozen meanwhile. Reply, if not nil, has room
	// for the answer.
	Hold struct {
		ID    string
		For   time.Duration
		Reply chan<- HoldState
	}
	// Release ends it before its time.
	Release struct{ ID string }
)

// HoldState is the answer to Hold.
type HoldState struct {
	Held    bool
	From    string // who was the primary when it began
	Elected string // who is elected now, whether writes are held or not; "" for nobody
	Err     error  // why it could not begin
}

// ErrNoPrimaryToHold says that there is nothing to switch over from.
var ErrNoPrimaryToHold = errors.New("no primary is known")

// holding is a hold under way, or the last one.
type holding struct {
	id    string
	from  role.Host
	began time.Time
	until time.Time
	ended bool
	past  []pastHold // those before it, the last one behind
}

// pastHold is one that has ended.
type pastHold struct {
	id   string
	from role.Host
}

// maxPastHolds is how many are known by their IDs.
const maxPastHolds = 100

func (a *decider) hold(now time.Time, m *Hold) {
	a.settleHold(now) // its time may be over since before this process was frozen
	h, elected := &a.mem.hold, a.election.View().Elected
	answer := HoldState{Elected: string(elected)}
	past := slices.IndexFunc(h.past, func(p pastHold) bool { return p.id == m.ID })
	switch {
	case past >= 0:
		answer.From = string(h.past[past].from)
	case h.id == m.ID && h.ended:
	case h.id == m.ID:
		h.until = now.Add(m.For)
	case h.id != "" && !h.ended:
		answer.Err = errors.New("another switchover of the shard is under way")
	case elected == "":
		answer.Err = ErrNoPrimaryToHold
	default:
		if h.id != "" {
			h.past = append(h.past[max(0, len(h.past)-maxPastHolds+1):], pastHold{h.id, h.from})
		}
		*h = holding{id: m.ID, from: elected, began: now, until: now.Add(m.For), past: h.past}
		a.logTransition(now, zerolog.InfoLevel, "switchover", elected, "writes wait for another primary")
		a.probeAll()
	}
	if h.id == m.ID {
		answer.Held, answer.From = !h.ended, string(h.from)
	}
	a.stale = true
	if m.Reply != nil {
		m.Reply <- answer
	}
}

// settleHold ends a hold whose time is over, or that has got what it waited for.
func (a *decider) settleHold(now time.Time) {
	h := &a.mem.hold
	if h.id == "" || h.ended {
		return
	}
	switch elected := a.election.View().Elected; {
	case elected != "" && elected != h.from:
		a.unhold(now, "another host is the primary: writes go on")
	case !now.Before(h.until):
		a.unhold(now, "given up: writes go on")
	}
}

func (a *decider) unhold(now time.Time, why string) {
	a.mem.hold.ended, a.stale = true, true
	a.logTransition(now, zerolog.InfoLevel, "switchover", a.election.View().Elected, why)
}

func (a *decider) release(now time.Time, m *Release) {
	if h := &a.mem.hold; h.id == m.ID && !h.ended {
		a.unhold(now, "ended: writes go on")
	}
}

// held reports whether writes wait for a switchover.
func (a *decider) held() bool { return a.mem.hold.id != "" && !a.mem.hold.ended }
