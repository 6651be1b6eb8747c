package network

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports is a network of ports of the loopback interface, for whoever is not root. Members know a server, and each other, by
// an address that is the same for all of them: that of a port here, behind which is the real one. Who is at the other end of
// a connection is found by the process that has the socket, which Runs has announced, and of a datagram by the address it
// came from. A member that writes and closes at once may be gone before it was looked for: then it passes, unless somebody is
// cut off from where it goes.
//
// Between those who are cut off nothing passes: datagrams are lost, bytes and the ends of connections wait until Heal, as TCP
// would see to by sending again. A new connection is taken and stays silent, as that of a host which is frozen, where a real
// network would leave the connect itself without an answer; one to a member ends with the cut. What Lose loses are datagrams
// alone.
type Ports struct {
	relays

	// relays.mu guards what follows.
	pids   map[int]string
	ports  map[string]*port // of members and servers, by name
	binds  map[string]string
	shut   map[way]*gate
	losses map[way]int // in a hundred
}

// gate is shut as long as open is not closed.
type gate struct{ open chan struct{} }

// port stands for a server or a member.
type port struct {
	name, target string
	tcp          net.Listener
	udp          net.PacketConn // nil: a server
}

// NewPorts makes a network without anybody.
func NewPorts() *Ports {
	n := &Ports{pids: map[int]string{}, ports: map[string]*port{}, binds: map[string]string{}, shut: map[way]*gate{}, losses: map[way]int{}}
	n.init()
	return n
}

// Host implements [Network]: members share the machine's address.
func (n *Ports) Host(string) (ip string, err error) { return "127.0.0.1", nil }

// Command implements [Network].
func (n *Ports) Command(_ string, argv ...string) []string { return argv }

// Runs implements [Network].
func (n *Ports) Runs(name string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pids[pid] = name
}

// Ran implements [Network].
func (n *Ports) Ran(pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pids, pid)
}

// Server implements [Network].
func (n *Ports) Server(name, target string) (addr string, err error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	n.add(&port{name: name, target: target, tcp: ln})
	return ln.Addr().String(), nil
}

// Lead puts another server behind a server's port, as a service does whose address stays the same. Connections that are open stay
// where they are.
func (n *Ports) Lead(name, target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[name].target = target
}

// Member implements [Network].
func (n *Ports) Member(name, target string) (addr string, err error) {
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

func (n *Ports) add(p *port) {
	n.mu.Lock()
	n.ports[p.name] = p
	if p.udp != nil {
		n.binds[p.target] = p.name
	}
	n.mu.Unlock()
	n.accept(p.tcp, func(c net.Conn) { n.carry(c, p) })
	if p.udp != nil && n.keep(p.udp) {
		n.running.Go(func() { n.datagrams(p) })
	}
}

// carry is one connection from its beginning to its end.
func (n *Ports) carry(client net.Conn, p *port) {
	from := n.owner(client)
	cut := n.gateOf(from, p.name) != nil
	switch {
	case from == "", from == orphan && n.cutOff(p.name), !n.passes(from, p.name):
		return
	case cut && p.udp != nil: // or a fleet would be whole sooner than on a real network
		return
	}
	n.mu.Lock()
	target := p.target
	n.mu.Unlock()
	n.join(client, target, n.delayOf(p.name), func() bool { return n.passes(from, p.name) }, func() bool { return n.passes(p.name, from) })
}

// Cut implements [Network].
func (n *Ports) Cut(a, b string) error { return errors.Join(n.CutWay(a, b), n.CutWay(b, a)) }

// CutWay implements [Network].
func (n *Ports) CutWay(from, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shut[way{from, to}] == nil {
		n.shut[way{from, to}] = &gate{make(chan struct{})}
	}
	return nil
}

// Lose implements [Network], for datagrams.
func (n *Ports) Lose(from, to string, percent int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losses[way{from, to}] = percent
	return nil
}

// Heal implements [Network].
func (n *Ports) Heal(a, b string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heal(way{a, b})
	n.heal(way{b, a})
	return nil
}

// HealAll implements [Network].
func (n *Ports) HealAll() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.shut {
		n.heal(w)
	}
	clear(n.losses)
	return nil
}

func (n *Ports) heal(w way) {
	if g := n.shut[w]; g != nil {
		close(g.open)
		delete(n.shut, w)
	}
	delete(n.losses, w)
}

// Close implements [Network]. It waits for its goroutines.
func (n *Ports) Close() error {
	n.close()
	return nil
}

// gateOf is what shuts a way; nil: nothing does.
func (n *Ports) gateOf(from, to string) *gate {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shut[way{from, to}]
}

// cutOff reports whether anybody cannot reach it.
func (n *Ports) cutOff(to string) bool {
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
func (n *Ports) passes(from, to string) bool {
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
func (n *Ports) datagrams(to *port) {
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
		from, loss := n.ports[n.binds[src.String()]], 0
		if from != nil {
			loss = n.losses[way{from.name, to.name}]
		}
		n.mu.Unlock()
		target, err := net.ResolveUDPAddr("udp4", to.target)
		if err != nil || from == nil || from.udp == nil || n.gateOf(from.name, to.name) != nil || rand.IntN(100) < loss {
			continue
		}
		from.udp.WriteTo(buf[:size], target) //nolint:errcheck // a datagram that is lost is lost
	}
}
