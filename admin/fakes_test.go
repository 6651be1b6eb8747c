package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
	"fencepost/config"
	"fencepost/eventloop"
	"fencepost/internal/actortest"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // timestamps in testdata
	os.Exit(m.Run())
}

// settings are the fake process's; %s is where a test adds to [fencepost].
const settings = `
[fencepost]
admin_users = ["ops"]
stats_users = ["grafana"]
stats_period = "1m"
%s
[shards.main]
hosts = ["10.0.0.1:5433"]
[databases.app]
shard = "main"
dbname = "app_production"
user = "app_owner"
pool_size = 7
max_db_connections = 9
[databases.reports]
hosts = [{ addr = "/run/postgresql", role = "any" }]
pool_mode = "session"
min_pool_size = 2
server_lifetime = "30m"
[databases."*"]
shard = "main"
[users.ops]
password = "o"
[users.grafana]
password = "g"
[users.alice]
password = "a"
[users.bob]
password = "b"
pool_mode = "session"
pool_size = 3
`

// process is a fake of the whole process: Operations, and on each loop an actor for its lanes and one for its sessions.
type process struct {
	t       *testing.T
	system  *actor.ActorSystem
	config  *config.Config
	group   *eventloop.Group
	lanes   []*fakeLanes
	clients []*fakeSessions
	shards  []*fakeShard
	console *actor.PID
	fleet   *actor.PID
	log     strings.Builder

	reload   func() error
	draining atomic.Bool
	mu       sync.Mutex
	ended    []Shutdown
}

var _ Operations = (*process)(nil)

func (p *process) Config() *config.Config { return p.config }
func (p *process) Reload() error          { return p.reload() }
func (p *process) Shutdown(how Shutdown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, how)
}
func (p *process) Loops() []eventloop.Loop {
	if p.group == nil {
		return nil
	}
	return p.group.Loops()
}
func (p *process) Lanes() (all []*actor.PID) {
	for _, l := range p.lanes {
		all = append(all, l.pid)
	}
	return all
}
func (p *process) Sessions() (all []*actor.PID) {
	for _, s := range p.clients {
		all = append(all, s.pid)
	}
	return all
}
func (p *process) Shards() (all []ShardRef) {
	for _, s := range p.shards {
		all = append(all, ShardRef{s.row.Name, s.pid})
	}
	return all
}
func (p *process) Fleet() *actor.PID            { return p.fleet }
func (p *process) Clients() int64               { return 6 }
func (p *process) ServerConnections(string) int { return 4 }
func (p *process) Draining() bool               { return p.draining.Load() }
func (p *process) Actors() int                  { return 11 }
func (p *process) Version() string              { return "0.1.0" }
func (p *process) Standstills() (uint64, time.Duration) {
	return 3, 7500 * time.Millisecond
}
func (p *process) System() *actor.ActorSystem { return p.system }

// fakeLanes answers what a loop's lanes are asked, with what the test sets; the fields are guarded by mu.
type fakeLanes struct {
	pid *actor.PID

	mu   sync.Mutex
	rows []lane.LaneRow
	mute bool
	busy int // what Quiet counts
	got  []string
}

func (l *fakeLanes) Receive(ctx actor.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mute {
		return
	}
	switch m := ctx.Message().(type) {
	case *lane.Describe:
		m.Reply <- slices.Clone(l.rows)
	case *lane.Control:
		l.got = append(l.got, fmt.Sprintf("%s %q", verbNames[m.Verb], m.Database))
		m.Reply <- 1
	case *lane.Quiet:
		l.got = append(l.got, fmt.Sprintf("quiet? %s %q", verbNames[m.Wait], m.Database))
		m.Reply <- l.busy
	}
}

var verbNames = map[lane.Verb]string{lane.Pause: "pause", lane.Resume: "resume", lane.Reconnect: "reconnect", lane.Drain: "drain"}

func (l *fakeLanes) set(change func(*fakeLanes)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// heard returns what came since the last call; repeated questions once.
func (l *fakeLanes) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := slices.Compact(l.got)
	l.got = nil
	return got
}

type fakeSessions struct {
	pid  *actor.PID
	mu   sync.Mutex
	rows []ClientRow
	mute bool
	kill []uint64
}

func (s *fakeSessions) Receive(ctx actor.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mute {
		return
	}
	switch m := ctx.Message().(type) {
	case *DescribeClients:
		m.Reply <- slices.Clone(s.rows)
	case *Kill:
		found := slices.ContainsFunc(s.rows, func(r ClientRow) bool { return r.ID == m.ID })
		if found {
			s.kill = append(s.kill, m.ID)
		}
		m.Reply <- found
	}
}

