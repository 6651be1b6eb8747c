package admin

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

const oldPrimary, newPrimary = "10.0.0.1:5433", "10.0.0.2:5433"

// operator is a session that keeps all that it is told, and when.
type operator struct {
	p   *process
	pid *actor.PID

	mu   sync.Mutex
	told []string
}

func (o *operator) Receive(ctx actor.Context) {
	if m, ok := ctx.Message().(*Answer); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.told = append(o.told, inWords(o.p.t, m.Bytes))
	}
}

// switchOver gives the command; its answers are read when nothing moves.
func (p *process) switchOver(text string) *operator {
	o := &operator{p: p}
	o.pid = p.spawn(o)
	p.system.Root.Send(p.console, &Command{Req: 1, From: o.pid, Text: text, User: "ops", Admin: true})
	return o
}

func (o *operator) all() string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.told, "")
}

// last is what it was told last.
func (o *operator) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.told) == 0 {
		return ""
	}
	return o.told[len(o.told)-1]
}

// atRest: no client of these processes holds a connection to the primary.
func atRest(all ...*process) {
	for _, p := range all {
		for _, l := range p.lanes {
			l.lease(0)
		}
	}
}

const goNow = "NOTICE 00000 writes of shard main are paused at every member: switch over from 10.0.0.1:5433 now\n"

// scripted is a member that answers HOLD as its test says: held or not, from, elected, busy, ms.
func scripted(row *[]string) func(string, []string) ([][]string, string) {
	return func(verb string, _ []string) ([][]string, string) {
		if verb == holdVerb {
			return [][]string{*row}, ""
		}
		return nil, ""
	}
}

func TestSwitchover(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember) {
		row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
		c.script = scripted(&row)
		atRest(p)
		began := time.Now()
		o := p.switchOver("SWITCHOVER main")
		time.Sleep(5 * time.Second) // transactions go on at b
		if got := o.all(); got != "" || !p.shards[0].held() || !b.shards[0].held() {
			t.Fatalf("told before b is at rest: %s", got)
		}
		atRest(b)
		time.Sleep(2 * firstBeats)
		if got := o.all(); got != goNow {
			t.Fatalf("told %q", got)
		}
		time.Sleep(20 * time.Second) // a promotion that takes its time
		if !p.shards[0].held() || !b.shards[0].held() {
			t.Fatal("writes go on before there is another primary")
		}
		p.shards[0].elect(newPrimary)
		time.Sleep(time.Second)
		b.shards[0].elect(newPrimary)
		time.Sleep(time.Second)
		if got := o.all(); got != goNow {
			t.Fatalf("done before c has it: %s", got)
		}
		f.set(func(*fakeFleet) { row = []string{"no", oldPrimary, newPrimary, "0", "26000"} })
		time.Sleep(2 * heartbeat)
		want := goNow + "member text, paused_ms int8, from text, to text\na|" + fmt.Sprint((25*time.Second + 2*firstBeats).Milliseconds()) + "|10.0.0.1:5433|10.0.0.2:5433\nb|" +
			fmt.Sprint((26*time.Second + 2*firstBeats).Milliseconds()) + "|10.0.0.1:5433|10.0.0.2:5433\nc|26000|10.0.0.1:5433|10.0.0.2:5433\n= SWITCHOVER\n"
		if got := o.all(); got != want {
			t.Errorf("after %v: %s", time.Since(began), got)
		}
		if got := f.heard(); got != "HOLD main" {
			t.Errorf("members heard %s", got)
		}
	})
}

func TestSwitchoverWithoutAFleet(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		atRest(p)
		o := p.switchOver("SWITCHOVER main 60")
		if got := o.all(); got != goNow {
			t.Fatal(got)
		}
		time.Sleep(41 * time.Second)
		p.shards[0].elect(newPrimary)
		time.Sleep(heartbeat + firstBeats)
		if got := strings.TrimPrefix(o.all(), goNow); got != "member text, paused_ms int8, from text, to text\nNULL|41000|10.0.0.1:5433|10.0.0.2:5433\n= SWITCHOVER\n" {
			t.Error(got)
		}
	})
}

