package shard

import "time"

// alarm is the actor's one timer.
type alarm struct {
	timer *time.Timer
	id    uint64    // of the present setting
	at    time.Time // zero: not set
}

// set has the alarm fire at a time, unless it fires earlier anyway. send is called with its tick, on the timer's goroutine.
func (t *alarm) set(now, at time.Time, send func(shardTick)) {
	if !t.at.IsZero() && !at.Before(t.at) {
		return // also if that time has passed: the tick is on its way
	}
	t.stop()
	t.at = at
	tick := shardTick{t.id}
	t.timer = time.AfterFunc(at.Sub(now), func() { send(tick) })
}

// fired reports whether a tick is that of the present setting, which is then used up.
func (t *alarm) fired(m shardTick) bool {
	if m.id != t.id {
		return false
	}
	t.at = time.Time{}
	return true
}

// stop makes every tick on its way a stale one.
func (t *alarm) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.id++
}
