package pool

// Event is what happens to a lane: one of the types below.
type Event interface{ event() }

type (
	// Checkout puts a waiter in the queue; answered by Grant or Refuse, unless abandoned.
	Checkout struct{ Waiter *Waiter }
	// Spoiled says that the backend just granted turned out to be unusable: it is closed and the waiter, which does not
	// count as answered, keeps its turn.
	Spoiled struct {
		Slot   *Slot
		Waiter *Waiter
	}
	// Warm sets how many backends are to be open even though nobody waits for one, besides Config.MinSize.
	Warm struct{ N int }
	// Rejoin puts a waiter that was withdrawn elsewhere, or whose backend was not granted after all, in the queue at its
	// turn.
	Rejoin struct{ Waiter *Waiter }
	// Kick forgets failed connects: the server is expected to answer now.
	Kick struct{}
	// Abort ends connects that are under way: the server is not wanted any more.
	Abort struct{}
	// Abandon takes a waiter out of the queue; nothing answers it. No effect if it was answered before.
	Abandon struct{ Waiter *Waiter }
	// Checkin gives a leased backend back.
	Checkin struct {
		Slot      *Slot
		Condition Condition
	}
	// Opened says that a Dial succeeded: the backend is logged in and at rest.
	Opened struct{ Slot *Slot }
	// DialFailed says that a Dial failed; the slot is gone.
	DialFailed struct{ Slot *Slot }
	// Cleaned says that a backend is clean again.
	Cleaned struct{ Slot *Slot }
	// Lost says that a backend's connection is gone, expected or not; the slot is gone.
	Lost struct{ Slot *Slot }
	// Permits adds N permits, the answer to WantPermits.
	Permits struct{ N int }
	// Tick lets time pass.
	Tick struct{}
	// Configure replaces the limits.
	Configure struct{ Config Config }
	// Pause holds all grants back and closes idle backends.
	Pause struct{}
	// Resume ends Pause.
	Resume struct{}
	// Reconnect replaces every backend as soon as it is at rest.
	Reconnect struct{}
	// Drain closes backends as they come to rest with nobody waiting.
	Drain struct{}
	// Retire has one backend closed as soon as it is at rest, which may be now.
	Retire struct{ Slot *Slot }
	// Setback says that a backend that had been opened was of no use: as after a failed connect the next ones wait, and
	// go one at a time until one was of use (Checkin).
	Setback struct{}
	// GiveUp asks for one backend's permit, because somebody elsewhere waits for one: an idle one's, or, if the lane has
	// more than Share backends, that of the next one to come to rest.
	GiveUp struct{ Share int }
)

func (Checkout) event()   {}
func (Spoiled) event()    {}
func (Warm) event()       {}
func (Rejoin) event()     {}
func (Kick) event()       {}
func (Abort) event()      {}
func (Abandon) event()    {}
func (Checkin) event()    {}
func (Opened) event()     {}
func (DialFailed) event() {}
func (Cleaned) event()    {}
func (Lost) event()       {}
func (Permits) event()    {}
func (Tick) event()       {}
func (Configure) event()  {}
func (Pause) event()      {}
func (Resume) event()     {}
func (Reconnect) event()  {}
func (Drain) event()      {}
func (GiveUp) event()     {}
func (Retire) event()     {}
func (Setback) event()    {}

// Kind says what an Effect asks for.
type Kind uint8

// The effects.
const (
	Grant        Kind = iota + 1 // Slot is leased to Waiter
	Refuse                       // Waiter's time is over
	Dial                         // open a backend for Slot; answered by Opened, DialFailed or Lost
	Scrub                        // clean Slot; answered by Cleaned or Lost
	Close                        // close Slot; answered by Lost, or by DialFailed if it was not open yet
	WantPermits                  // N more permits are needed; answered by Permits, at once or later
	ReturnPermit                 // one permit is given back
	Bug                          // an event came that cannot happen here
)

var kindNames = [...]string{"", "grant", "refuse", "dial", "scrub", "close", "want-permits", "return-permit", "bug"}

func (k Kind) String() string { return kindNames[k] }

// Why a backend is closed.
type Why uint8

// The reasons.
const (
	WhyNone Why = iota
	WhyBroken
	WhyRetired
	WhyIdle
	WhyLifetime
	WhyPaused
	WhyDrained
	WhyYielded
)

var whyNames = [...]string{"", "broken", "reconnect", "server_idle_timeout", "server_lifetime", "paused", "drained", "permit needed elsewhere"}

func (w Why) String() string { return whyNames[w] }

// Effect is one thing the lane has to do.
type Effect struct {
	Kind   Kind
	Why    Why
	N      int
	Slot   *Slot
	Waiter *Waiter
}

// list is an intrusive first-in first-out queue, so that leaving it from the middle costs nothing.
type list struct {
	first, last *Waiter
	n           int
}

func (l *list) push(w *Waiter) {
	w.prev, w.next, w.queued = l.last, nil, true
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.n++
}

// insert puts w behind everybody whose turn is not after its own. It looks from the front, where those who come back one
// by one belong; those who move together belong behind each other.
func (l *list) insert(w *Waiter) {
	if l.last != nil && l.last.Turn <= w.Turn {
		l.push(w)
		return
	}
	at := l.first
	for at != nil && at.Turn <= w.Turn {
		at = at.next
	}
	if at == nil {
		l.push(w)
		return
	}
	w.prev, w.next, w.queued = at.prev, at, true
	if at.prev != nil {
		at.prev.next = w
	} else {
		l.first = w
	}
	at.prev = w
	l.n++
}

func (l *list) remove(w *Waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	l.n--
}

func (l *list) pop() *Waiter {
	w := l.first
	l.remove(w)
	return w
}
