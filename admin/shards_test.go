package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
)

// column returns the values of one column of a result.
func column(t *testing.T, result, name string) (values []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(result), "\n")
	at := -1
	for i, c := range strings.Split(lines[0], ", ") {
		if word, _, _ := strings.Cut(c, " "); word == name {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("no column %s in %s", name, lines[0])
	}
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, "= ") {
			values = append(values, strings.Split(l, "|")[at])
		}
	}
	return values
}

// A shard whose actor does not answer has a row that says so; the other shards are shown, and what needs the actor fails.
func TestShardThatDoesNotAnswer(t *testing.T) {
	for query, want := range map[string]string{
		"SHOW SHARDS":      "main|NULL|NULL|NULL|NULL|NULL|NULL|NULL|1|NULL|NULL|" + noAnswer + "|NULL|NULL|NULL\nreports|healthy|",
		"SHOW REPLICATION": "main|" + strings.Repeat("NULL|", 15) + noAnswer + "\nreports|/run/postgresql:5432|",
		"SHOW ELECTIONS":   "NULL|main|NULL|NULL|NULL|NULL|NULL|" + noAnswer + "\n1999-12-31 22:00:00.000 UTC|reports|",
		"FORGET main":      "ERROR 55000 no answer in time from the actor of shard main\n",
	} {
		t.Run(query, func(t *testing.T) {
			inProcess(t, "", func(t *testing.T, p *process) {
				p.shards[0].set(func(s *fakeShard) { s.mute = true })
				began := time.Now()
				if got := p.session("ops").query(query); !strings.Contains(got, want) {
					t.Errorf("answered %s", got)
				}
				if took := time.Since(began); took != answerLimit {
					t.Errorf("answered after %v, not %v", took, answerLimit)
				}
			})
		})
	}
}

// A FORGET that was sent and is not answered is not said to be done.
func TestForgetThatIsNotAnswered(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.shards[0].set(func(s *fakeShard) { s.deaf = true })
		if got := p.session("ops").query("FORGET main"); !strings.HasPrefix(got, "ERROR 55000 no answer in time from the actor of shard main\n") {
			t.Error(got)
		}
	})
}

// A cancel ends the wait for a silent actor, and is not taken for its silence.
func TestCancelWhileAShardIsSilent(t *testing.T) {
	for _, query := range []string{"SHOW SHARDS", "SHOW REPLICATION", "SHOW ELECTIONS", "FORGET main", "SHOW POOLS"} {
		inProcess(t, "", func(t *testing.T, p *process) {
			p.shards[0].set(func(s *fakeShard) { s.mute = true })
			p.lanes[1].set(func(l *fakeLanes) { l.mute = true })
			s := p.session("ops")
			s.send(query)
			time.Sleep(time.Second)
			p.system.Root.Send(p.console, &Interrupt{From: s.pid})
			if got := s.answer(); !strings.HasSuffix(got, "ERROR 57014 canceling statement due to user request\n") || strings.Contains(got, noAnswer) {
				t.Errorf("%s: %s", query, got)
			}
		})
	}
}

// While a loop is stuck the shards are shown all the same, in one time limit for both.
func TestShardsWhileALoopIsStuck(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[1].set(func(l *fakeLanes) { l.mute = true })
		p.shards[1].set(func(s *fakeShard) { s.mute = true })
		began := time.Now()
		got := p.session("grafana").query("SHOW SHARDS")
		notice, rows, _ := strings.Cut(got, "\n")
		if notice != "NOTICE 00000 the column waiting is empty: no answer in time from event loop 1" {
			t.Error(notice)
		}
		if w, names := column(t, rows, "waiting"), column(t, rows, "state"); fmt.Sprint(w, names) != "[NULL NULL] [healthy NULL]" {
			t.Error(rows)
		}
		if took := time.Since(began); took != answerLimit {
			t.Errorf("answered after %v", took)
		}
	})
}

// No host at all, or one of which nothing is known, is shown without a made-up value.
func TestShardOfWhichNothingIsKnown(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.shards[0].set(func(s *fakeShard) {
			s.row = shard.Row{Name: "main", View: *shard.NewShard("main").View()}
		})
		s := p.session("grafana")
		if got := s.query("SHOW SHARDS"); !strings.Contains(got, "\nmain|unhealthy|NULL|0|NULL|0|NULL|NULL|1|0|NULL|NULL|NULL|nothing is known yet|NULL\n") {
			t.Error(got)
		}
		if got := s.query("SHOW REPLICATION"); strings.Contains(got, "main") {
			t.Error(got)
		}
		p.shards[0].set(func(s *fakeShard) { s.row.Hosts = make([]shard.HostRow, 1); s.row.Hosts[0].Host = "10.0.0.1:5433" })
		if got := s.query("SHOW REPLICATION"); !strings.Contains(got,
			"\nmain|10.0.0.1:5433|10.0.0.1:5433|unknown|auto|none|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|no|connecting|NULL\n") {
			t.Error(got)
		}
	})
}

func TestShowElectionsIsBounded(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		now := time.Now()
		for i, s := range p.shards {
			s.set(func(s *fakeShard) {
				s.row.Transitions = nil
				for n := range 80 {
					s.row.Transitions = append(s.row.Transitions, shard.Transition{At: now.Add(time.Duration(2*n+i) * time.Millisecond),
						Epoch: uint64(n), Kind: "state", State: health.Unhealthy})
				}
			})
		}
		got := p.session("grafana").query("SHOW ELECTIONS")
		at, shards := column(t, got, "at"), column(t, got, "shard")
		if len(at) != maxTransitions || at[0] != "2000-01-01 00:00:00.060 UTC" || at[maxTransitions-1] != "2000-01-01 00:00:00.159 UTC" {
			t.Errorf("%d from %s to %s", len(at), at[0], at[len(at)-1])
		}
		for i, name := range shards {
			if want := [...]string{"main", "reports"}[i%2]; name != want {
				t.Fatalf("line %d is of %s, not of %s", i, name, want)
			}
		}
	})
}

// SHOW DATABASES follows the election: by what lanes know, and where no lane is yet by what the shard says.
func TestDatabasesFollowTheElection(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		s := p.session("grafana")
		row := func() string {
			got := s.query("SHOW DATABASES")
			return strings.Join([]string{column(t, got, "host")[0], column(t, got, "port")[0]}, "|")
		}
		elect := func(host string) {
			for _, l := range p.lanes {
				l.rows[0].Spec.Shard.Publish(&shard.View{Elected: host})
			}
		}
		for host, want := range map[string]string{"10.0.0.2:5434": "10.0.0.2|5434", "[2001:db8::1]:5433": "2001:db8::1|5433", "": "NULL|NULL"} {
			elect(host)
			if got := row(); got != want {
				t.Errorf("%q elected: %s", host, got)
			}
		}
		for _, l := range p.lanes {
			l.set(func(l *fakeLanes) { l.rows = nil })
		}
		p.shards[0].set(func(s *fakeShard) { s.row.View.Elected = "10.0.0.3:5433" })
		if got := row(); got != "10.0.0.3|5433" {
			t.Errorf("without lanes: %s", got)
		}
		p.shards[0].set(func(s *fakeShard) { s.mute = true })
		if got := row(); got != "NULL|NULL" {
			t.Errorf("of a silent shard: %s", got)
		}
	})
}
