package admin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/lane/pool"
	"fencepost/cluster"
	"fencepost/cluster/evidence"
	"fencepost/metrics"
	"fencepost/role"
)

// fakeFleet passes operations on to its members and collects their answers, as package cluster does.
type fakeFleet struct {
	pid *actor.PID

	mu          sync.Mutex
	mute        bool
	members     []*fakeMember // by name
	description cluster.Description
	torn        bool     // c is described as dead, and fleet_size as 4
	got         []string // operations, without their random names
	next        uint64
	waits       map[uint64]chan *cluster.OperationDone
}

// fakeMember is a console, or answers as script says.
type fakeMember struct {
	name    string
	console *actor.PID
	script  func(verb string, args []string) ([][]string, string)
	mute    func(verb string) bool // what it does not answer; nil: nothing
}

func (f *fakeFleet) Receive(ctx actor.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done, ok := ctx.Message().(*cluster.OperationDone); ok {
		if w := f.waits[done.ID]; w != nil {
			w <- done
		}
		return
	}
	if f.mute {
		return
	}
	switch m := ctx.Message().(type) {
	case *cluster.Operate:
		f.operate(ctx, m)
	case *cluster.Describe:
		d := f.description
		if !f.torn {
			d.Size, d.Alive, d.Members = 3, 3, slices.Clone(d.Members)
			d.Members[2].State = cluster.Alive
		}
		m.Reply <- &d
	case *cluster.Scrape:
		m.Reply <- []metrics.Family{{Name: "fleet_size", Type: metrics.Gauge, Samples: single(3), Help: "Members."}}
	}
}

func (f *fakeFleet) operate(ctx actor.Context, m *cluster.Operate) {
	if m.Verb == undoVerb {
		f.got = append(f.got, m.Verb)
	} else {
		f.got = append(f.got, m.Verb+" "+m.Args[0])
	}
	var answers []cluster.Answer
	var waits []chan *cluster.OperationDone
	for _, member := range f.members {
		f.next++
		w := make(chan *cluster.OperationDone, 1)
		answers, waits = append(answers, cluster.Answer{Member: member.name, Boot: evidence.Boot{15: member.name[0] - 'a' + 1},
			Address: "10.0.1." + fmt.Sprint(len(answers)+1) + ":7946"}), append(waits, w)
		switch {
		case member.mute != nil && member.mute(m.Verb):
		case member.script != nil:
			rows, err := member.script(m.Verb, m.Args)
			w <- &cluster.OperationDone{Rows: rows, Err: err}
		default:
			f.waits[f.next] = w
			ctx.Send(member.console, &cluster.Operation{ID: f.next, Verb: m.Verb, Args: m.Args, From: "a", Deadline: time.Now().Add(m.Timeout), Reply: ctx.Self()})
		}
	}
	go func() { // ends with the time limit
		over := time.After(m.Timeout)
		for i, w := range waits {
			select {
			case done := <-w:
				answers[i].Rows, answers[i].Err = done.Rows, done.Err
			case <-over:
				over = time.After(0)
				answers[i].Err = "no answer in time"
			}
		}
		m.Reply <- cluster.OperationResult{Answers: answers}
	}()
}

// heard returns what was asked of the members since the last call; repeated requests once.
func (f *fakeFleet) heard() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := slices.Compact(f.got)
	f.got = nil
	return strings.Join(got, "\n")
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// inFleet gives p a fleet of three: p's own console (a), that of another process (b), and a member that does everything at
// once (c), whose script can be changed.
func inFleet(p *process) (f *fakeFleet, b *process, c *fakeMember, stop func()) {
	b = &process{t: p.t, system: p.system, config: p.config, group: p.group, reload: func() error { return nil }}
	for i := range 2 {
		b.lanes = append(b.lanes, &fakeLanes{rows: laneRows(i, time.Now())})
		b.lanes[i].pid = b.spawn(b.lanes[i])
	}
	for _, row := range shardRows(time.Now()) {
		s := &fakeShard{row: row}
		s.pid = b.spawn(s)
		b.shards = append(b.shards, s)
	}
	b.console = b.spawn(NewConsole(b, zerolog.New(&b.log)))
	c = &fakeMember{name: "c", script: func(verb string, args []string) ([][]string, string) { return nil, "" }}
	f = &fakeFleet{waits: map[uint64]chan *cluster.OperationDone{}, members: []*fakeMember{{name: "a", console: p.console}, {name: "b", console: b.console}, c}}
	f.description = description(time.Now())
	f.pid = p.spawn(f)
	p.fleet, b.fleet = f.pid, f.pid
	return f, b, c, func() {
		p.stop(b.console)
		for i := range 2 {
			p.stop(b.lanes[i].pid)
		}
		for _, s := range b.shards {
			p.stop(s.pid)
		}
		p.stop(f.pid)
	}
}

func description(now time.Time) cluster.Description {
	at := func(h role.Host, v role.Verdict, timeline uint32) role.Observation {
		return role.Observation{Host: h, Verdict: v, Timeline: timeline, SystemID: thisCluster, LSN: 0x1_0203_0405, Source: role.Probe, Asked: now, Answered: now}
	}
	boot := func(n byte) string { return evidence.Boot{15: n}.String() }
	return cluster.Description{Name: "prod", Ready: true, Joined: true, Open: true, Size: 4, Alive: 2,
		Members: []cluster.MemberRow{
			{Member: "a", Self: true, Address: "10.0.1.1:7946", Version: "0.1.0", Boot: boot(1), PeerID: 1, LastHeard: now, Clients: 6, Servers: 4},
			{Member: "b", Address: "10.0.1.2:7946", Version: "0.2.0", Boot: boot(2), PeerID: 2, RoundTrip: 1234567, LastHeard: now.Add(-70 * time.Millisecond),
				Clients: 8, Servers: 3, Draining: true, SettingsDiffer: true, Differs: []string{`shards.main.hosts: "x" here, "y" there`}},
			{Member: "c", Address: "10.0.1.3:7946", State: cluster.Dead, Version: "0.1.0", Boot: boot(3), LastHeard: now.Add(-time.Minute), SettingsDiffer: true},
		},
		Evidence: []cluster.EvidenceRow{
			{Shard: "main", Host: "10.0.0.1:5433", Member: "a", Boot: boot(1), Self: true, Observation: at("10.0.0.1:5433", role.Writable, 7), Age: 40 * time.Millisecond,
				Claim: role.Floor{SystemID: thisCluster, Generation: 2, Timeline: 7}, ClaimAge: time.Hour},
			{Shard: "main", Host: "10.0.0.2:5433", Member: "b", Boot: boot(2), Observation: at("10.0.0.2:5433", role.InRecovery, 0), Age: time.Second},
			{Shard: "main", Host: "10.0.0.3:5433", Member: "b", Boot: boot(2), Claim: role.Floor{Timeline: 6}, ClaimAge: time.Minute},
		},
		Problems: []cluster.ProblemRow{{What: "two members have peer_id 3", Detail: "from c", Count: 5, First: now, Last: now}},
	}
}

// lease sets how many server connections to the primary clients hold.
func (l *fakeLanes) lease(n int) {
	l.set(func(l *fakeLanes) {
		l.rows[0].Backends = slices.Clone(l.rows[0].Backends)
		for i := range l.rows[0].Backends {
			b := &l.rows[0].Backends[i]
			if b.State = pool.Idle; i < n {
				b.State = pool.Leased
			}
		}
	})
}