// On any doubt writes go on everywhere, and the operator is told why.
func TestSwitchoverIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p, b *process, c *fakeMember, row *[]string)
		want  string // the detail, and in it
		after time.Duration
	}{
		"a member fails": {func(_, _ *process, c *fakeMember, _ *[]string) {
			c.script = func(string, []string) ([][]string, string) { return nil, "no such shard: main" }
		}, "member c: no such shard: main", 0},
		"a member does not answer": {func(_, _ *process, c *fakeMember, _ *[]string) { c.mute = func(verb string) bool { return true } },
			"member c: no answer in time", beatLimit + holdFor},
		"a member answers something else": {func(_, _ *process, _ *fakeMember, row *[]string) { *row = []string{"yes"} }, "member c: its answer is unreadable", 0},
		"a shard's actor does not answer": {func(_, b *process, _ *fakeMember, _ *[]string) { b.shards[0].set(func(s *fakeShard) { s.mute = true }) },
			"member b: no answer in time from the actor of shard main", beatLimit - beatLimit/4},
		"a loop does not answer": {func(_, b *process, _ *fakeMember, _ *[]string) { b.lanes[0].set(func(l *fakeLanes) { l.mute = true }) },
			"member b: no answer in time from event loop 0", beatLimit - beatLimit/4},
		"there is no primary": {func(p, _ *process, _ *fakeMember, _ *[]string) { p.shards[0].elect("") }, "member a: no primary is known", 0},
		"members have different primaries": {func(_, b *process, _ *fakeMember, _ *[]string) { b.shards[0].elect("10.0.0.9:5433") },
			"member b: its primary is 10.0.0.9:5433, that of others 10.0.0.1:5433", 0},
		"a member's writes go on": {func(_, _ *process, _ *fakeMember, row *[]string) { (*row)[0] = "no" }, "member c: its writes were no longer paused", 0},
		"a shard without roles": {func(_, b *process, _ *fakeMember, _ *[]string) {
			b.shards[0].set(func(s *fakeShard) { s.row.Static = true })
		},
			"member b: shard main has no roles: Its only host has the role any: there is no second host to switch to.", 0},
		"another switchover": {func(_, b *process, _ *fakeMember, _ *[]string) {
			order1(b, time.Minute, holdVerb, "main", "other", "1000", "")
		},
			"member b: another switchover of the shard is under way", 0},
		"transactions go on": {func(_, b *process, _ *fakeMember, _ *[]string) { b.lanes[1].lease(2) },
			"transactions did not end in time\na 10.0.1.1:7946: no primary other than 10.0.0.1:5433 is known\nb 10.0.1.2:7946: 2 server connections to 10.0.0.1:5433 are still in use\n" +
				"c 10.0.1.3:7946: no primary other than 10.0.0.1:5433 is known", 30 * time.Second},
		"nobody is promoted": {func(_, _ *process, _ *fakeMember, _ *[]string) {}, "no other primary was elected in time\na 10.0.1.1:7946: no primary other than 10.0.0.1:5433 is known\n" +
			"b 10.0.1.2:7946: no primary other than 10.0.0.1:5433 is known\nc 10.0.1.3:7946: no primary other than 10.0.0.1:5433 is known", 30 * time.Second},
		"members do not agree whom": {func(p, _ *process, _ *fakeMember, row *[]string) {
			*row = []string{"no", oldPrimary, "10.0.0.9:5433", "0", "5"}
			p.shards[0].set(func(s *fakeShard) {
				time.AfterFunc(time.Second, func() { s.elect(newPrimary) })
			})
		}, "no other primary was elected in time\na 10.0.1.1:7946: 10.0.0.2:5433 is the primary\nb", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
				atRest(p, b)
				row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
				m.script = scripted(&row)
				c.spoil(p, b, m, &row)
				began := time.Now()
				o := p.switchOver("SWITCHOVER main 30")
				for !strings.HasPrefix(o.last(), "ERROR") {
					time.Sleep(10 * time.Millisecond)
					if time.Since(began) > time.Minute {
						t.Fatalf("no end: %s", o.all())
					}
				}
				took := time.Since(began)
				if got := o.last(); !strings.HasPrefix(got, "ERROR 55000 SWITCHOVER of shard main was given up, writes resume\n  "+c.want) {
					t.Error(got)
				}
				if took > c.after+20*time.Millisecond || took < c.after-heartbeat {
					t.Errorf("after %v, not %v", took, c.after)
				}
				b.shards[0].set(func(s *fakeShard) { s.mute = false })
				if p.shards[0].held() {
					t.Error("writes wait at a")
				}
				if b.shards[0].held() && name != "another switchover" && name != "a shard's actor does not answer" {
					t.Error("writes wait at b")
				}
				if got := f.heard(); got != "HOLD main\nRELEASE main" {
					t.Errorf("members heard %s", got)
				}
			})
		})
	}
}

