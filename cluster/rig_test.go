package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
	"fencepost/internal/actortest"
	"fencepost/metrics"
	"fencepost/role"
)

// inbox is an actor that keeps what it gets.
type inbox struct {
	mu  sync.Mutex
	got []any
	at  []time.Time
	pid *actor.PID
	do  func(actor.Context) // beside that, if not nil
}

func (b *inbox) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped:
		return
	}
	b.mu.Lock()
	b.got, b.at = append(b.got, ctx.Message()), append(b.at, time.Now())
	do := b.do
	b.mu.Unlock()
	if do != nil {
		do(ctx)
	}
}

// does has f called for each message from now on.
func (b *inbox) does(f func(actor.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.do = f
}

// when says when the first message arrived that f accepts.
func when[T any](b *inbox, f func(T) bool) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range b.got {
		if m, ok := m.(T); ok && f(m) {
			return b.at[i], true
		}
	}
	return time.Time{}, false
}

func has[T any](b *inbox, f func(T) bool) bool { _, ok := when(b, f); return ok }

func any1[T any](T) bool { return true }

func (b *inbox) count(f func(any) bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		if f(m) {
			n++
		}
	}
	return n
}

// proxy is a process with a fleet actor and a shard that only listens.
type proxy struct {
	t      testing.TB
	system *actor.ActorSystem
	pid    *actor.PID
	shard  *inbox
	office *inbox // cancels, operations
	cfg    Config
	logs   *syncBuffer
	gone   chan struct{}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// systems are expensive, and all proxies of a test can share one.
func start(t testing.TB, system *actor.ActorSystem, cfg Config) *proxy {
	t.Helper()
	p := &proxy{t: t, system: system, shard: &inbox{}, office: &inbox{}, logs: &syncBuffer{}, gone: make(chan struct{})}
	cfg.Log = zerolog.New(p.logs)
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	if cfg.Version == "" {
		cfg.Version = "v1"
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	p.cfg = cfg.withDefaults()
	root := system.Root
	spawn := func(b *inbox) *actor.PID { return root.Spawn(actor.PropsFromProducer(func() actor.Actor { return b })) }
	p.shard.pid, p.office.pid = spawn(p.shard), spawn(p.office)
	p.pid = root.Spawn(Props(p.cfg))
	var once sync.Once
	root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *actor.Started:
			ctx.Watch(p.pid)
		case *actor.Terminated:
			if m.Who.Equal(p.pid) {
				once.Do(func() { close(p.gone) })
				ctx.Stop(ctx.Self())
			}
		}
	}))
	p.send(&Attach{Cancels: p.office.pid, Operations: p.office.pid})
	p.send(&Subscribe{Shard: "main", To: p.shard.pid})
	return p
}

func (p *proxy) send(m any) { p.system.Root.Send(p.pid, m) }

func (p *proxy) close() {
	p.send(&Close{})
	<-p.gone
	p.system.Root.Stop(p.shard.pid)
	p.system.Root.Stop(p.office.pid)
}

func (p *proxy) describe() *Description {
	reply := make(chan *Description, 1)
	p.send(&Describe{reply})
	select {
	case d := <-reply:
		return d
	case <-time.After(10 * time.Second):
		p.t.Error("the fleet does not answer")
		return &Description{}
	}
}

func (p *proxy) counter(name, label string) float64 {
	reply := make(chan []metrics.Family, 1)
	p.send(&Scrape{reply})
	for _, f := range <-reply {
		for _, s := range f.Samples {
			if f.Name == name && (label == "" || s.Labels[0] == label) {
				return s.Value
			}
		}
	}
	p.t.Errorf("no metric %s %s", name, label)
	return -1
}

func (p *proxy) row(member string) MemberRow {
	for _, m := range p.describe().Members {
		if m.Member == member {
			return m
		}
	}
	return MemberRow{}
}

func (p *proxy) problem(part string) (ProblemRow, bool) {
	for _, r := range p.describe().Problems {
		if strings.Contains(r.What+" "+r.Detail, part) {
			return r, true
		}
	}
	return ProblemRow{}, false
}

func (p *proxy) saw(host role.Host, v role.Verdict, timeline uint32) {
	p.send(&Publish{"main", role.Observation{Host: host, Verdict: v, SystemID: 7, Timeline: timeline, Asked: time.Now()}, 0})
}

// knows reports when the proxy's shard heard of a host on a timeline.
func (p *proxy) knows(host string, timeline uint32) (time.Time, bool) {
	return when(p.shard, func(m *PeerObserved) bool {
		return m.PeerObserved.Record.Host.String() == host && m.PeerObserved.Record.Observation.Timeline == timeline
	})
}

// memFleet starts members in memory, each of which joins by the first.
func memFleet(t testing.TB, n *memnet, count int, change func(int, *Config)) []*proxy {
	system := actortest.NewSystem()
	proxies := make([]*proxy, count)
	for i := range proxies {
		cfg := Config{Member: fmt.Sprintf("m%d", i), PeerID: uint32(i + 1), Bind: memAddr(i), Transport: n.transport(memAddr(i)), Keys: [][]byte{key(1)},
			JoinWait: 2 * time.Second, Boot: evidence.Boot{byte(i + 1), byte((i + 1) >> 8), 9}}
		if i > 0 {
			cfg.Join = []string{memAddr(0).String(), memAddr(1).String()}
		}
		if change != nil {
			change(i, &cfg)
		}
		proxies[i] = start(t, system, cfg)
	}
	return proxies
}

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func whole(proxies []*proxy) bool {
	for _, p := range proxies {
		if p.describe().Alive != len(proxies) {
			return false
		}
	}
	return true
}

// eventually waits in steps until f holds.
func eventually(t testing.TB, limit time.Duration, what string, f func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !f() {
		if time.Since(begin) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		<-time.After(10 * time.Millisecond)
	}
	return time.Since(begin)
}

func closeAll(proxies []*proxy) {
	var all sync.WaitGroup
	for _, p := range proxies {
		all.Go(p.close)
	}
	all.Wait()
}

func addrs(proxies []*proxy) (all []netip.AddrPort) {
	for _, p := range proxies {
		all = append(all, p.cfg.Bind)
	}
	return all
}
