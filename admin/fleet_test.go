package admin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/rs/zerolog"

	"fencepost/cluster"
)

// fleetTest runs a test with a fleet of three.
func fleetTest(t *testing.T, test func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember)) {
	t.Helper()
	inProcess(t, "", func(t *testing.T, p *process) {
		f, b, c, stop := inFleet(p)
		test(t, p, b, f, c)
		stop()
	})
}

// The script has every command and SHOW of a fleet; "heard" is what the members were asked for and what the lanes of b were.
func TestFleetScript(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember) {
		sessions, silent := map[string]*session{"ops": p.session("ops"), "grafana": p.session("grafana")}, false
		datadriven.RunTest(t, "testdata/fleet.txt", func(t *testing.T, d *datadriven.TestData) string {
			user := "ops"
			d.MaybeScanArgs(t, "user", &user)
			switch d.Cmd {
			case "run":
				f.set(func(f *fakeFleet) { f.torn = silent || strings.Contains(d.Input, "SHOW") })
				return sessions[user].query(d.Input)
			case "heard":
				return f.heard() + "\n--\n" + strings.Join(b.lanes[1].heard(), "\n") + "\n"
			case "bad-settings": // of one member
				b.reload = func() error { return errBadFile }
			case "silent": // is c, from now on
				silent = true
				f.fall(true)
			case "ended":
				p.mu.Lock()
				defer p.mu.Unlock()
				return fmt.Sprintln(p.ended)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

func paused(t *testing.T, p *process) string {
	t.Helper()
	s := p.session("ops")
	return fmt.Sprint(column(t, s.query("SHOW STATE"), "value")[1], column(t, s.query("SHOW DATABASES"), "paused"))
}

// A PAUSE FLEET that does not come to an end at one member is ended at all of them, at the latest after its time.
func TestPauseFleetIsWholeOrUndone(t *testing.T) {
	const nobody = "no[0 0 0]"
	for name, c := range map[string]struct {
		spoil func(b *process, c *fakeMember)
		want  string
		took  time.Duration
	}{
		"a member fails": {func(_ *process, c *fakeMember) {
			c.script = func(verb string, _ []string) ([][]string, string) {
				return nil, map[string]string{statementVerb: "cannot"}[verb]
			}
		}, "  a 10.0.1.1:7946: ok\nb 10.0.1.2:7946: ok\nc 10.0.1.3:7946: cannot\n", 0},
		"a member does not answer": {func(_ *process, c *fakeMember) { c.mute = func(verb string) bool { return verb == statementVerb } },
			"c 10.0.1.3:7946: no answer in time\n", pauseLimit + returnLimit},
		"transactions go on": {func(b *process, _ *fakeMember) { b.lanes[1].set(func(l *fakeLanes) { l.busy = 1 }) },
			"b 10.0.1.2:7946: transactions did not end in time\n", pauseLimit},
		"a loop is stuck": {func(b *process, _ *fakeMember) { b.lanes[1].set(func(l *fakeLanes) { l.mute = true }) },
			"b 10.0.1.2:7946: no answer in time from event loop 1\n", answerLimit},
	} {
		t.Run(name, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, m *fakeMember) {
				c.spoil(b, m)
				began := time.Now()
				got := p.session("ops").query("PAUSE FLEET")
				if took := time.Since(began).Truncate(time.Second); !strings.HasPrefix(got, "ERROR 55000 PAUSE failed on 1 of 3 members\n") || !strings.Contains(got, c.want) || !strings.Contains(got, "\n  It was undone") ||
					took != c.took {
					t.Errorf("after %v: %s", took, got)
				}
				b.lanes[1].set(func(l *fakeLanes) { l.mute = false })
				if at := paused(t, p); at != nobody {
					t.Errorf("a is paused: %s", at)
				}
				if at := paused(t, b); at != nobody {
					t.Errorf("b is paused: %s", at)
				}
				if got := f.heard(); got != "CONSOLE PAUSE\nUNDO" {
					t.Errorf("members heard %s", got)
				}
			})
		})
	}
}

// What was paused before, by whomever, stays paused when a PAUSE FLEET is undone.
func TestUndoLeavesOtherPauses(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember) {
		b.session("ops").query("PAUSE app")
		c.script = func(verb string, _ []string) ([][]string, string) { return nil, "cannot" }
		if got := p.session("ops").query("PAUSE app FLEET"); !strings.HasPrefix(got, "ERROR") || !strings.Contains(got, stillPaused) {
			t.Error(got)
		}
		if at := paused(t, b); at != "no[1 0 0]" {
			t.Errorf("b: %s", at)
		}
		if at := paused(t, p); at != "no[0 0 0]" {
			t.Errorf("a: %s", at)
		}
		if !strings.Contains(p.log.String(), "could not be undone at every member") {
			t.Errorf("not logged that c does not undo: %s", p.log.String())
		}
	})
}