// inProcess runs a test in a bubble with a fake process of two loops and a Console.
func inProcess(t *testing.T, more string, test func(t *testing.T, p *process)) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, settings, more))
		if err != nil {
			t.Fatal(err)
		}
		p := &process{t: t, system: actortest.NewSystem(), config: cfg, reload: func() error { return nil }}
		if p.group, err = eventloop.NewGroup(eventloop.Options{Kind: eventloop.Portable, Loops: 2}); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for i := range 2 {
			p.lanes = append(p.lanes, &fakeLanes{rows: laneRows(i, now)})
			p.lanes[i].pid = p.spawn(p.lanes[i])
			p.clients = append(p.clients, &fakeSessions{rows: clientRows(i, now)})
			p.clients[i].pid = p.spawn(p.clients[i])
		}
		for _, row := range shardRows(now) {
			s := &fakeShard{row: row}
			s.pid = p.spawn(s)
			p.shards = append(p.shards, s)
		}
		console := NewConsole(p, zerolog.New(&p.log))
		p.console = p.spawn(console)
		synctest.Wait()
		test(t, p)
		p.stop(p.console)
		for i := range 2 {
			p.stop(p.lanes[i].pid)
			p.stop(p.clients[i].pid)
		}
		for _, s := range p.shards {
			p.stop(s.pid)
		}
		p.group.Stop()
		p.system.Shutdown()
		time.Sleep(time.Minute) // the runtime counts dead letters for a while
	})
}

func (p *process) spawn(a actor.Actor) *actor.PID {
	return p.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return a }))
}

func (p *process) stop(pid *actor.PID) { _ = p.system.Root.StopFuture(pid).Wait() }

// session is a fake console client; one command at a time.
type session struct {
	p       *process
	pid     *actor.PID
	user    string
	admin   bool
	req     uint64
	answers chan *Answer
}

func (p *process) session(user string) *session {
	s := &session{p: p, user: user, admin: user == "ops", answers: make(chan *Answer, 1)}
	s.pid = p.spawn(s)
	return s
}

func (s *session) Receive(ctx actor.Context) {
	if m, ok := ctx.Message().(*Answer); ok {
		s.answers <- m
	}
}

// send gives a command without waiting.
func (s *session) send(text string) {
	s.req++
	s.p.system.Root.Send(s.p.console, &Command{Req: s.req, From: s.pid, Text: text, User: s.user, Admin: s.admin})
}

// query gives a command and returns its answer in words.
func (s *session) query(text string) string {
	s.send(text)
	return s.answer()
}

func (s *session) answer() string {
	s.p.t.Helper()
	select {
	case a := <-s.answers:
		if a.Req != s.req {
			s.p.t.Fatalf("answer to request %d, not %d", a.Req, s.req)
		}
		return inWords(s.p.t, a.Bytes)
	case <-time.After(time.Hour):
		s.p.t.Fatal("no answer within an hour")
		return ""
	}
}

// waits reports whether the answer is still to come when nothing moves any more.
func (s *session) waits() bool {
	synctest.Wait()
	return len(s.answers) == 0
}

var typeNames = map[uint32]string{25: "text", 23: "int4", 20: "int8", 1700: "numeric"}

// inWords decodes an answer with another implementation of the protocol.
func inWords(t *testing.T, b []byte) string {
	t.Helper()
	var out strings.Builder
	f := pgproto3.NewFrontend(strings.NewReader(string(b)), nil)
	for {
		m, err := f.Receive()
		if err != nil {
			if !strings.Contains(err.Error(), "EOF") {
				t.Fatal(err)
			}
			return out.String()
		}
		switch m := m.(type) {
		case *pgproto3.RowDescription:
			for i, c := range m.Fields {
				if i > 0 {
					out.WriteString(", ")
				}
				fmt.Fprintf(&out, "%s %s", c.Name, typeNames[c.DataTypeOID])
			}
			out.WriteString("\n")
		case *pgproto3.DataRow:
			words := make([]string, len(m.Values))
			for i, v := range m.Values {
				words[i] = string(v)
				if v == nil {
					words[i] = "NULL"
				}
			}
			out.WriteString(strings.Join(words, "|") + "\n")
		case *pgproto3.CommandComplete:
			fmt.Fprintf(&out, "= %s\n", m.CommandTag)
		case *pgproto3.ErrorResponse:
			fmt.Fprintf(&out, "%s %s %s\n", m.Severity, m.Code, m.Message)
			for _, more := range []string{m.Detail, m.Hint} {
				if more != "" {
					out.WriteString("  " + more + "\n")
				}
			}
		case *pgproto3.NoticeResponse:
			fmt.Fprintf(&out, "%s %s %s%s\n", m.Severity, m.Code, m.Message, strings.ReplaceAll(m.Detail, "\n\t", "\n  "))
		case *pgproto3.EmptyQueryResponse:
			out.WriteString("(empty)\n")
		default:
			t.Fatalf("unexpected %T", m)
		}
	}
}

