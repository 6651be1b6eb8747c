package e2e

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster"
	"fencepost/internal/actortest"
	"fencepost/soak/fleet"
)

// tester is a member of a lab's fleet that is none of Fencepost's processes: it says what the test has it say, and writes
// down what it hears of the shard.
type tester struct {
	t      testing.TB
	system *actor.ActorSystem
	pid    *actor.PID
	gone   chan struct{}

	mu    sync.Mutex // guards heard
	heard map[string]time.Time
}

// joinFleet has a tester join a lab's fleet. change may change who it is.
func joinFleet(t testing.TB, l *fleet.Lab, name string, change func(*cluster.Config)) *tester {
	t.Helper()
	bind := freeUDP(t)
	front, err := l.Net.Member(name, bind)
	if err != nil {
		t.Fatal(err)
	}
	l.Net.Runs("tester", os.Getpid()) // whose TCP connections are whose is not told apart
	key, err := base64.StdEncoding.DecodeString(fleet.Key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Config{Name: fleet.Name, Member: name, PeerID: 100 + uint32(len(name)), Version: "test", Bind: netip.MustParseAddrPort(bind),
		Advertise: netip.MustParseAddrPort(front), Join: []string{l.Members[0].Front()}, Keys: [][]byte{key}, JoinWait: time.Second, Log: zerolog.Nop()}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	p := &tester{t: t, gone: make(chan struct{}), heard: map[string]time.Time{}, system: actortest.NewSystem()}
	p.pid = p.system.Root.Spawn(cluster.Props(cfg))
	shard := p.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *actor.Started:
			ctx.Watch(p.pid)
		case *actor.Terminated:
			close(p.gone)
		case *cluster.PeerObserved:
			r := m.PeerObserved.Record
			p.mu.Lock()
			defer p.mu.Unlock()
			if key := fmt.Sprint(r.Host, " ", r.Observation.Timeline); p.heard[key].IsZero() {
				p.heard[key] = time.Now()
			}
		}
	}))
	p.send(&cluster.Subscribe{Shard: "main", To: shard})
	t.Cleanup(p.leave)
	return p
}

func (p *tester) send(m any) { p.system.Root.Send(p.pid, m) }

// knows is when it first heard that a host is on a timeline.
func (p *tester) knows(host string, timeline int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[fmt.Sprint(host, " ", timeline)]
}

// leave leaves the fleet; it may be called again.
func (p *tester) leave() {
	p.send(&cluster.Close{})
	select {
	case <-p.gone:
	case <-time.After(patience):
		p.t.Error("the test's member does not leave")
	}
}

func (p *tester) describe() *cluster.Description {
	reply := make(chan *cluster.Description, 1)
	p.send(&cluster.Describe{Reply: reply})
	select {
	case d := <-reply:
		return d
	case <-time.After(patience):
		p.t.Fatal("the test's member does not answer")
		return nil
	}
}

// sees waits until it sees n members.
func (p *tester) sees(n int) {
	p.t.Helper()
	alive := 0
	if err := poll(patience, func() (bool, error) { alive = p.describe().Alive; return alive == n, nil }); err != nil {
		p.t.Fatalf("the test's member sees %d members, want %d", alive, n)
	}
}

// freeUDP is an address free for TCP and UDP a moment ago.
func freeUDP(t testing.TB) string {
	t.Helper()
	for {
		addr := freeAddr(t)
		u, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		u.Close()
		return addr
	}
}
