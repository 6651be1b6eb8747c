package eventloop

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// recorder is an invoker that notes what it is given and panics on request.
type recorder struct {
	mb        *Mailbox
	got       []string
	failures  []string
	onMessage func(string)
}

func (r *recorder) InvokeSystemMessage(m any) { r.got = append(r.got, fmt.Sprintf("system %v", m)) }

func (r *recorder) InvokeUserMessage(m any) {
	r.got = append(r.got, m.(string))
	if m == "boom" {
		panic("boom")
	}
	if r.onMessage != nil {
		r.onMessage(m.(string))
	}
}

func (r *recorder) EscalateFailure(reason, message any) {
	r.failures = append(r.failures, fmt.Sprint(reason, "/", message))
	r.mb.PostSystemMessage(&actor.SuspendMailbox{})
}

// idleLoop is a loop that no goroutine runs: the test drains it.
func idleLoop() *loop {
	g := &Group{}
	l := newLoop(g, 0)
	l.poll = newPortable(l)
	return l
}

func newRecorder(l *loop) *recorder {
	r := &recorder{mb: l.NewMailbox()}
	r.mb.RegisterHandlers(r, l)
	return r
}

func (r *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(r.got, want) {
		t.Fatalf("got %q, want %q", r.got, want)
	}
	r.got = nil
}

func TestMailboxSystemMessagesFirst(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	r.mb.PostUserMessage("a")
	r.mb.PostUserMessage("b")
	r.mb.PostSystemMessage("x")
	r.onMessage = func(m string) {
		if m == "a" {
			r.mb.PostSystemMessage("y")
		}
	}
	l.drain()
	r.want(t, "system x", "a", "system y", "b")
}

func TestMailboxBeforeRegisterHandlers(t *testing.T) {
	l := idleLoop()
	r := &recorder{mb: l.NewMailbox()}
	r.mb.PostUserMessage("early")
	l.drain()
	r.mb.RegisterHandlers(r, l)
	l.drain()
	r.want(t, "early")
}

func TestMailboxSuspension(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	r.mb.PostSystemMessage(&actor.SuspendMailbox{})
	r.mb.PostUserMessage("a")
	l.drain()
	r.want(t)
	r.mb.PostSystemMessage("x")
	l.drain()
	r.want(t, "system x")
	if !r.mb.Suspended() || r.mb.UserMessageCount() != 1 {
		t.Fatalf("suspended %v with %d messages", r.mb.Suspended(), r.mb.UserMessageCount())
	}
	r.mb.PostSystemMessage(&actor.ResumeMailbox{})
	l.drain()
	r.want(t, "a")
}

func TestMailboxPanicKeepsTheRest(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	for _, m := range []string{"a", "boom", "b", "c"} {
		r.mb.PostUserMessage(m)
	}
	l.drain()
	r.want(t, "a", "boom")
	if !reflect.DeepEqual(r.failures, []string{"boom/boom"}) {
		t.Fatalf("failures %q", r.failures)
	}
	r.mb.PostSystemMessage(&actor.ResumeMailbox{})
	l.drain()
	r.want(t, "b", "c")
}

// A supervisor that is told of a failure in a callback must find the actor as after a panic in Receive.
func TestMailboxFailSuspendsAtOnce(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	r.mb.PostUserMessage("a")
	r.mb.Fail("bad callback")
	if !r.mb.Suspended() || len(r.failures) != 1 {
		t.Fatalf("suspended %v, failures %q", r.mb.Suspended(), r.failures)
	}
	l.drain()
	r.want(t)
	r.mb.PostSystemMessage(&actor.ResumeMailbox{})
	l.drain()
	r.want(t, "a")
}

// An actor that keeps sending to itself must not keep the loop.
func TestMailboxYieldsToOthers(t *testing.T) {
	l := idleLoop()
	busy, other := newRecorder(l), newRecorder(l)
	left := 3 * mailboxRun
	turns := 0
	busy.onMessage = func(string) {
		if left--; left > 0 {
			busy.mb.PostUserMessage("again")
		}
	}
	other.onMessage = func(string) { turns = left }
	busy.mb.PostUserMessage("again")
	other.mb.PostUserMessage("me")
	l.drain()
	if turns != 2*mailboxRun {
		t.Fatalf("the other actor ran with %d messages left, want %d", turns, 2*mailboxRun)
	}
	if left != 0 {
		t.Fatalf("%d messages were never handled", left)
	}
}

func TestMailboxGivesLargeQueuesBack(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	for range 10000 {
		r.mb.PostUserMessage("burst")
	}
	l.drain()
	if cap(r.mb.user.buf) < 10000 {
		t.Fatal("the burst did not need the queue")
	}
	for range slackLimit + 1 {
		r.mb.PostUserMessage("calm")
		l.drain()
	}
	if c := cap(r.mb.user.buf); c > keepMessages {
		t.Fatalf("the queue still has room for %d", c)
	}
}

func TestMailboxKeepsOrderWhileItGrowsAndShrinks(t *testing.T) {
	l := idleLoop()
	r := newRecorder(l)
	next, want := 0, []string(nil)
	r.onMessage = func(string) {
		for range 2 { // grows while it is being emptied
			if next < 5000 {
				r.mb.PostUserMessage(fmt.Sprint(next))
				next++
			}
		}
	}
	r.mb.PostUserMessage("start")
	l.drain()
	for i := range 5000 {
		want = append(want, fmt.Sprint(i))
	}
	r.want(t, append([]string{"start"}, want...)...)
}

func TestMailboxNoAllocationPerMessage(t *testing.T) {
	l := idleLoop()
	n := 0
	mb := l.NewMailbox()
	mb.RegisterHandlers(counter{&n}, l)
	var message any = &struct{}{}
	if a := testing.AllocsPerRun(1000, func() {
		for range 3 {
			mb.PostUserMessage(message)
			mb.PostSystemMessage(message)
		}
		l.drain()
	}); a != 0 {
		t.Fatalf("%v allocations per run", a)
	}
	if n != 6*1001 {
		t.Fatalf("%d messages handled", n)
	}
}

type counter struct{ n *int }

func (c counter) InvokeSystemMessage(any)  { *c.n++ }
func (c counter) InvokeUserMessage(any)    { *c.n++ }
func (c counter) EscalateFailure(_, _ any) {}
