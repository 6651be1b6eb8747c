package soak

import (
	"sync"
	"sync/atomic"
	"time"
)

// owner is a session as pg_stat_activity knows it: by its application_name.
type owner struct {
	busy atomic.Bool // the server may hold a transaction or be at work for it
	left atomic.Int64
	// said: it left with Terminate, so what it had sent before is carried out, as a server would.
	said atomic.Bool
	how  atomic.Pointer[string] // it left
}

// goneFor is how long ago the session ended, negative if it has not.
func (o *owner) goneFor() time.Duration {
	if t := o.left.Load(); t != 0 {
		return time.Since(time.Unix(0, t))
	}
	return -1
}

// owners are the sessions of a run, those that have ended for a while as well.
type owners struct {
	mu  sync.Mutex // guards all
	all map[string]*owner
}

// enter adds a session.
func (o *owners) enter(name string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]*owner{}
	}
	own := &owner{}
	o.all[name] = own
	return own
}

// leave notes the end of a session, and how it came.
func (o *owner) leave(how string) {
	o.how.Store(&how)
	o.left.Store(time.Now().UnixNano())
}

// find returns a session, nil if it is not known or ended long ago.
func (o *owners) find(name string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[name]
}

// sweep forgets sessions that ended long ago.
func (o *owners) sweep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, own := range o.all {
		if own.goneFor() > 2*time.Minute {
			delete(o.all, name)
		}
	}
}
