package eventloop

import (
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bufferSize = 64 << 10  // the loop's shared read buffer
	turnBytes  = 256 << 10 // a connection's bytes per turn; then the others have theirs
	drainLimit = 4096      // tasks run between two socket events
	stopLimit  = 100_000   // tasks run at the end before Post refuses, in case they would never end
)

// task is an entry of the run queue: a posted function or a mailbox that has messages.
type task struct {
	fn func()
	mb *Mailbox
}

// poller is what differs between the implementations: where events come from.
type poller interface {
	// start is called first, on the loop's goroutine.
	start()
	// wait waits for events, for ever if timeout < 0.
	wait(timeout time.Duration)
	// next takes the next event of the last wait; c is nil when there are no more.
	next() (c *conn, ev events)
	// pending reports whether events are there that need no wait. Called after the loop declared to sleep.
	pending() bool
	// wake ends the wait (any goroutine).
	wake()
	// add begins to watch a socket, which is ready at once if it has something to say.
	add(c *conn) error
	// remove ends it; called before a socket is handed on, not when it is closed.
	remove(c *conn)
	// forget is told of each connection that leaves the loop.
	forget(c *conn)
	// listen begins to accept.
	listen(nl net.Listener, accept func(Socket), failed func(error)) (Acceptor, error)
	// close is called last, on the loop's goroutine.
	close()
}

// events are what a poller says of a connection.
type events uint8

const (
	evReadable events = 1 << iota
	evWritable
	evHangup // the peer closed or the socket failed: read to the end
)

// owner says whose code is running, for the case that it panics.
type owner struct {
	c    *conn
	mb   *Mailbox
	sock *socket
}

// loop is both implementations of Loop; they differ in their poller, in what a conn reads from and, when seeded, in
// who calls step.
type loop struct {
	index int
	group *Group
	opt   *Options
	poll  poller
	sim   *simulation // nil unless Options.Seed is set

	base     time.Time
	clock    atomic.Int64 // cached time since base
	sleeping atomic.Bool  // set by the loop before it waits, cleared by whoever wakes it
	waiting  atomic.Bool  // set and cleared by the loop
	woken    atomic.Int64 // when it was last woken by a task, since base
	mailbox  atomic.Uint32
	ended    chan struct{}

	// mu guards what follows; nothing else is locked while it is held.
	mu       sync.Mutex
	in       []task
	posted   uint64
	stopping bool
	stopped  bool

	// Loop only from here.
	queue     []task // tasks taken from in; queue[at:] are still to run
	at        int
	running   *Mailbox
	owner     owner
	active    *conn  // whose event is being worked off
	cur       []byte // what its running or last OnData was given
	own       []byte // the buffer of the connection's own that cur lies in; nil if cur lies in buf
	buf       []byte
	waste     []byte // for input nobody wants; made when first needed
	pool      bufferPool
	ready     []*conn // ready[readyAt:] have something to do that no event will announce
	readyAt   int
	masked    []*conn // have something to do, but their actor is suspended
	conns     []*conn
	acceptors []Acceptor
	gen       uint32
	timers    timerHeap
	surplus   int // tasks run after the end was asked for

	count     Stats // the loop's own
	statsMu   sync.Mutex
	published Stats // copy of count, guarded by statsMu
}

var _ Loop = (*loop)(nil)

func newLoop(g *Group, index int) *loop {
	return &loop{
		index: index, group: g, opt: &g.opt, base: time.Now(), buf: make([]byte, bufferSize), ended: make(chan struct{}),
	}
}

// Schedule queues a mailbox run.
func (l *loop) Schedule(fn func()) { l.enqueue(task{fn: fn}) }

// Throughput is how many messages a mailbox of the runtime's own handles before it yields the processor: never.
func (l *loop) Throughput() int { return math.MaxInt32 }

// Index is the loop's position in its group.
func (l *loop) Index() int { return l.index }

// Now is the cached time.
func (l *loop) Now() time.Time { return l.base.Add(time.Duration(l.clock.Load())) }

// Post queues fn.
func (l *loop) Post(fn func()) bool { return l.enqueue(task{fn: fn}) }

// NewMailbox makes a mailbox of this loop.
func (l *loop) NewMailbox() *Mailbox { return &Mailbox{loop: l, id: l.mailbox.Add(1)} }

func (l *loop) enqueue(t task) bool {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	l.in = append(l.in, t)
	l.posted++
	l.mu.Unlock()
	l.rouse()
	return true
}

// rouse wakes the loop if it sleeps. The caller has queued something under mu before. The loop declares to sleep first
// and looks at the queue under mu second, so one of the two sees the other.
func (l *loop) rouse() {
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.woken.Store(int64(time.Since(l.base)))
		l.poll.wake()
	}
}

// Listen accepts connections.
func (l *loop) Listen(nl net.Listener, accept func(Socket), failed func(error)) (Acceptor, error) {
	a, err := l.poll.listen(nl, accept, failed)
	if err != nil {
		nl.Close()
		return nil, err
	}
	l.acceptors = append(l.acceptors, a)
	return a, nil
}

// accepted hands a new socket to the one who listens.
func (l *loop) accepted(s *socket, accept func(Socket)) {
	l.count.Turns++
	l.owner.sock = s
	accept(s)
	l.owner.sock = nil
	l.drain()
}

func (l *loop) acceptFailed(err error, failed func(error)) {
	l.count.AcceptFailures++
	if failed != nil {
		failed(err)
	}
}

func (l *loop) dropAcceptor(a Acceptor) {
	if i := slices.Index(l.acceptors, a); i >= 0 {
		l.acceptors = slices.Delete(l.acceptors, i, i+1)
	}
}

// stop asks the loop to end (any goroutine).
func (l *loop) stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.sleeping.Store(false)
	l.poll.wake()
}

func (l *loop) publish() {
	l.count.Timers = int64(len(l.timers.heap) + len(l.timers.withheld))
	l.statsMu.Lock()
	l.published = l.count
	l.statsMu.Unlock()
}

// Stats returns the counters as of the loop's last wait.
func (l *loop) Stats() Stats {
	l.statsMu.Lock()
	s := l.published
	l.statsMu.Unlock()
	l.mu.Lock()
	s.Posted = l.posted
	l.mu.Unlock()
	s.Heartbeat = l.heartbeat()
	return s
}

// heartbeat is now while the loop waits and nothing wants it awake: an idle loop need not wake up to be alive.
func (l *loop) heartbeat() time.Time {
	seen := l.clock.Load()
	if l.waiting.Load() {
		if l.sleeping.Load() {
			return time.Now()
		}
		seen = max(seen, l.woken.Load())
	}
	return l.base.Add(time.Duration(seen))
}
