package role

import (
	"fmt"
	"time"
)

// Strength is how much a Record says for its host as a primary.
type Strength uint8

// The strengths.
const (
	None Strength = iota
	Doubted
	Proven
	Demoted
)

func (s Strength) String() string { return name(s, "none", "doubted", "proven", "demoted") }

// Cause is what demoted a host.
type Cause uint8

// The causes.
const (
	NoCause         Cause = iota
	CauseInRecovery       // it said that it is in recovery
	CauseReadOnly         // it said that it is read-only by its own settings
	CauseForeign          // it said that it belongs to another cluster
	CauseRefused          // right after a loss it refused the reconnect, or said that it is starting up or shutting down
)

func (c Cause) String() string {
	return name(c, "", "in recovery", "read only", "another cluster", "refused after a loss")
}

// Fact is something that speaks against a host: from when it counts, and what it is.
type Fact struct {
	At  time.Time // zero: never
	Why string
}

// stands reports whether the fact still holds in spite of a positive answer asked for at the time given.
func (f Fact) stands(asked time.Time) bool { return !f.At.IsZero() && !asked.After(f.At) }

// Record is all that is known about one host. The zero value knows nothing. It is not safe for concurrent use; a copy is
// independent of its original.
type Record struct {
	last     Observation // the latest answer, whatever it says
	positive Observation // the latest by Asked that was writable; Asked zero: none
	demotion Fact
	cause    Cause
	since    time.Time // when the present demotion began
	doubt    Fact      // the last rise
	failure  Fact      // the last loss, failed connect or senseless answer
	lost     time.Time // the last loss
	late     time.Time // the last doubt for lateness
	heard    time.Time
}

// Observe takes an answer in. A writable one is evidence unless it was asked before what speaks against the host was
// known; after a demotion it must also not be older than ttl, that is, proven. One that says the host cannot take writes
// demotes it, unless the host was asked after that and said otherwise. One without sense is a failure. Whether it is the
// right cluster the caller knows: see ObserveForeign.
func (r *Record) Observe(now time.Time, ttl time.Duration, o Observation) {
	known := r.answer(now, o)
	if lacks := o.Lacks(); lacks != "" {
		r.Fail(known, "its answer lacks its "+lacks)
		return
	}
	switch o.Verdict {
	case Writable:
		if o.Source != Probe && o.Source != Fence || !o.Asked.After(r.positive.Asked) {
			return
		}
		if !r.demotion.stands(r.positive.Asked) || !expired(now, ttl, o.Asked) {
			r.positive = o
		}
	case ReadOnly:
		r.Demote(known, CauseReadOnly, "it is read-only by its own settings")
	case InRecovery:
		r.Demote(known, CauseInRecovery, "it is in recovery")
	default:
		r.Fail(known, "its answer made no sense")
	}
}

// ObserveForeign takes in the answer of a host that belongs to another cluster, whatever else it says: that demotes it.
func (r *Record) ObserveForeign(now time.Time, o Observation) {
	r.Demote(r.answer(now, o), CauseForeign, fmt.Sprintf("it belongs to another cluster, with system identifier %d", o.SystemID))
}

// answer notes that the host said something, and returns when that was known.
func (r *Record) answer(now time.Time, o Observation) time.Time {
	known := earlier(o.Answered, now)
	r.Hear(known)
	if !o.Asked.Before(r.last.Asked) {
		r.last = o
	}
	return known
}

// Demote says that the host was found at the time given not to be able to take writes.
func (r *Record) Demote(at time.Time, cause Cause, why string) {
	if !r.demotion.stands(r.positive.Asked) {
		r.since = at
	}
	if !at.Before(r.demotion.At) {
		r.demotion, r.cause = Fact{at, why}, cause
	}
}

// Doubt puts what is known in question.
func (r *Record) Doubt(at time.Time, why string) { raise(&r.doubt, at, why) }

// Late is a doubt because a probe got no answer in time. A host that is slow all the time is doubted for it at most once
// per ttl; Late reports whether it was this time.
func (r *Record) Late(at time.Time, ttl time.Duration) bool {
	if !r.late.IsZero() && at.Before(r.late.Add(ttl)) {
		return false
	}
	r.late = at
	r.Doubt(at, "its probe is late")
	return true
}

