package shard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/internal/actortest"
	"fencepost/role"
)

const (
	hostA, hostB, hostC = "10.0.0.1:5432", "10.0.0.2:5432", "10.0.0.3:5432"
	cluster             = 7700
)

// place is a shard's actor with scripted monitors and one fake lane, in a synctest bubble.
type place struct {
	t        *testing.T
	cfg      shard.ActorConfig
	shard    *shard.Shard
	settings shard.Settings
	system   *actor.ActorSystem
	parent   *actor.PID
	pid      *actor.PID
	lane     *actor.PID
	log      *logBook
	zone     *zone

	mu       sync.Mutex // guards what follows
	monitors []*fakeMonitor
	told     []*shard.ViewPublished
	conns    map[string][]uint64 // the lane's, for a recount
}

// fakeMonitor is a monitor that only keeps what it is told.
type fakeMonitor struct {
	monitor.Config
	probes int
	modes  []monitor.Mode
	closed bool
}

// zone is a resolver whose answers change.
type zone struct {
	mu      sync.Mutex // guards answers
	answers map[string][]string
}

func (z *zone) set(name string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.answers[name] = addrs
}

// logBook keeps the lines of a log, and panics at one that it is told to.
type logBook struct {
	mu    sync.Mutex // guards lines
	lines []map[string]any
}

const poison = "poison"

// crash is a message that nobody handles: the log line about it panics, within Receive.
type crash struct{}

func (l *logBook) Write(b []byte) (int, error) {
	line := map[string]any{}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&line); err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.lines = append(l.lines, line)
	l.mu.Unlock()
	if strings.HasSuffix(fmt.Sprint(line["message_type"]), "crash") || strings.Contains(fmt.Sprint(line["reason"]), poison) {
		panic("injected")
	}
	return len(b), nil
}

// with are the lines with a message.
func (l *logBook) with(message string) (lines []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line["message"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

func settings(hosts ...string) shard.Settings {
	s := shard.Settings{User: "watcher", Database: "postgres", Password: "secret", Interval: time.Second,
		Election: election.Defaults(), Health: health.Defaults()}
	for _, h := range hosts {
		s.Hosts = append(s.Hosts, shard.HostSetting{Addr: h})
	}
	return s
}

// inPlace runs f with the actor of a shard with these settings.
func inPlace(t *testing.T, s shard.Settings, f func(p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, s)
		p.open()
		f(p)
		p.close()
		time.Sleep(2 * time.Second) // the runtime's throttle of dead letters
	})
}

func newPlace(t *testing.T, s shard.Settings) *place {
	p := &place{t: t, settings: s, shard: shard.NewShard("main"), log: &logBook{}, zone: &zone{answers: map[string][]string{}}, conns: map[string][]uint64{}}
	p.cfg = shard.ActorConfig{Shard: p.shard, Settings: s, Observer: "boot", Log: zerolog.New(p.log), Resolver: p.zone, Monitor: p.monitorProps,
		Lanes: func() []*actor.PID { return []*actor.PID{p.lane} }}
	return p
}

// open spawns the tree.
func (p *place) open() {
	p.system = actortest.NewSystem()
	p.lane = p.system.Root.Spawn(actor.PropsFromFunc(p.laneReceive))
	up := make(chan struct{})
	p.parent = p.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			pid, err := ctx.SpawnNamed(shard.ActorProps(p.cfg), "shard-main")
			if err != nil {
				p.t.Error(err)
			}
			p.pid = pid
			close(up)
		}
	}, actor.WithSupervisor(actor.RestartingSupervisorStrategy())))
	<-up
	p.settle()
}

func (p *place) close() {
	if err := p.system.Root.StopFuture(p.parent).Wait(); err != nil {
		p.t.Errorf("stop: %v", err)
	}
	if err := p.system.Root.StopFuture(p.lane).Wait(); err != nil {
		p.t.Errorf("stop: %v", err)
	}
}

// reopen is a restart of the process.
func (p *place) reopen() {
	p.close()
	p.shard = shard.NewShard("main")
	p.cfg.Shard = p.shard
	p.monitors = nil
	p.open()
}

func (p *place) laneReceive(ctx actor.Context) {
	m, ok := ctx.Message().(*shard.ViewPublished)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, m)
	if m.Recount != nil {
		for host, ids := range p.conns {
			for _, id := range ids {
				ctx.Send(m.Recount, &shard.Connected{Host: host, Backend: id, At: time.Now()})
			}
		}
	}
}

func (p *place) monitorProps(c monitor.Config) *actor.Props {
	m := &fakeMonitor{Config: c, modes: []monitor.Mode{c.Mode}}
	p.mu.Lock()
	p.monitors = append(p.monitors, m)
	p.mu.Unlock()
	return actor.PropsFromFunc(func(ctx actor.Context) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch msg := ctx.Message().(type) {
		case *monitor.ProbeNow:
			m.probes++
		case *monitor.Mode:
			m.modes = append(m.modes, *msg)
		case *monitor.Close:
			ctx.Stop(ctx.Self())
		case *actor.Stopped:
			m.closed = true
		case crash:
			panic("injected")
		}
	})
}

// monitors of a host that run.
func (p *place) watching(host string) (found []*fakeMonitor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.monitors {
		if string(m.Host) == host && !m.closed {
			found = append(found, m)
		}
	}
	return found
}

