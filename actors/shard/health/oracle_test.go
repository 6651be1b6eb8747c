package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

// oracle keeps all that was said and judges each transition by a search through it.
type oracle struct {
	cfg     Config
	now     time.Time
	said    []said
	last    role.Host // elected last
	elected bool
	state   State
	since   time.Time
	bars    map[role.Host][]time.Time // what was asked for up to then proves nothing
	gone    map[role.Host]bool
	conns   map[role.Host]int
}

type said struct {
	at time.Time
	ev Event
}

func newOracle(now time.Time, cfg Config, last role.Host) *oracle {
	o := &oracle{cfg: cfg, now: now, since: now, last: last, elected: last != "", gone: map[role.Host]bool{}, conns: map[role.Host]int{}, bars: map[role.Host][]time.Time{}}
	if last != "" {
		o.bar(now)
	}
	return o
}

// feed gives an event to a machine and judges what comes of it.
func (o *oracle) feed(m *Machine, now time.Time, ev Event) ([]Effect, error) {
	if now.After(o.now) {
		o.now = now
	}
	effects := m.Step(now, ev)
	before := o.last
	o.took(ev)
	for _, e := range effects {
		if e, ok := e.(Entered); ok {
			if err := o.entered(e, ev, before); err != nil {
				return effects, err
			}
		}
	}
	if m.State() != o.state || !m.Since().Equal(o.since) {
		return effects, fmt.Errorf("%v since %v, told was %v since %v", m.State(), m.Since(), o.state, o.since)
	}
	return effects, o.missed()
}

func (o *oracle) took(ev Event) {
	switch e := ev.(type) {
	case Connected:
		o.conns[e.Host]++
		delete(o.gone, e.Host)
	case Disconnected:
		if o.conns[e.Host] == 0 { // it cannot end, and is taken for the worse
			e.Expected = false
			ev = e
		} else {
			o.conns[e.Host]--
		}
	}
	o.said = append(o.said, said{o.now, ev})
	switch e := ev.(type) {
	case nil:
		o.bar(o.now)
	case Configure:
		o.cfg = e.Config
	case Elected:
		o.elected = e.Host != ""
		if e.Host == "" {
			o.bar(o.now)
		} else if before := o.last; e.Host != before {
			o.last = e.Host
			o.forget(before)
		}
	case HostGone:
		o.gone[e.Host] = true
		o.forget(e.Host)
	}
}

func (o *oracle) bar(t time.Time) { o.bars[o.last] = append(o.bars[o.last], t) }

// forget what was said of a host that is gone.
func (o *oracle) forget(h role.Host) {
	if !o.gone[h] || h == o.last {
		return
	}
	delete(o.gone, h)
	delete(o.bars, h)
	delete(o.conns, h)
	o.said = slices.DeleteFunc(o.said, func(s said) bool { return about(s.ev) == h })
}

func about(ev Event) role.Host {
	switch e := ev.(type) {
	case Connected:
		return e.Host
	case Disconnected:
		return e.Host
	case ConnectFailed:
		return e.Host
	case Heard:
		return e.Host
	case MonitorState:
		return e.Host
	case MonitorAnswered:
		return e.Host
	case Proven:
		return e.Host
	case ShutdownNotice:
		return e.Host
	}
	return ""
}

func at(t, now time.Time) time.Time {
	if t.IsZero() || t.After(now) {
		return now
	}
	return t
}

func isLoss(e Disconnected) bool {
	return !e.Expected && !slices.Contains([]string{pgerr.IdleSessionTimeout, pgerr.IdleInTransactionTimeout, pgerr.TransactionTimeout}, e.Code)
}

func noReason(code string) bool { return code == "" || code == pgerr.CannotConnectNow }

// losses of the host elected last, and all else after which it must be proven again.
func (o *oracle) losses() (times []time.Time) {
	times = slices.Clone(o.bars[o.last])
	for _, s := range o.said {
		switch e := s.ev.(type) {
		case Disconnected:
			if e.Host == o.last && isLoss(e) {
				times = append(times, at(e.At, s.at))
			}
		case ConnectFailed:
			if e.Host == o.last && noReason(e.Code) {
				times = append(times, at(e.At, s.at))
			}
		case MonitorState:
			if e.Host == o.last && (e.Kind.Down() || e.Kind == MonitorStarting) {
				times = append(times, s.at)
			}
		}
	}
	return times
}

// well reports whether the host elected last is proven after the last loss, and its monitor hears it.
func (o *oracle) well() bool {
	losses := o.losses()
	after := func(asked time.Time) bool {
		return !slices.ContainsFunc(losses, func(t time.Time) bool { return !asked.After(t) })
	}
	var proven, heard, login bool
	monitor := MonitorUp
	for _, s := range o.said {
		switch e := s.ev.(type) {
		case Proven:
			proven = proven || e.Host == o.last && !e.Asked.IsZero() && !e.Asked.After(s.at) && after(e.Asked)
		case MonitorAnswered:
			if e.Host == o.last && !e.Asked.IsZero() && !e.Asked.After(s.at) {
				heard, monitor = heard || after(e.Asked), MonitorUp
			}
		case MonitorState:
			if e.Host == o.last && e.Kind <= MonitorLogin {
				monitor = e.Kind
			}
		}
	}
	login = monitor == MonitorLogin
	return o.elected && proven && !o.silent() && (login || heard && monitor == MonitorUp)
}

