package cluster

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"fencepost/internal/memconn"
)

// memnet is a network in memory, whose packets are lost, late and doubled as a seed decides, and which can be split.
type memnet struct {
	mu         sync.Mutex
	rnd        *rand.Rand
	at         map[netip.AddrPort]*port
	group      map[netip.AddrPort]int
	muted      netip.AddrPort // nobody hears it; it hears packets
	stalled    bool           // streams come to nothing
	loss       float64
	twice      float64
	delay      time.Duration // at least
	jitter     time.Duration // and up to that much more
	packets    int
	tap        func(from, to netip.AddrPort, b []byte) // sees every packet
	tapStreams func(to netip.AddrPort, b []byte)
}

func newMemnet(seed uint64) *memnet {
	return &memnet{rnd: rand.New(rand.NewPCG(seed, 5)), at: make(map[netip.AddrPort]*port), group: make(map[netip.AddrPort]int), delay: time.Millisecond,
		jitter: time.Millisecond}
}

func memAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(i / 250), byte(i%250 + 1)}), 7946)
}

func (n *memnet) lose(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = share
}

func (n *memnet) sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.packets
}

// mute has nobody hear an address any more, stall no stream get through.
func (n *memnet) mute(addr netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted = addr
}

func (n *memnet) stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalled = true
}

// split puts addresses into groups that do not hear each other; nothing: one network again.
func (n *memnet) split(groups ...[]netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.group)
	for i, g := range groups {
		for _, a := range g {
			n.group[a] = i
		}
	}
}

// port is one member's transport.
type port struct {
	net     *memnet
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{}
}

func (n *memnet) transport(addr netip.AddrPort) func(*log.Logger) (memberlist.Transport, error) {
	return func(*log.Logger) (memberlist.Transport, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.at[addr] != nil {
			return nil, fmt.Errorf("%s: address already in use", addr)
		}
		p := &port{n, addr, make(chan *memberlist.Packet, 1024), make(chan net.Conn, 128), make(chan struct{})}
		n.at[addr] = p
		return p, nil
	}
}

func (p *port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.addr.Addr().AsSlice(), int(p.addr.Port()), nil
}
func (p *port) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *port) StreamCh() <-chan net.Conn           { return p.streams }

func (p *port) Shutdown() error {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.net.at[p.addr] == p {
		delete(p.net.at, p.addr)
		close(p.closed)
	}
	return nil
}

// reach is the port at an address, and how many copies of a packet get there after what time.
func (n *memnet) reach(from, to netip.AddrPort) (p *port, copies int, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	after = n.delay + time.Duration(n.rnd.Int64N(int64(n.jitter)+1))
	copies = 1
	switch r := n.rnd.Float64(); {
	case r < n.loss:
		copies = 0
	case r < n.loss+n.twice:
		copies = 2
	}
	if n.group[from] != n.group[to] || from == n.muted {
		return nil, 0, after
	}
	return n.at[to], copies, after
}

func (p *port) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	p.net.mu.Lock()
	p.net.packets++
	tap := p.net.tap
	p.net.mu.Unlock()
	if tap != nil {
		tap(p.addr, to, append([]byte(nil), b...))
	}
	peer, copies, after := p.net.reach(p.addr, to)
	for range copies {
		if peer != nil {
			peer.inject(append([]byte(nil), b...), p.addr, after)
		}
	}
	return time.Now(), nil
}

// inject has a packet arrive.
func (p *port) inject(b []byte, from netip.AddrPort, after time.Duration) {
	time.AfterFunc(after, func() {
		select {
		case p.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}:
		default:
		}
	})
}

func (p *port) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	peer, _, after := p.net.reach(p.addr, to)
	p.net.mu.Lock()
	cut := p.net.group[p.addr] != p.net.group[to] || p.addr == p.net.muted || to == p.net.muted
	stalled := p.net.stalled
	tap := p.net.tapStreams
	p.net.mu.Unlock()
	if stalled {
		<-time.After(timeout)
		return nil, os.ErrDeadlineExceeded
	}
	if cut {
		<-time.After(timeout)
		return nil, errors.New("i/o timeout")
	}
	<-time.After(after)
	if peer == nil {
		return nil, errors.New("connection refused")
	}
	mine, theirs := memconn.Pipe(1 << 20)
	select {
	case peer.streams <- theirs:
	case <-peer.closed:
		return nil, errors.New("connection refused")
	}
	if tap != nil {
		return &tapped{mine, to, tap}, nil
	}
	return mine, nil
}

type tapped struct {
	net.Conn
	to  netip.AddrPort
	tap func(netip.AddrPort, []byte)
}

func (t *tapped) Write(b []byte) (int, error) {
	t.tap(t.to, append([]byte(nil), b...))
	return t.Conn.Write(b)
}