func (p *place) monitor(host string) *fakeMonitor {
	p.t.Helper()
	found := p.watching(host)
	if len(found) != 1 {
		p.t.Fatalf("%s has %d monitors", host, len(found))
	}
	return found[0]
}

// mode that the monitor of a host was told last.
func (p *place) mode(host string) monitor.Mode {
	p.t.Helper()
	m := p.monitor(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.modes[len(m.modes)-1]
}

// probes that were asked for since the last call.
func (p *place) probes(host string) int {
	p.t.Helper()
	m := p.monitor(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := m.probes
	m.probes = 0
	return n
}

// views that the lane was told of since the last call.
func (p *place) views() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.told)
	p.told = nil
	return n
}

// settle waits until nothing happens any more. A microsecond passes, so that what is asked for next is later.
func (p *place) settle() {
	synctest.Wait()
	time.Sleep(time.Microsecond)
	synctest.Wait()
}

// pass lets time pass.
func (p *place) pass(d time.Duration) { time.Sleep(d) }

func (p *place) send(messages ...any) {
	for _, m := range messages {
		p.system.Root.Send(p.pid, m)
	}
	p.settle()
}

// answer is an answer to a probe, asked for now.
func answer(host string, verdict role.Verdict, timeline uint32) role.Observation {
	now := time.Now()
	o := role.Observation{Host: role.Host(host), Verdict: verdict, SystemID: cluster, Timeline: timeline, LSN: 1000, LagKnown: true,
		Source: role.Probe, Asked: now, Answered: now, Started: time.Unix(int64(len(host))*1000+int64(host[len("10.0.0.")]), 0)}
	return o
}

func primary(host string, timeline uint32) role.Observation {
	return answer(host, role.Writable, timeline)
}
func standby(host string) role.Observation { return answer(host, role.InRecovery, 1) }

// probed has monitors tell of answers. Each is up from then on.
func (p *place) probed(answers ...role.Observation) {
	for _, o := range answers {
		p.system.Root.Send(p.pid, &monitor.Observed{Observation: o})
		p.system.Root.Send(p.pid, &monitor.State{Host: o.Host, Kind: monitor.Up})
	}
	p.settle()
}

// healthy brings the shard up with a as the primary and the others as its standbys.
func (p *place) healthy() {
	p.t.Helper()
	p.beat()
	if v := p.shard.View(); v.Elected != hostA || v.State != health.Healthy {
		p.t.Fatalf("not up: %+v", v)
	}
	p.views()
	for _, h := range p.settings.Hosts {
		if len(p.watching(h.Addr)) == 1 {
			p.probes(h.Addr)
		}
	}
}

// beat is a round of probes: a is the primary on timeline 1, the others are standbys.
func (p *place) beat() {
	var answers []role.Observation
	for _, h := range p.settings.Hosts {
		if h.Addr == hostA {
			answers = append(answers, primary(h.Addr, 1))
		} else {
			answers = append(answers, standby(h.Addr))
		}
	}
	p.probed(answers...)
}

// run lets time pass, with a round of probes by beat every half second.
func (p *place) run(d time.Duration, beat func()) {
	for range d / (500 * time.Millisecond) {
		time.Sleep(500 * time.Millisecond)
		beat()
	}
}

// crashed has the monitor of a host see it crash.
func (p *place) crashed(host string) {
	now := time.Now()
	p.send(&monitor.Lost{Host: role.Host(host), Kind: monitor.Broken, At: now}, &monitor.State{Host: role.Host(host), Kind: monitor.Connecting},
		&monitor.Refused{Host: role.Host(host), AfterLoss: true, Kind: monitor.Closed, Asked: now, At: now}, &monitor.State{Host: role.Host(host), Kind: monitor.Closed})
}

func (p *place) row() shard.Row {
	p.t.Helper()
	reply := make(chan shard.Row, 1)
	p.send(&shard.DescribeShard{Reply: reply})
	select {
	case r := <-reply:
		return r
	default:
		p.t.Fatal("no answer")
		return shard.Row{}
	}
}

func (p *place) host(host string) shard.HostRow {
	p.t.Helper()
	for _, h := range p.row().Hosts {
		if string(h.Host) == host {
			return h
		}
	}
	p.t.Fatalf("no host %s", host)
	return shard.HostRow{}
}

// kinds are the transitions so far, in order.
func (p *place) kinds() string {
	var kinds []string
	for _, tr := range p.row().Transitions {
		kinds = append(kinds, tr.Kind)
	}
	return strings.Join(kinds, ", ")
}

func (p *place) wantElected(host string) {
	p.t.Helper()
	if v := p.shard.View(); v.Elected != host {
		p.t.Fatalf("elected %q, not %q: %s; %s", v.Elected, host, v.Why, v.Explanation)
	}
}

func (p *place) wantState(s health.State) {
	p.t.Helper()
	if v := p.shard.View(); v.State != s {
		p.t.Fatalf("%s, not %s: %s", v.State, s, p.row().StateReason)
	}
}

func (p *place) wantStandbys(hosts ...string) {
	p.t.Helper()
	if v := p.shard.View(); !slices.Equal(v.Standbys, hosts) {
		p.t.Fatalf("standbys %v, not %v", v.Standbys, hosts)
	}
}

func (p *place) wantDoubt(want bool) {
	p.t.Helper()
	if _, doubted := p.shard.InDoubt(); doubted != want {
		p.t.Fatalf("in doubt: %t", doubted)
	}
}

func addrs(texts []string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}
