// Package network is the network between the members of a fleet, and between them and the servers, on one machine: any two
// can be cut off from each other, in one direction or in both, while everybody else goes on.
//
// Members know a server, and each other, by an address; it has to be the same for all of them, and so it is the address of
// a port here, behind which is the real one. Who is at the other end of a connection is found by the process that has
// the socket, and of a datagram by the address it came from.
//
//	n := network.New()
//	defer n.Close()
//	front, err := n.Server("a", "127.0.0.1:5432")
//	where, err := n.Member("m1", "127.0.0.1:7946")   // to be advertised
//	n.Runs("m1", pid)
//	n.Cut("m1", "a")
//
// A member that writes and closes at once may be gone before it was looked for: then it passes, unless somebody is cut off
// from where it goes.
//
// Between those who are cut off nothing passes: datagrams are lost, bytes and the ends of connections wait until Heal, as TCP
// would see to by sending again. A new connection is taken and stays silent, as that of a host which is frozen, where a real
// network would leave the connect itself without an answer; one to a member ends with the cut.
package network

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Network is the whole of it. All methods may be called from any goroutine.
type Network struct {
	gone    chan struct{} // closed by Close
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ended bool
	pids  map[int]string
	ports map[string]*port // of members and servers, by name
	binds map[string]string
	shut  map[way]*gate
	conns map[net.Conn]struct{}
}

// way is a direction between two.
type way struct{ from, to string }

// gate is shut as long as open is not closed.
type gate struct{ open chan struct{} }

// port stands for a server or a member.
type port struct {
	name, target string
	tcp          net.Listener
	udp          net.PacketConn // nil: a server
}

// New makes a network without anybody.
func New() *Network {
	return &Network{gone: make(chan struct{}), pids: map[int]string{}, ports: map[string]*port{}, binds: map[string]string{}, shut: map[way]*gate{},
		conns: map[net.Conn]struct{}{}}
}

// Runs says that a process is a member.
func (n *Network) Runs(name string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pids[pid] = name
}

// Ran says that the process has ended.
func (n *Network) Ran(pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pids, pid)
}

// Server makes a port for a server at target, and returns its address.
func (n *Network) Server(name, target string) (addr string, err error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	n.add(&port{name: name, target: target, tcp: ln})
	return ln.Addr().String(), nil
}

// Member makes a port for a member that listens at target, TCP and UDP, and returns its address.
func (n *Network) Member(name, target string) (addr string, err error) {
	for range 20 { // a port that is free for TCP may not be for UDP
		var ln net.Listener
		if ln, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			break
		}
		var udp net.PacketConn
		if udp, err = net.ListenPacket("udp4", ln.Addr().String()); err != nil {
			ln.Close()
			continue
		}
		n.add(&port{name: name, target: target, tcp: ln, udp: udp})
		return ln.Addr().String(), nil
	}
	return "", fmt.Errorf("network: %w", err)
}

func (n *Network) add(p *port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[p.name] = p
	n.running.Go(func() { n.accept(p) })
	if p.udp != nil {
		n.binds[p.target] = p.name
		n.running.Go(func() { n.datagrams(p) })
	}
}

// Cut lets nothing pass between two, whoever they are, until Heal.
func (n *Network) Cut(a, b string) {
	n.CutWay(a, b)
	n.CutWay(b, a)
}

// CutWay lets nothing pass from one to another, until Heal.
func (n *Network) CutWay(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shut[way{from, to}] == nil {
		n.shut[way{from, to}] = &gate{make(chan struct{})}
	}
}

// Heal undoes what was cut between two.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heal(way{a, b})
	n.heal(way{b, a})
}

// HealAll undoes all of it.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.shut {
		n.heal(w)
	}
}

func (n *Network) heal(w way) {
	if g := n.shut[w]; g != nil {
		close(g.open)
		delete(n.shut, w)
	}
}

// Close ends all of it, and waits for its goroutines.
func (n *Network) Close() {
	n.mu.Lock()
	if n.ended {
		n.mu.Unlock()
		return
	}
	n.ended = true
	close(n.gone)
	for _, p := range n.ports {
		p.tcp.Close()
		if p.udp != nil {
			p.udp.Close()
		}
	}
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// gateOf is what shuts a way; nil: nothing does.
func (n *Network) gateOf(from, to string) *gate {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shut[way{from, to}]
}

// cutOff reports whether anybody cannot reach it.
func (n *Network) cutOff(to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.shut {
		if w.to == to {
			return true
		}
	}
	return false
}

// passes waits until the way is open; false once the network has ended.
func (n *Network) passes(from, to string) bool {
	for {
		g := n.gateOf(from, to)
		if g == nil {
			return true
		}
		select {
		case <-g.open:
		case <-n.gone:
			return false
		}
	}
}

// datagrams passes on what arrives for a member, as if it came from the port of its sender.
func (n *Network) datagrams(to *port) {
	buf := make([]byte, 64<<10)
	for {
		size, src, err := to.udp.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		n.mu.Lock()
		from := n.ports[n.binds[src.String()]]
		n.mu.Unlock()
		target, err := net.ResolveUDPAddr("udp4", to.target)
		if err != nil || from == nil || from.udp == nil || n.gateOf(from.name, to.name) != nil {
			continue
		}
		from.udp.WriteTo(buf[:size], target) //nolint:errcheck // a datagram that is lost is lost
	}
}
