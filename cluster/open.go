package cluster

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// opening is an attempt to open. Whoever is last, the goroutine that opens or the actor that ends, closes what was opened.
type opening struct {
	mu   sync.Mutex // guards what follows
	over bool       // nobody wants it any more
	link *link
}

func (f *fleet) open() {
	o := &opening{}
	f.opening = o
	own, store, keys, logs, send := *f.cfg, f.store, f.keys, f.journal, f.send
	go func() { // ends when the address is bound or not
		l, err := open(&own, store, keys, logs, send)
		o.mu.Lock()
		over := o.over
		o.link = l
		o.mu.Unlock()
		switch {
		case !over:
			send(&opened{o, err})
		case l != nil:
			_ = l.leave(nil)
		}
	}()
}

// claim is what was opened; nil if nothing was, or if it was claimed.
func (o *opening) claim(over bool) *link {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.link
	o.link, o.over = nil, o.over || over
	return l
}

func (f *fleet) opened(now time.Time, msg *opened) {
	if msg.by != f.opening {
		return // of before a restart, which closed it
	}
	f.opening = nil
	l := msg.by.claim(true)
	switch {
	case f.closing && l == nil:
		f.send(&closed{})
	case f.closing:
		f.leave(l, nil)
	case msg.err != nil:
		f.journal.note(zerolog.ErrorLevel, "cannot listen on the fleet address", msg.err.Error())
		f.openAgain = now.Add(time.Second)
	default:
		f.link = l
		m, _ := f.roster.seen(now, node{nodeName(f.cfg.Member, f.cfg.Boot), l.self}, f.meta)
		m.self = true
		f.cfg.Log.Info().Str("fleet", f.cfg.Name).Str("member", f.cfg.Member).Stringer("addr", l.self).
			Stringer("boot", f.cfg.Boot).Int("keys", len(f.keys.GetKeys())).Msg("fleet: open")
		f.nextJoin = now
		if l.outdated() { // it changed while the address was being bound
			l.announce()
		}
		f.recount()
	}
	f.arm(now)
}

// close leaves the fleet; the actor ends when that is done.
func (f *fleet) close() {
	if f.closing {
		return
	}
	f.closing = true
	f.abandonRequests()
	switch {
	case f.link != nil:
		f.leave(f.link, f.farewells())
		f.link = nil
	case f.opening == nil:
		f.send(&closed{})
	}
}

// leaveTimeout bounds saying goodbye; what is still being sent may take twice that.
const leaveTimeout = time.Second

// leave ends a link behind the actor's back, and says closed.
func (f *fleet) leave(l *link, farewells map[node][]byte) {
	send, log := f.send, f.cfg.Log
	go func() { // ends within three times leaveTimeout
		if err := l.leave(farewells); err != nil {
			log.Warn().Err(err).Msg("fleet: left, some members were not notified")
		}
		send(&closed{})
	}()
}

// end lets go of everything without waiting for it.
func (f *fleet) end() {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.tickGeneration++
	f.abandonRequests()
	farewells, l := f.farewells(), f.link
	if l == nil {
		farewells, l = nil, f.opening.claim(true)
	}
	f.link, f.opening = nil, nil
	if l != nil {
		go func() { _ = l.leave(farewells) }() // ends within three times leaveTimeout
	}
}
