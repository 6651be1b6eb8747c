package eventloop

import (
	"runtime/debug"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// mailboxRun is how many messages one run of a mailbox handles before it goes to the end of the loop's queue, so that
// an actor that keeps sending to itself starves neither the others nor the sockets.
const mailboxRun = 512

// Mailbox is the mailbox of an actor that lives on a loop. Its runs happen on that loop; system messages come first.
// Posting is safe from any goroutine. It implements actor.Mailbox; make it with Loop.NewMailbox or let a Spawner do so.
type Mailbox struct {
	loop    *loop
	produce func(*Mailbox) actor.Actor // set by a Spawner, for restarts
	id      uint32                     // order of creation on the loop: the stable name in a seeded run

	// Loop only.
	suspended bool

	// mu guards what follows. Nothing but the loop's own queue lock is taken while it is held, and no message handled.
	mu      sync.Mutex
	queued  bool // on the loop's run queue, or running
	invoker actor.MessageInvoker
	system  messages
	user    messages
}

var _ actor.Mailbox = (*Mailbox)(nil)

// PostUserMessage queues a message for the actor (any goroutine).
func (m *Mailbox) PostUserMessage(message any) {
	m.mu.Lock()
	m.user.push(message)
	m.schedule()
}

// PostSystemMessage queues a message of the runtime, which overtakes the user messages (any goroutine).
func (m *Mailbox) PostSystemMessage(message any) {
	m.mu.Lock()
	m.system.push(message)
	m.schedule()
}

// schedule puts the mailbox on the loop's queue if it is not there. It is called with mu held and releases it. A
// message may come before RegisterHandlers, as the name is public already: it waits for that call.
func (m *Mailbox) schedule() {
	start := !m.queued && m.invoker != nil
	if start {
		m.queued = true
	}
	m.mu.Unlock()
	if start {
		m.loop.enqueue(task{mb: m})
	}
}

// RegisterHandlers is called by the actor runtime during the spawn. The dispatcher is ignored: runs happen on the loop
// that made the mailbox.
func (m *Mailbox) RegisterHandlers(invoker actor.MessageInvoker, _ actor.Dispatcher) {
	m.mu.Lock()
	m.invoker = invoker
	if m.system.len()+m.user.len() == 0 {
		m.mu.Unlock()
		return
	}
	m.schedule()
}

// Start is called by the actor runtime at the end of the spawn. There is nothing left to do.
func (m *Mailbox) Start() {}

// UserMessageCount is the number of messages waiting (any goroutine).
func (m *Mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.user.len()
}

// Suspended reports whether the actor failed and its supervisor has not decided yet. On the loop.
func (m *Mailbox) Suspended() bool { return m.suspended }

// Fail escalates a failure that happened outside of Receive, such as a panic in a callback, as if Receive had
// panicked: the actor is suspended at once and its supervisor decides. On the loop.
func (m *Mailbox) Fail(reason any) {
	m.fail(reason, nil, nil)
}

// Run calls fn, which came to the loop by Post, on behalf of the actor: a panic in it is escalated like one in Receive. It runs
// also while the actor is suspended or has ended: fn is the one that can release what it brings. On the loop.
func (m *Mailbox) Run(fn func()) {
	defer func() {
		if reason := recover(); reason != nil {
			stack := debug.Stack()
			m.loop.count.Panics++
			if !m.fail(reason, nil, stack) {
				m.loop.panicked(reason, stack)
			}
		}
	}()
	fn()
}

// fail reports false when nobody is there to decide because the actor has ended.
func (m *Mailbox) fail(reason, message any, stack []byte) bool {
	if m.invoker == nil {
		return false
	}
	if ctx, ok := m.invoker.(actor.Context); ok {
		if _, alive := ctx.ActorSystem().ProcessRegistry.Get(ctx.Self()); !alive {
			return false
		}
	}
	if m.loop.opt.Escalated != nil {
		if stack == nil {
			stack = debug.Stack()
		}
		m.loop.opt.Escalated(reason, stack)
	}
	// The runtime posts SuspendMailbox to us; until that is handled a callback must not slip through.
	m.suspended = true
	m.invoker.EscalateFailure(reason, message)
	return true
}

// run handles what is queued. Called by the loop only.
func (m *Mailbox) run() {
	m.loop.running = m
	left := mailboxRun
	if m.loop.sim != nil {
		left = 1
	}
	for left > 0 {
		left = m.work(left)
	}
	m.loop.running = nil
}

// work handles up to left messages and returns how many may still follow: not 0 only after a panic, from which the
// mailbox goes on with the next message as far as it is not suspended.
func (m *Mailbox) work(left int) (rest int) {
	var message any
	defer func() {
		if reason := recover(); reason != nil {
			rest = left
			m.loop.count.Panics++
			stack := debug.Stack()
			if !m.fail(reason, message, stack) {
				m.loop.panicked(reason, stack)
			}
			if rest == 0 {
				m.requeue()
			}
		}
	}()
	for left > 0 {
		var system, ok bool
		if message, system, ok = m.pop(); !ok {
			return 0
		}
		left--
		if !system {
			m.invoker.InvokeUserMessage(message)
			continue
		}
		switch message.(type) {
		case *actor.SuspendMailbox:
			m.suspended = true
		case *actor.ResumeMailbox:
			m.suspended = false
			m.loop.unmask(m)
		default:
			m.invoker.InvokeSystemMessage(message)
		}
	}
	m.requeue()
	return 0
}

// pop takes the next message; when there is none to handle now the mailbox leaves the loop's queue.
func (m *Mailbox) pop() (message any, system, ok bool) {
	m.mu.Lock()
	switch {
	case m.system.len() > 0:
		message, system, ok = m.system.pop(), true, true
	case !m.suspended && m.user.len() > 0:
		message, ok = m.user.pop(), true
	default:
		m.queued = false
	}
	m.mu.Unlock()
	return message, system, ok
}

// requeue goes to the end of the loop's queue if something is left to handle.
func (m *Mailbox) requeue() {
	m.mu.Lock()
	m.queued = false
	if m.system.len() == 0 && (m.suspended || m.user.len() == 0) {
		m.mu.Unlock()
		return
	}
	m.schedule()
}

// messages is a FIFO queue on one slice, which is kept while it fits the traffic.
type messages struct {
	buf   []any
	head  uint32
	slack uint32 // times in a row the queue ran empty having used less than a quarter of buf
}

const (
	keepMessages = 64 // a queue of this capacity is never given back
	slackLimit   = 32
)

func (q *messages) len() int { return len(q.buf) - int(q.head) }

func (q *messages) push(message any) {
	if len(q.buf) == cap(q.buf) && int(q.head) > len(q.buf)/2 {
		n := copy(q.buf, q.buf[q.head:])
		clear(q.buf[n:])
		q.buf, q.head = q.buf[:n], 0
	}
	q.buf = append(q.buf, message)
}

func (q *messages) pop() any {
	message := q.buf[q.head]
	q.buf[q.head] = nil
	q.head++
	if int(q.head) < len(q.buf) {
		return message
	}
	used := len(q.buf)
	q.buf, q.head = q.buf[:0], 0
	if cap(q.buf) > keepMessages {
		q.slack++
		if used >= cap(q.buf)/4 {
			q.slack = 0
		} else if q.slack >= slackLimit {
			q.buf, q.slack = nil, 0
		}
	}
	return message
}