// entered says what is wrong with a transition.
func (o *oracle) entered(e Entered, ev Event, host role.Host) error {
	if e.From != o.state || e.State == e.From || e.Reason == "" {
		return fmt.Errorf("%v, in state %v", e, o.state)
	}
	before, since := host, o.since
	o.state, o.since = e.State, o.now
	switch e.State {
	case Healthy:
		if !o.well() {
			return fmt.Errorf("%v: not proven after the last loss, or its monitor does not hear it", e)
		}
	case Unhealthy:
		if e.From != Healthy || !o.lossIs(ev) && !o.silent() {
			return fmt.Errorf("%v without a loss by %v", e, ev)
		}
		if strings.Contains(e.Reason, "nothing was heard") {
			o.bar(o.now)
		} else {
			o.bar(lossTime(ev, o.now))
		}
	case Failover:
		el, another := ev.(Elected)
		another = another && before != "" && el.Host != "" && el.Host != before
		if src, ok := ev.(SourceSaysFailover); !another && !(ok && src.Host == o.last) && !o.confirmed() && !o.given(e.From, since) {
			return fmt.Errorf("%v without a reason by %v", e, ev)
		}
		if !another {
			o.bar(o.now)
		}
	}
	return nil
}

func lossTime(ev Event, now time.Time) time.Time {
	switch e := ev.(type) {
	case Disconnected:
		return at(e.At, now)
	case ConnectFailed:
		return at(e.At, now)
	}
	return now
}

// lossIs reports whether an event may make a healthy shard unhealthy.
func (o *oracle) lossIs(ev Event) bool {
	switch e := ev.(type) {
	case Disconnected:
		return e.Host == o.last
	case ConnectFailed:
		return e.Host == o.last && noReason(e.Code)
	case MonitorState:
		return e.Host == o.last && (e.Kind.Down() || e.Kind == MonitorStarting)
	case Elected:
		return e.Host == ""
	case nil:
		return true
	}
	return false
}

// silent: nothing was heard for unhealthy_after.
func (o *oracle) silent() bool {
	for _, s := range o.said {
		var h role.Host
		when := s.at
		switch e := s.ev.(type) {
		case Heard:
			h, when = e.Host, at(e.At, s.at)
		case Connected:
			h = e.Host
		case MonitorAnswered:
			if h = e.Host; e.Asked.IsZero() || e.Asked.After(s.at) {
				continue
			}
		case Proven:
			h = e.Host
			if e.Asked.IsZero() || e.Asked.After(s.at) {
				continue
			}
		case ConnectFailed:
			if h, when = e.Host, at(e.At, s.at); noReason(e.Code) {
				continue
			}
		case MonitorState:
			if h = e.Host; e.Kind != MonitorLogin {
				continue
			}
		}
		if h == o.last && o.now.Before(when.Add(o.cfg.UnhealthyAfter)) {
			return false
		}
	}
	return true
}

// confirmed: a shutdown was announced, and what the monitor found last by a reconnect that began after that confirms it.
func (o *oracle) confirmed() bool {
	var announced time.Time
	confirmed := false
	announces := func(code string) bool { return code == pgerr.AdminShutdown || code == pgerr.CrashShutdown }
	for _, s := range o.said {
		confirmed = false
		switch e := s.ev.(type) {
		case ShutdownNotice:
			if e.Host == o.last && announces(e.Code) && announced.IsZero() {
				announced = s.at
			}
		case Disconnected:
			if e.Host == o.last && !e.Expected && announces(e.Code) && announced.IsZero() {
				announced = s.at
			}
		case MonitorState:
			found := e.Kind == MonitorRefused || e.Kind == MonitorReset || e.Kind == MonitorStarting
			confirmed = e.Host == o.last && found && !announced.IsZero() && e.Asked.After(announced)
		case MonitorAnswered:
			if e.Host == o.last && !e.Asked.IsZero() && !e.Asked.After(s.at) && !announced.IsZero() {
				confirmed = e.InRecovery
				if e.Asked.After(announced) {
					announced = time.Time{}
				}
			}
		}
	}
	return confirmed
}

// given: unhealthy for long enough, and the monitor down. That the share is right the scripts show.
func (o *oracle) given(from State, since time.Time) bool {
	down := false
	for _, s := range o.said {
		if e, ok := s.ev.(MonitorState); ok && e.Host == o.last && e.Kind <= MonitorLogin {
			down = e.Kind.Down()
		}
		if e, ok := s.ev.(MonitorAnswered); ok && e.Host == o.last && !e.Asked.IsZero() && !e.Asked.After(s.at) {
			down = false
		}
	}
	return from == Unhealthy && down && !o.now.Before(since.Add(o.cfg.MinTime))
}

// missed: what should have happened and did not.
func (o *oracle) missed() error {
	if o.state != Healthy && o.last != "" && o.well() {
		return fmt.Errorf("proven and %v", o.state)
	}
	if o.state == Healthy && (o.silent() || !o.elected) {
		return fmt.Errorf("healthy, and nothing is heard or nobody elected")
	}
	return nil
}