// Lost says that a connection to the host was lost: a doubt, and no host is elected on what was known before it.
func (r *Record) Lost(at time.Time, why string) {
	r.lost = later(r.lost, at)
	r.Fail(at, why)
}

// Fail says that the host could not be asked: a doubt, and no host is elected on what was known before it.
func (r *Record) Fail(at time.Time, why string) {
	raise(&r.failure, at, why)
	r.Doubt(at, why)
}

// RefusedAfterLoss says that right after a loss the host refused to be connected to: that demotes it.
func (r *Record) RefusedAfterLoss(at time.Time, why string) {
	raise(&r.failure, at, why)
	r.Demote(at, CauseRefused, why)
}

// Hear says that the host sent something, whatever it was.
func (r *Record) Hear(at time.Time) { r.heard = later(r.heard, at) }

// Strength of the record now, for evidence that lasts ttl.
func (r *Record) Strength(now time.Time, ttl time.Duration) Strength {
	switch {
	case r.demotion.stands(r.positive.Asked):
		return Demoted
	case r.positive.Asked.IsZero():
		return None
	case r.doubt.stands(r.positive.Asked), expired(now, ttl, r.positive.Asked):
		return Doubted
	}
	return Proven
}

// Electable reports whether the record is enough to elect the host anew: writable, asked within ttl, and nothing failed
// since. A host that is elected already may stay on less.
func (r *Record) Electable(now time.Time, ttl time.Duration) bool {
	s := r.Strength(now, ttl)
	return s == Proven || s == Doubted && !expired(now, ttl, r.positive.Asked) && !r.failure.stands(r.positive.Asked)
}

// Expires is when the evidence becomes too old by itself; zero if there is none, or if it is worth less than Proven
// already.
func (r *Record) Expires(now time.Time, ttl time.Duration) time.Time {
	if !r.Electable(now, ttl) {
		return time.Time{}
	}
	return r.positive.Asked.Add(ttl)
}

// Evidence is the latest writable answer; Asked is zero if there is none.
func (r *Record) Evidence() Observation { return r.positive }

// Last is the latest answer, whatever it says; Asked is zero if there is none.
func (r *Record) Last() Observation { return r.last }

// Doubts is the last rise of doubt; what was asked for after it ended it.
func (r *Record) Doubts() Fact { return r.doubt }

// Failure is the last loss, failed connect or senseless answer.
func (r *Record) Failure() Fact { return r.failure }

// LostAt is when a connection was lost last; zero: never.
func (r *Record) LostAt() time.Time { return r.lost }

// Demotion is the last one, whether it stands or not, with its cause and when it began.
func (r *Record) Demotion() (f Fact, cause Cause, since time.Time) {
	return r.demotion, r.cause, r.since
}

// Heard is when the host sent something last; zero: never.
func (r *Record) Heard() time.Time { return r.heard }

// Why says why the strength is what it is, as the end of a sentence that begins with the host's name; "" if Proven.
func (r *Record) Why(now time.Time, ttl time.Duration) string {
	switch s := r.Strength(now, ttl); {
	case s == Demoted:
		return r.demotion.Why
	case s == None && r.failure.Why != "":
		return r.failure.Why
	case s == None:
		return "it has not answered yet"
	case s == Doubted && r.doubt.stands(r.positive.Asked):
		return r.doubt.Why
	case s == Doubted:
		return fmt.Sprintf("it was last seen writable more than %v ago", ttl)
	}
	return ""
}

// String gives what is known in one line, without ages.
func (r *Record) String() string {
	s := fmt.Sprintf("last %v", r.last)
	if !r.positive.Asked.IsZero() {
		s += fmt.Sprintf("; evidence %v", r.positive)
	}
	if r.demotion.stands(r.positive.Asked) {
		s += "; demoted: " + r.demotion.Why
	}
	if r.doubt.stands(r.positive.Asked) {
		s += "; doubted: " + r.doubt.Why
	}
	return s
}

func raise(f *Fact, at time.Time, why string) {
	if !at.Before(f.At) {
		*f = Fact{at, why}
	}
}

// expired: at the end of the ttl, not after it, so that a timer set for that moment finds it so.
func expired(now time.Time, ttl time.Duration, asked time.Time) bool {
	return !now.Before(asked.Add(ttl))
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// earlier of two; a zero a is not known and counts as b.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
