package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
)

// The scripts hold every SHOW with its columns and types, and every other command with its answers and errors. A line of
// the input is a query; "run user=grafana" gives it as a user of stats_users.
func TestScripts(t *testing.T) {
	for _, name := range []string{"show", "commands", "drivers", "shards", "metrics"} {
		t.Run(name, func(t *testing.T) {
			inProcess(t, "", func(t *testing.T, p *process) {
				sessions := map[string]*session{"ops": p.session("ops"), "grafana": p.session("grafana")}
				datadriven.RunTest(t, "testdata/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string {
					user := "ops"
					d.MaybeScanArgs(t, "user", &user)
					switch d.Cmd {
					case "run":
						return sessions[user].query(d.Input)
					case "heard":
						return strings.Join(p.lanes[1].heard(), "\n") + "\n"
					case "scrape":
						return strings.Join(shardMetrics(t, p), "\n")
					case "forgotten":
						return fmt.Sprintln(p.shards[0].forgotten())
					case "draining":
						p.draining.Store(true)
					case "bad-settings":
						p.reload = func() error { return errBadFile }
					default:
						d.Fatalf(t, "unknown command %s", d.Cmd)
					}
					return ""
				})
			})
		})
	}
}

// Whatever needs a loop's answer ends with an error when the loop gives none; the rest of the console goes on.
func TestLoopThatDoesNotAnswer(t *testing.T) {
	const want = "no answer in time from event loop 1\n"
	for _, query := range []string{"SHOW POOLS", "SHOW CLIENTS", "SHOW SERVERS", "SHOW DATABASES", "SHOW STATS", "SHOW TOTALS", "SHOW LISTS",
		"SHOW USERS", "RECONNECT", "PAUSE", "PAUSE app", "KILL_CLIENT 99"} {
		t.Run(query, func(t *testing.T) {
			inProcess(t, "", func(t *testing.T, p *process) {
				p.lanes[1].set(func(l *fakeLanes) { l.mute = true })
				p.clients[1].mu.Lock()
				p.clients[1].mute = true
				p.clients[1].mu.Unlock()
				s, other := p.session("ops"), p.session("grafana")
				began := time.Now()
				s.send(query)
				if got := other.query("SHOW VERSION"); !strings.Contains(got, "Fencepost 0.1.0") {
					t.Errorf("another session got %s", got)
				}
				if got := s.answer(); !strings.Contains(got, want) {
					t.Errorf("answered %s", got)
				}
				if took := time.Since(began); took != answerLimit {
					t.Errorf("answered after %v, not %v", took, answerLimit)
				}
			})
		})
	}
}

func TestKillClientFoundWhereALoopAnswers(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.clients[1].mu.Lock()
		p.clients[1].mute = true
		p.clients[1].mu.Unlock()
		if got := p.session("ops").query("KILL_CLIENT 1"); got != "= KILL_CLIENT\n" {
			t.Error(got)
		}
	})
}

func TestPauseWaitsUntilQuiet(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[1].set(func(l *fakeLanes) { l.busy = 1 })
		s, other := p.session("ops"), p.session("ops")
		s.send("PAUSE app")
		time.Sleep(5 * time.Minute)
		if !s.waits() {
			t.Fatalf("PAUSE ended while a lane was busy: %s", s.answer())
		}
		if got := other.query("SHOW DATABASES"); !strings.Contains(got, "|1|0\n") {
			t.Errorf("not shown as paused: %s", got)
		}
		p.lanes[1].set(func(l *fakeLanes) { l.busy = 0 })
		time.Sleep(2 * pollInterval)
		if s.waits() || s.answer() != "= PAUSE\n" {
			t.Error("PAUSE did not end")
		}
	})
}

// A loop that is stuck keeps PAUSE waiting, it does not end it: the loop may still be at work.
func TestPauseOutlastsAStuckLoop(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[1].set(func(l *fakeLanes) { l.busy = 1 })
		s := p.session("ops")
		s.send("PAUSE")
		time.Sleep(time.Second)
		p.lanes[1].set(func(l *fakeLanes) { l.mute, l.busy = true, 0 })
		time.Sleep(time.Minute)
		if !s.waits() {
			t.Fatalf("ended: %s", s.answer())
		}
		p.lanes[1].set(func(l *fakeLanes) { l.mute = false })
		if got := s.answer(); got != "= PAUSE\n" {
			t.Error(got)
		}
	})
}

func TestPauseEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *process, s *session)
		want string
	}{
		"by RESUME": {func(p *process, _ *session) { p.session("ops").query("RESUME") }, "ERROR 55000 PAUSE was ended by RESUME\n"},
		"by a cancel": {func(p *process, s *session) {
			p.system.Root.Send(p.console, &Interrupt{From: s.pid})
		}, "ERROR 57014 canceling statement due to user request\n"},
		"with the process": {func(p *process, _ *session) { p.stop(p.console) }, "FATAL 57P01 server shutting down\n  Reconnect.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inProcess(t, "", func(t *testing.T, p *process) {
				p.lanes[0].set(func(l *fakeLanes) { l.busy = 1 })
				s := p.session("ops")
				s.send("PAUSE")
				time.Sleep(time.Second)
				p.lanes[0].heard()
				c.end(p, s)
				if got := s.answer(); got != c.want {
					t.Errorf("got %s", got)
				}
				if name == "with the process" {
					return
				}
				synctest.Wait()
				if heard := strings.Join(p.lanes[0].heard(), "\n"); !strings.Contains(heard, `resume ""`) {
					t.Errorf("loops heard %s", heard)
				}
				if got := p.session("ops").query("SHOW STATE"); !strings.Contains(got, "paused|no") {
					t.Error(got)
				}
			})
		})
	}
}

// A session that is gone leaves no goroutine that polls for ever, and its PAUSE in force.
func TestPauseOfASessionThatIsGone(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[0].set(func(l *fakeLanes) { l.busy = 1 })
		s := p.session("ops")
		s.send("PAUSE")
		time.Sleep(time.Second)
		p.stop(s.pid)
		time.Sleep(time.Second)
		p.lanes[0].heard()
		time.Sleep(time.Minute)
		if heard := p.lanes[0].heard(); len(heard) > 0 {
			t.Errorf("still asks %v", heard)
		}
		if got := p.session("ops").query("PAUSE"); got != "ERROR 55000 already suspended/paused\n" {
			t.Error(got)
		}
	})
}

func TestWaitClose(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[0].set(func(l *fakeLanes) { l.busy = 2 })
		s := p.session("ops")
		s.send("RECONNECT app; WAIT_CLOSE app")
		time.Sleep(time.Minute)
		if !s.waits() {
			t.Fatalf("ended: %s", s.answer())
		}
		p.lanes[0].set(func(l *fakeLanes) { l.busy = 0 })
		if got := s.answer(); got != "= RECONNECT\n= WAIT_CLOSE\n" {
			t.Error(got)
		}
		if got := strings.Join(p.lanes[0].heard(), ", "); got != `reconnect "app", quiet? reconnect "app"` {
			t.Error(got)
		}
	})
}

// Lanes hand RECONNECT on to each lane by message, so WAIT_CLOSE asks nobody before every loop has done what was queued.
func TestWaitCloseIsBehindReconnect(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		release := make(chan struct{})
		p.Loops()[1].Post(func() { <-release })
		s := p.session("ops")
		s.send("RECONNECT; WAIT_CLOSE")
		time.Sleep(time.Second)
		if got := strings.Join(p.lanes[0].heard(), ", "); got != `reconnect ""` {
			t.Errorf("heard %s", got)
		}
		close(release)
		if got := s.answer(); got != "= RECONNECT\n= WAIT_CLOSE\n" {
			t.Error(got)
		}
	})
}

// SHUTDOWN answers no earlier than the process ends; the waiting ones answer at once.
func TestShutdown(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		s := p.session("ops")
		if got := s.query("shutdown wait_for_clients; SHUTDOWN WAIT_FOR_SERVERS;"); got != "= SHUTDOWN\n= SHUTDOWN\n" {
			t.Error(got)
		}
		s.send("SHUTDOWN")
		time.Sleep(time.Hour)
		if !s.waits() {
			t.Errorf("SHUTDOWN answered %s", s.answer())
		}
		p.stop(p.console)
		s.answer()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.ended) != 3 || p.ended[0] != WaitForClients || p.ended[1] != WaitForServers || p.ended[2] != Immediate {
			t.Error(p.ended)
		}
	})
}

func TestReloadThatHangs(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		block := make(chan error)
		p.reload = func() error { return <-block }
		if got := p.session("ops").query("RELOAD"); !strings.Contains(got, "RELOAD has not finished yet") {
			t.Error(got)
		}
		block <- nil
	})
}

// A command that fails inside is answered, and the console goes on.
func TestPanicIsAnswered(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.reload = func() error { panic("broken") }
		s := p.session("ops")
		commands["test_panic"] = command{run: func(*execution, statement) error { panic("broken") }}
		defer delete(commands, "test_panic")
		if got := s.query("RELOAD"); !strings.Contains(got, "RELOAD failed") {
			t.Error(got)
		}
		if got := s.query("test_panic"); !strings.HasPrefix(got, "ERROR") && !strings.HasPrefix(got, "FATAL") || strings.Contains(got, "broken") {
			t.Error(got)
		}
		if got := s.query("SHOW VERSION"); !strings.Contains(got, "= SHOW") {
			t.Error(got)
		}
	})
}

