package monitor

import (
	"time"

	"fencepost/role"
)

// phase is what a monitor is doing.
type phase uint8

const (
	resting phase = iota // no connection; the next attempt is made at machine.dialAt
	dialing              // an attempt to connect and log in is under way
	idle                 // connected; the next probe is asked at machine.askAt
	asking               // a probe is under way
)

func (p phase) String() string { return [...]string{"resting", "dialing", "idle", "asking"}[p] }

const (
	firstBackoff = 25 * time.Millisecond // after the first failure; doubles with each
	// A connection that was lost sooner is followed by a pause, which grows if that happens again, so that a server that
	// lets the monitor in and throws it out is not dialled without end.
	settled = time.Second
	// probeGap is the least time between two probes when ProbeNow comes in a flood, as when many backends are lost.
	probeGap = 5 * time.Millisecond
)

// machine decides when to connect and when to probe, and what to tell the shard. It does nothing itself: its methods are
// told what happened and when, and return what is to be done, in order. The zero value with limits and mode rests.
//
// An answer that does not fit the phase is dropped by the caller, who knows which connection it came from.
type machine struct {
	host role.Host
	late time.Duration // Config.Late
	mode Mode

	phase     phase
	kind      Kind // as last told to the shard
	failures  int  // attempts in a row that came to nothing: their number sets the pause
	flaps     int  // connections in a row that were answered and lost before they were settled
	restSince time.Time
	dialAt    time.Time // zero while a decision is due (after start)
	dialedAt  time.Time
	afterLoss bool      // the attempt under way, or the next one, is the first after a loss
	upSince   time.Time // when the connection was logged in
	good      bool      // it has answered
	askAt     time.Time
	askedAt   time.Time
	lateTold  bool
	again     bool // ProbeNow came while a probe was under way
}

// What there is to do: dial, ask, or send a message to the shard.
type (
	effect interface{ effect() }
	dial   struct{}
	hangUp struct{} // the connection is of no use any more
	ask    struct{}
)

func (dial) effect()      {}
func (hangUp) effect()    {}
func (ask) effect()       {}
func (*Observed) effect() {}
func (*Late) effect()     {}
func (*Lost) effect()     {}
func (*Refused) effect()  {}
func (*Failed) effect()   {}
func (*State) effect()    {}

// start makes the first attempt.
func (m *machine) start(now time.Time) []effect { return m.dial(now) }

// next is when tick has something to do; zero: never.
func (m *machine) next() time.Time {
	switch m.phase {
	case resting:
		return m.dialAt
	case idle:
		return m.askAt
	case asking:
		if !m.lateTold {
			return m.askedAt.Add(m.late)
		}
	}
	return time.Time{}
}

// tick does what is due.
func (m *machine) tick(now time.Time) []effect {
	due := m.next()
	if due.IsZero() || now.Before(due) {
		return nil
	}
	switch m.phase {
	case resting:
		return m.dial(now)
	case idle:
		return m.ask(now)
	case asking:
		m.lateTold = true
		return []effect{&Late{Host: m.host, Asked: m.askedAt, At: now}}
	}
	return nil
}

func (m *machine) probeNow(now time.Time) []effect {
	switch m.phase {
	case resting:
		m.dialAt = earlier(m.dialAt, m.dialedAt.Add(firstBackoff))
	case idle:
		m.askAt = earlier(m.askAt, m.askedAt.Add(probeGap))
	case asking:
		m.again = true
	}
	return m.tick(now)
}

func (m *machine) setMode(now time.Time, mode Mode) []effect {
	m.mode = Mode{Interval: max(mode.Interval, time.Millisecond), Backoff: max(mode.Backoff, time.Millisecond)}
	switch m.phase {
	case resting:
		m.dialAt = m.restSince.Add(m.backoff())
	case idle:
		m.askAt = m.askedAt.Add(m.mode.Interval)
	}
	return m.tick(now)
}