func TestPauseFleetIsInterrupted(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember) {
		b.lanes[0].set(func(l *fakeLanes) { l.busy = 1 })
		s := p.session("ops")
		s.send("PAUSE FLEET")
		time.Sleep(time.Second)
		p.system.Root.Send(p.console, &Interrupt{From: s.pid})
		if got := s.answer(); got != "ERROR 57014 canceling statement due to user request\n" {
			t.Error(got)
		}
		for _, of := range []*process{p, b} {
			if at := paused(t, of); at != "no[0 0 0]" {
				t.Error(at)
			}
		}
	})
}

// order1 gives a console an operation and returns its answer.
func order1(p *process, limit time.Duration, verb string, args ...string) *cluster.OperationDone {
	f := &fakeFleet{waits: map[uint64]chan *cluster.OperationDone{7: make(chan *cluster.OperationDone, 1)}}
	pid := p.spawn(f)
	defer p.stop(pid)
	p.system.Root.Send(p.console, &cluster.Operation{ID: 7, Verb: verb, Args: args, From: "x", Deadline: time.Now().Add(limit), Reply: pid})
	return <-f.waits[7]
}

// Other members may give a few commands, one at a time, and nothing else.
func TestWhatMembersMayAsk(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		for _, text := range []string{"SHUTDOWN", "DRAIN", "KILL_CLIENT 1", "SHOW STATE", "SET x = 1", "SWITCHOVER main", "WAIT_CLOSE", "PAUSE FLEET",
			"RELOAD; SHUTDOWN", "RELOAD; RELOAD", "", ";", "'", "PAUSE app FLEET"} {
			if done := order1(p, time.Minute, statementVerb, text, "o"); !strings.HasPrefix(done.Err, "invalid command") || done.ID != 7 {
				t.Errorf("%q: %+v", text, done)
			}
		}
		for _, op := range [][]string{{"SHUTDOWN"}, {statementVerb}, {statementVerb, "RELOAD"}, {undoVerb}, {holdVerb, "main", "o"}, {releaseVerb, "main"},
			{holdVerb, "main", "o", "-5", ""}, {holdVerb, "main", "o", "99999999", ""}, {holdVerb, "main", "o", "x", ""}} {
			if done := order1(p, time.Minute, op[0], op[1:]...); done.Err != errUnknownOperation.Message {
				t.Errorf("%q: %+v", op, done)
			}
		}
		if len(p.ended) > 0 || len(p.lanes[0].heard()) > 0 || p.shards[0].held() {
			t.Error("something was done")
		}
		if done := order1(p, time.Minute, statementVerb, `RECONNECT "app"`, "o"); done.Err != "" || strings.Join(p.lanes[0].heard(), ", ") != `reconnect "app"` {
			t.Errorf("%+v", done)
		}
		if got := p.log.String(); !strings.Contains(got, `"user":"member x","command":"RECONNECT \"app\""`) {
			t.Error(got)
		}
		p.reload = func() error { panic("broken") }
		if done := order1(p, time.Minute, statementVerb, "RELOAD", "o"); !strings.HasPrefix(done.Err, "RELOAD failed") {
			t.Errorf("%+v", done)
		}
	})
}

// An order that arrives behind its withdrawal begins nothing, and one whose time is over undoes itself without being told.
func TestOrdersThatComeLate(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		order1(p, time.Minute, undoVerb, "o1")
		order1(p, time.Minute, releaseVerb, "main", "o2")
		for _, op := range [][]string{{statementVerb, "PAUSE", "o1"}, {holdVerb, "main", "o2", "2000", ""}} {
			if done := order1(p, time.Minute, op[0], op[1:]...); done.Err != errWithdrawn.Message {
				t.Errorf("%q: %+v", op, done)
			}
		}
		p.lanes[0].set(func(l *fakeLanes) { l.busy = 1 })
		began := time.Now()
		if done := order1(p, 10*time.Second, statementVerb, "PAUSE", "o3"); done.Err != "transactions did not end in time" || time.Since(began) != 9*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), done)
		}
		if at := paused(t, p); at != "no[0 0 0]" || p.shards[0].held() {
			t.Error(at)
		}
	})
}

func TestOrdersAreForgotten(t *testing.T) {
	var orders []string
	for i := range 3 * maxOrders {
		orders = remember(remember(orders, fmt.Sprint(i)), fmt.Sprint(i))
	}
	if len(orders) != maxOrders || orders[maxOrders-1] != fmt.Sprint(3*maxOrders-1) || orders[0] != fmt.Sprint(2*maxOrders) {
		t.Error(orders)
	}
}