// Averages cover one to two periods, and the tick takes a new stats_period when it is armed.
func TestAverages(t *testing.T) {
	inProcess(t, `#`, func(t *testing.T, p *process) {
		s := p.session("grafana")
		row := func() string {
			for line := range strings.Lines(s.query("SHOW STATS_AVERAGES")) {
				if strings.HasPrefix(line, "app|") {
					return strings.TrimSpace(line)
				}
			}
			t.Fatal("no row for app")
			return ""
		}
		more := func(n uint64) {
			p.lanes[0].set(func(l *fakeLanes) {
				st := &l.rows[0].Stats
				st.Transactions += n
				st.Queries += 2 * n
				st.Sent += 100 * n
				st.TransactionTime += time.Duration(n) * 4 * time.Millisecond
				st.QueryTime += time.Duration(n) * 3 * time.Millisecond
				st.WaitTime += time.Duration(n) * time.Millisecond
			})
		}
		time.Sleep(2*time.Minute + time.Second) // two samples: what was before the start is out of the window
		more(610)                               // within 61 s
		if got := row(); got != "app|0|10|20|0|1000|4000|1500|10000|0|0|0|0" {
			t.Errorf("after 61 s: %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := row(); got != "app|0|0|0|0|0|0|0|0|0|0|0|0" {
			t.Errorf("at rest: %s", got)
		}
		p.lanes[0].set(func(l *fakeLanes) { l.rows = nil })
		if got := row(); got != "app|0|0|0|0|0|0|0|0|0|0|0|0" {
			t.Errorf("counters went back: %s", got)
		}
	})
}

// A loop that does not answer costs the history a sample and nothing else; old ticks are dropped.
func TestSamplesGoOn(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[1].set(func(l *fakeLanes) { l.mute = true })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		p.lanes[1].set(func(l *fakeLanes) { l.mute = false })
		for range 50 {
			p.system.Root.Send(p.console, tick{gen: 1})
		}
		time.Sleep(10 * time.Minute)
		if got := p.session("grafana").query("SHOW TOTALS"); !strings.Contains(got, "avg_xact_count|0\n") {
			t.Errorf("%s", got)
		}
		if n := strings.Count(p.log.String(), "no sample"); n != 1 {
			t.Errorf("%d warnings: %s", n, p.log.String())
		}
	})
}

func TestShowConfigAndLoops(t *testing.T) {
	inProcess(t, "default_pool_size = 33\n#", func(t *testing.T, p *process) {
		s := p.session("grafana")
		lines := strings.Split(s.query("SHOW CONFIG"), "\n")
		if lines[0] != "key text, value text, default text, changeable text" || len(lines) != len(p.config.Rows())+3 {
			t.Error(lines)
		}
		for _, want := range []string{"default_pool_size|33|20|yes", "listen_port|6432|6432|no"} {
			if !slices.Contains(lines, want) {
				t.Errorf("no %s", want)
			}
		}
		lines = strings.Split(s.query("SHOW LOOPS"), "\n")
		if len(lines) != 5 || !strings.HasPrefix(lines[0], "loop int4, heartbeat_age_us int8, connections int8, ") ||
			!strings.HasPrefix(lines[1], "0|") || !strings.HasPrefix(lines[2], "1|") {
			t.Error(lines)
		}
	})
}

// Without a "*" section only what is in the settings exists. What was paused before a reload took it away can be resumed.
func TestUnknownDatabase(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		s := p.session("ops")
		s.query("PAUSE old")
		if got := s.query("SHOW DATABASES"); !strings.Contains(got, "old|10.0.0.1|5433|old|NULL|") {
			t.Error(got)
		}
		delete(p.config.Databases, "*")
		for _, verb := range []string{"PAUSE", "RESUME", "RECONNECT", "WAIT_CLOSE"} {
			if got := s.query(verb + " nosuch"); got != "ERROR 55000 no such database: nosuch\n" {
				t.Errorf("%s: %s", verb, got)
			}
		}
		if got := s.query("RESUME old; RESUME old"); got != "= RESUME\nERROR 55000 no such database: old\n" {
			t.Error(got)
		}
	})
}

// A restart of the actor forgets nothing that users rely on.
func TestPauseSurvivesARestart(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		s := p.session("ops")
		s.query("PAUSE app")
		p.system.Root.Send(p.console, &Interrupt{}) // no From: the actor fails
		synctest.Wait()
		if got := s.query("RESUME app"); got != "= RESUME\n" {
			t.Error(got)
		}
	})
}