var app, reports = lane.PoolKey{Database: "app", ServerUser: "app_owner"}, lane.PoolKey{Database: "reports", ServerUser: "alice"}

// laneRows are the lanes of loop i: app on both loops, reports on the second.
func laneRows(i int, now time.Time) []lane.LaneRow {
	main := shard.NewShard("main")
	main.Publish(&shard.View{Elected: "10.0.0.1:5433"})
	spec := &lane.PoolSpec{Shard: main, Mode: "transaction", Size: 7}
	row := lane.LaneRow{Loop: i, Pool: app, Spec: spec, Clients: 3 + i, Waiting: 1 - i, OldestWait: time.Duration(1-i) * 2500 * time.Millisecond}
	row.Stats = lane.Stats{Assignments: 100, Transactions: 90, Queries: 200, Received: 1000, Sent: 5000, TransactionTime: 3 * time.Second,
		QueryTime: 2 * time.Second, WaitTime: time.Second, Logins: 5, Parses: 7, Binds: 8, Refused: 1, Dials: 4, DialFailures: 1, Losses: 1, QueueCancels: 2}
	row.Stats.Cancels[cancellease.Delivered], row.Stats.Cancels[cancellease.TimedOut] = 3, 1
	row.Stats.Fences = [lane.FenceVerdicts]uint64{9, 2, 1, 3}
	row.Stats.FenceTime.Observe(time.Millisecond)
	row.Stats.PrimaryWait.Observe(30 * time.Millisecond)
	row.Stats.CancelLease.Observe(time.Millisecond)
	row.Stats.Wait.Observe(time.Millisecond)
	row.Stats.Query.Observe(time.Millisecond)
	row.Stats.Transaction.Observe(time.Millisecond)
	backend := func(id uint64, s pool.State) lane.BackendRow {
		row.Counts[s]++
		return lane.BackendRow{ID: id, State: s, Host: "10.0.0.1:5433", Remote: "10.0.0.1", RemotePort: 5433, Local: "10.0.0.9",
			LocalPort: 40000 + uint16(id), PID: 4000 + uint32(id), Opened: now.Add(-time.Hour), Since: now.Add(-time.Minute), ApplicationName: "web"}
	}
	if i == 0 {
		row.Backends = []lane.BackendRow{backend(11, pool.Leased), backend(12, pool.Idle)}
		return []lane.LaneRow{row}
	}
	row.Backends = []lane.BackendRow{backend(13, pool.Cleaning), backend(14, pool.Leased), backend(15, pool.Closing), backend(16, pool.Dialling)}
	row.Backends[1].Cancelling, row.Backends[2].Cancelling, row.Backends[2].Retiring = true, true, true
	row.Cancelling = 2
	other := lane.LaneRow{Loop: i, Pool: reports, Spec: &lane.PoolSpec{Shard: shard.NewStatic("reports", "/run/postgresql:5432"), Mode: "session", Size: 20}, Clients: 1, Failing: true}
	other.Counts[pool.Idle] = 1
	other.Backends = []lane.BackendRow{{ID: 17, State: pool.Idle, Host: "/run/postgresql:5432", Remote: "unix", Local: "unix", PID: 4017,
		Opened: now.Add(-time.Hour), Since: now}}
	other.Stats = lane.Stats{Queries: 5, Transactions: 5}
	return []lane.LaneRow{row, other}
}

func clientRows(i int, now time.Time) []ClientRow {
	tcp := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	if i == 0 {
		return []ClientRow{
			{ID: 2, User: "ops", Database: "fencepost", State: "idle", Console: true, Connected: now, Requested: now},
			{ID: 1, User: "alice", Database: "app", State: "active", Remote: tcp("[::ffff:192.0.2.7]:50001"), Local: tcp("192.0.2.1:6432"),
				Connected: now.Add(-time.Minute), Requested: now, Backend: 11, BackendPID: 4011, ApplicationName: "web", ServerUser: "app_owner"},
			{ID: 5, State: "login", Remote: tcp("192.0.2.8:50005"), Local: tcp("192.0.2.1:6432"), Connected: now},
			{ID: 6, User: "alice", Database: "app", State: "ended", Connected: now},
		}
	}
	return []ClientRow{{ID: 3, User: "bob", Database: "app", State: "waiting", Remote: tcp("192.0.2.7:50003"), Local: tcp("192.0.2.1:6432"),
		Connected: now, Requested: now.Add(-2500 * time.Millisecond), Wait: 2500 * time.Millisecond, ServerUser: "app_owner"}}
}

var errBadFile = errors.New("fencepost.toml: pool_mode = \"x\": must be one of session, transaction, statement")