// A fleet's actor that does not answer costs each command its time limit and nothing else.
func TestFleetThatDoesNotAnswer(t *testing.T) {
	for query, limit := range map[string]time.Duration{"SHOW FLEET": answerLimit, "SHOW EVIDENCE": answerLimit, "RELOAD FLEET": memberLimit + returnLimit,
		"PAUSE FLEET": answerLimit, "SWITCHOVER main": answerLimit} {
		t.Run(query, func(t *testing.T) {
			fleetTest(t, func(t *testing.T, p, b *process, f *fakeFleet, c *fakeMember) {
				f.set(func(f *fakeFleet) { f.mute = true })
				began := time.Now()
				if got := p.session("ops").query(query); !strings.HasPrefix(got, "ERROR 55000 ") || !strings.Contains(got, errSilentFleet.Message) {
					t.Error(got)
				}
				if took := time.Since(began); took != limit {
					t.Errorf("answered after %v, not %v", took, limit)
				}
			})
		})
	}
}

// Without a fleet the same commands are for this process alone.
func TestWithoutAFleet(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		s := p.session("ops")
		for query, want := range map[string]string{
			"PAUSE FLEET": "NOTICE 00000 no fleet is configured: PAUSE applies to this process only\nmember text, address text, result text\nNULL|NULL|ok\n= PAUSE\n",
			"RESUME nosuch FLEET": "NOTICE 00000 no fleet is configured: RESUME applies to this process only\nERROR 55000 RESUME failed on 1 of 1 members\n" +
				"  : database nosuch is not paused\n  Members that answered ok have carried it out.\n",
		} {
			if got := s.query(query); got != want {
				t.Errorf("%s: %s", query, got)
			}
		}
		if got := p.session("grafana").query("SHOW FLEET"); len(strings.Split(strings.TrimSpace(got), "\n")) != 2 {
			t.Error(got)
		}
		if got := p.session("grafana").query("SHOW EVIDENCE"); len(strings.Split(strings.TrimSpace(got), "\n")) != 2 {
			t.Error(got)
		}
	})
}

func TestFleetMetrics(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, _ *process, f *fakeFleet, _ *fakeMember) {
		if got := scrape(t, p); !strings.Contains(got, "\nfencepost_fleet_size 3\n") || !strings.Contains(got, "\nfencepost_fleet_answered 1\n") {
			t.Error(got)
		}
		f.set(func(f *fakeFleet) { f.mute = true })
		began := time.Now()
		if got := scrape(t, p); strings.Contains(got, "\nfencepost_fleet_size") || !strings.Contains(got, "\nfencepost_fleet_answered 0\n") ||
			!strings.Contains(got, "\nfencepost_shards_answered 1\n") {
			t.Error(got)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		p.fleet = nil
		if got := scrape(t, p); strings.Contains(got, "fencepost_fleet") {
			t.Error(got)
		}
		synctest.Wait()
	})
}

func scrape(t *testing.T, p *process) string {
	t.Helper()
	_, body := get(NewServer(p, zerolog.Nop()).handler(false), "/metrics")
	return body
}

func TestShowPeers(t *testing.T) {
	inProcess(t, "peer_id = 1\n[peers.9]\naddr = \"[2001:db8::9]:6432\"\n[peers.2]\naddr = \"pooler-2:6433\"\n#", func(t *testing.T, p *process) {
		s := p.session("grafana")
		want := "peer_id int4, host text, port int4, pool_size int4\n2|pooler-2|6433|NULL\n9|2001:db8::9|6432|NULL\n= SHOW\n"
		if got := s.query("SHOW PEERS"); got != want {
			t.Error(got)
		}
		if got := s.query("SHOW LISTS"); !strings.Contains(got, "\npeers|2\n") {
			t.Error(got)
		}
	})
}

// What is wrong with the fleet is bounded: the latest problems, which come first.
func TestShowFleetIsBounded(t *testing.T) {
	fleetTest(t, func(t *testing.T, p, _ *process, f *fakeFleet, _ *fakeMember) {
		f.set(func(f *fakeFleet) {
			f.torn, f.description.Problems = true, nil
			for i := range 3 * maxProblems {
				f.description.Problems = append(f.description.Problems, cluster.ProblemRow{What: fmt.Sprintf("problem %d.", i), Count: 1})
			}
			f.description.Ready, f.description.Open = false, false
		})
		got := column(t, p.session("grafana").query("SHOW FLEET"), "problems")[0]
		if !strings.Contains(got, "problem 0.") || !strings.Contains(got, fmt.Sprintf("problem %d.", maxProblems-1)) || strings.Contains(got, fmt.Sprintf("problem %d.", maxProblems)) ||
			!strings.HasPrefix(got, "it is not listening on its fleet address; it waits for the others before it grants writes; 2 members") {
			t.Error(got)
		}
	})
}