// The operator's cancel, leaving, and the end of the process end it as well.
func TestSwitchoverEndsWithItsSession(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *process, o *operator)
		want string
	}{
		"cancel": {func(p *process, o *operator) { p.system.Root.Send(p.console, &Interrupt{From: o.pid}) },
			goNow + "ERROR 57014 canceling statement due to user request\n  SWITCHOVER of shard main was given up, writes resume\n"},
		"leaving": {func(p *process, o *operator) { p.stop(o.pid) }, goNow},
		"the end of the process": {func(p *process, o *operator) { p.stop(p.console) },
			goNow + "FATAL 57P01 server shutting down\n  SWITCHOVER of shard main was given up, writes resume\n  Reconnect.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
				atRest(p, b)
				row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
				m.script = scripted(&row)
				o := p.switchOver("SWITCHOVER main")
				time.Sleep(3 * time.Second)
				c.end(p, o)
				time.Sleep(heartbeat + firstBeats)
				if p.shards[0].held() || b.shards[0].held() {
					t.Error("writes wait")
				}
				time.Sleep(holdFor) // a console that is gone answers nobody
				if got := o.all(); got != c.want {
					t.Error(got)
				}
				time.Sleep(5 * time.Second)
				if got := f.heard(); got != "HOLD main\nRELEASE main" {
					t.Errorf("members heard %s", got)
				}
			})
		})
	}
}

// Writes wait no longer than holdFor without a word of whoever began it.
func TestHoldEndsByItself(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
		row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
		m.script = scripted(&row)
		atRest(p, b)
		p.switchOver("SWITCHOVER main")
		time.Sleep(10 * time.Second)
		f.set(func(f *fakeFleet) { f.members[1].mute = func(string) bool { return true } }) // b is cut off
		time.Sleep(holdFor + heartbeat)
		if b.shards[0].held() || p.shards[0].held() {
			t.Error("writes wait")
		}
	})
}

// A member that comes to the fleet when the new primary is there does not begin another switchover from it.
func TestMemberThatComesLate(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
		row := []string{"yes", oldPrimary, oldPrimary, "0", "0"}
		m.script = scripted(&row)
		atRest(p, b)
		var late *fakeMember
		f.set(func(f *fakeFleet) { late, f.members = f.members[1], append(f.members[:1:1], f.members[2]) })
		o := p.switchOver("SWITCHOVER main")
		time.Sleep(time.Second)
		b.shards[0].elect(newPrimary)
		f.set(func(f *fakeFleet) { f.members = append(f.members[:1:1], late, f.members[1]) })
		time.Sleep(time.Second)
		if b.shards[0].held() {
			t.Fatal("the new primary's writes wait")
		}
		p.shards[0].elect(newPrimary)
		f.set(func(*fakeFleet) { row = []string{"no", oldPrimary, newPrimary, "0", "5"} })
		time.Sleep(time.Second)
		if got := o.all(); !strings.Contains(got, "\nb|NULL|10.0.0.1:5433|10.0.0.2:5433\nc|5|") {
			t.Error(got)
		}
	})
}

// A connection to another host, or of another shard, is nobody's write on the primary.
func TestLeases(t *testing.T) {
	rows := append(laneRows(0, time.Now()), laneRows(1, time.Now())...)
	rows[0].Backends[1].State, rows[0].Backends[1].Host = rows[0].Backends[0].State, newPrimary
	for _, c := range []struct {
		shard, host string
		want        int
	}{{"main", oldPrimary, 2}, {"main", newPrimary, 1}, {"reports", "/run/postgresql:5432", 0}, {"other", oldPrimary, 0}} {
		if got := leases(rows, c.shard, c.host); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	rows[0].Spec = nil
	leases(rows, "main", oldPrimary)
}
