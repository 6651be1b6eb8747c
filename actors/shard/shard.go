// Package shard holds the shard's actor: it decides which host is the primary and publishes that as a view.
//
//	monitors, lanes, fleet -- evidence --> Shard actor -- Publish --> View (atomic pointer), read by lanes
//
// The actor executes what the pure machines in packages election and health decide. It owns no client's and no backend's
// socket: a shard that fails and restarts closes none.
package shard

import (
	"fmt"
	"sync/atomic"
	"time"

	"fencepost/actors/shard/health"
)

// Shard is the handle of a shard: its name and view. Safe for any goroutine.
type Shard struct {
	Name string
	base time.Time
	view atomic.Pointer[View]

	// Doubt. pending counts those who saw a contradiction and whose word the shard's actor has not taken in yet; doubted
	// is whether the actor itself is in doubt; risen is when doubt rose last, by the monotonic clock since base: a step of
	// the system's clock neither makes a proof older nor younger.
	pending atomic.Int64
	doubted atomic.Bool
	risen   atomic.Int64
	hinted  atomic.Int64 // when RaiseHint last did something, since base

	// A process that stood still, because it was frozen or starved, does not know what has happened meanwhile.
	// The sleep of a whole machine is not seen: the monotonic clock does not count it. beat is when the actor last handled a message, since base; patience is how old that may be, 0: there is no actor.
	beat     atomic.Int64
	patience atomic.Int64
}

// NewShard makes the handle of a shard of which nothing is known: no primary until its actor publishes one.
func NewShard(name string) *Shard {
	s := newHandle(name)
	s.view.Store(&View{Why: "nothing is known yet", Explanation: "no host has been asked yet"})
	return s
}

// NewStatic makes the handle of a shard whose single host, of role any, serves everything.
func NewStatic(name, host string) *Shard {
	s := newHandle(name)
	s.view.Store(&View{Epoch: 1, Static: true, Elected: host, State: health.Healthy, Why: "the only host, role any"})
	return s
}

// newHandle begins with a hint that is long past.
func newHandle(name string) *Shard {
	s := &Shard{Name: name, base: time.Now()}
	s.hinted.Store(-int64(hintEvery))
	return s
}

// View is the present decision.
func (s *Shard) View() *View { return s.view.Load() }

// Current is View for a caller that is about to grant a write by it. If the actor has handled nothing for evidence_ttl, this
// process stood still, and whoever notices first withdraws the primary: the hosts have to be asked again. The actor
// notices with its next message, and publishes its own view.
func (s *Shard) Current() *View {
	v := s.view.Load()
	gap := s.stoodStill(time.Since(s.base))
	if gap == 0 || v.Static || v.Elected == "" {
		return v
	}
	w := *v
	w.Elected, w.Refuse = "", false
	w.Explanation = fmt.Sprintf("this process stood still for %v: the hosts are asked again", gap.Round(time.Millisecond))
	s.view.CompareAndSwap(v, &w)
	return s.view.Load()
}

// stoodStill is for how long nothing was handled, if that is too long; else 0. at is since base.
func (s *Shard) stoodStill(at time.Duration) time.Duration {
	gap := at - time.Duration(s.beat.Load())
	if limit := time.Duration(s.patience.Load()); limit == 0 || gap <= limit {
		return 0
	}
	return gap
}

// beats says that the actor has handled what it was sent, and published what follows. Only the shard's actor calls it.
func (s *Shard) beats(now time.Time, patience time.Duration) {
	s.beat.Store(int64(now.Sub(s.base)))
	s.patience.Store(int64(patience))
}

// Publish replaces the view. Only the shard's actor calls it.
func (s *Shard) Publish(v *View) { s.view.Store(v) }

// RaiseDoubt says that something contradicts what is believed of the elected host, as of at: from now on a write grant
// needs a proof asked for after that. The caller sends the shard's actor a message with Doubts set, which takes the word
// in and calls ClearDoubt.
func (s *Shard) RaiseDoubt(at time.Time) {
	s.rise(at)
	s.pending.Add(1)
}

// hintEvery is how often a mere hint may raise doubt: a client can cause hints at will.
const hintEvery = time.Second

// RaiseHint is RaiseDoubt for what clients can bring about themselves; false: one was taken lately, and nothing is sent.
func (s *Shard) RaiseHint(at time.Time) bool {
	now, last := int64(at.Sub(s.base)), s.hinted.Load()
	if now-last < int64(hintEvery) || !s.hinted.CompareAndSwap(last, now) {
		return false
	}
	s.RaiseDoubt(at)
	return true
}

func (s *Shard) rise(at time.Time) {
	for ns := int64(at.Sub(s.base)); ; {
		was := s.risen.Load()
		if ns <= was || s.risen.CompareAndSwap(was, ns) {
			return
		}
	}
}

// Doubted sets the actor's own doubt, as of at when it begins or rises again. Only the shard's actor calls it.
func (s *Shard) Doubted(on bool, at time.Time) {
	if on {
		s.rise(at)
	}
	s.doubted.Store(on)
}

// ClearDoubt ends one RaiseDoubt whose message was handled. Only the shard's actor calls it, after Doubted.
func (s *Shard) ClearDoubt() {
	for { // never below zero, where a later word would not be heard
		n := s.pending.Load()
		if n <= 0 || s.pending.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// InDoubt reports whether a write grant needs a proof asked for after since.
func (s *Shard) InDoubt() (since time.Time, doubted bool) {
	if s.pending.Load() <= 0 && !s.doubted.Load() {
		return time.Time{}, false
	}
	return s.base.Add(time.Duration(s.risen.Load())), true
}

// HintOn is what a backend to host calls in the moment it sees a hint. One about a host that is not elected raises no doubt
// about the one that is. A loss does, wherever it is: RaiseDoubt.
func (s *Shard) HintOn(host string) func(time.Time) bool {
	return func(at time.Time) bool { return s.View().Elected == host && s.RaiseHint(at) }
}

// Uncleared is how many doubts were raised whose message the shard's actor has not handled yet.
func (s *Shard) Uncleared() int64 { return s.pending.Load() }

// Risen is when doubt rose last.
func (s *Shard) Risen() time.Time { return s.base.Add(time.Duration(s.risen.Load())) }