// reconnect gives up a connection that was dialled before a time, and makes another one at once.
func (m *machine) reconnect(now, before time.Time) []effect {
	if m.phase != idle && m.phase != asking || !m.dialedAt.Before(before) {
		return nil
	}
	effects := []effect{hangUp{}, &Lost{Host: m.host, Kind: Local, Expected: true, At: now, Err: errOutrun}}
	return append(m.enter(effects, Connecting, nil), m.dial(now)...)
}

func (m *machine) dial(now time.Time) []effect {
	m.phase, m.dialedAt = dialing, now
	return []effect{dial{}}
}

func (m *machine) ask(now time.Time) []effect {
	m.phase, m.askedAt, m.lateTold, m.again = asking, now, false, false
	return []effect{ask{}}
}

// connected: logged in. The first probe follows at once.
func (m *machine) connected(now time.Time) []effect {
	m.afterLoss, m.upSince, m.good = false, now, false
	return m.ask(now)
}

// refused: the attempt to connect failed.
func (m *machine) refused(now time.Time, f *failure) []effect {
	first := m.afterLoss
	m.afterLoss = false
	m.failures++
	m.rest(now)
	var told effect = &Failed{Host: m.host, Kind: f.kind, Code: f.code, Asked: m.dialedAt, At: now, Err: f.err}
	if f.kind == Closed || f.kind == Reset || f.kind == Starting {
		told = &Refused{Host: m.host, AfterLoss: first, Kind: f.kind, Code: f.code, Asked: m.dialedAt, At: now, Err: f.err}
	}
	return m.enter([]effect{told}, f.kind, f)
}

// answered: the probe under way was answered with an identity.
func (m *machine) answered(now time.Time, id role.Identity) []effect {
	m.good = true
	o := &Observed{id.Observation(m.host, role.Probe, m.askedAt, now)}
	o.Dialled = m.dialedAt
	return m.goOn(now, m.enter([]effect{o}, Up, nil))
}

// senseless: the probe under way was answered with an error or with nonsense, and the connection goes on.
func (m *machine) senseless(now time.Time, f *failure) []effect {
	told := &Failed{Host: m.host, Kind: f.kind, Code: f.code, Asked: m.askedAt, At: now, Err: f.err}
	return m.goOn(now, m.enter([]effect{told}, f.kind, f))
}

// goOn sets the next probe after one that is over.
func (m *machine) goOn(now time.Time, effects []effect) []effect {
	m.phase = idle
	m.askAt = m.askedAt.Add(m.mode.Interval)
	if m.again {
		m.askAt = earlier(m.askAt, m.askedAt.Add(probeGap))
	}
	return append(effects, m.tick(now)...)
}

// lost: the connection is gone.
func (m *machine) lost(now time.Time, f *failure) []effect {
	m.afterLoss = !f.expected
	switch {
	case !m.good:
		m.failures++
	case now.Sub(m.upSince) < settled:
		m.flaps++
		m.failures = m.flaps
	default:
		m.flaps, m.failures = 0, 0
	}
	m.rest(now)
	effects := []effect{&Lost{Host: m.host, Kind: f.kind, Code: f.code, Expected: f.expected, At: now, Err: f.err}}
	return append(m.enter(effects, Connecting, nil), m.tick(now)...)
}

func (m *machine) rest(now time.Time) {
	m.phase, m.restSince = resting, now
	m.dialAt = now.Add(m.backoff())
}

// backoff is the pause after the failures so far.
func (m *machine) backoff() time.Duration {
	if m.failures == 0 {
		return 0
	}
	return min(m.mode.Backoff, firstBackoff<<min(m.failures-1, 10))
}

// enter tells the shard of a new kind.
func (m *machine) enter(effects []effect, k Kind, f *failure) []effect {
	if m.kind == k {
		return effects
	}
	m.kind = k
	s := &State{Host: m.host, Kind: k}
	if f != nil {
		s.Code, s.Err = f.code, f.err
	}
	return append(effects, s)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
