package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// node is where a member is reached.
type node struct {
	name string
	addr netip.AddrPort
}

func nodeOf(n *memberlist.Node) node {
	ip, _ := netip.AddrFromSlice(n.Addr)
	return node{n.Name, netip.AddrPortFrom(ip.Unmap(), n.Port)}
}

func (n node) memberlist() *memberlist.Node {
	return &memberlist.Node{Name: n.name, Addr: n.addr.Addr().AsSlice(), Port: n.addr.Port()}
}

// link is one stay in the fleet: a memberlist, the goroutines that send for it, and its callbacks. It ends with leave.
type link struct {
	store *store
	send  func(any) // to the actor; never blocks
	list  *memberlist.Memberlist
	self  netip.AddrPort

	packets chan packet
	waiting atomic.Int64 // messages that wait for a token, or are being written
	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup // the goroutines of this link

	announcing sync.Mutex // held while UpdateNode runs
	began      []byte     // the metadata at the beginning, or earlier
}

// packet is a message to some members.
type packet struct {
	message []byte
	to      []node
}

// Limits of what waits to be sent.
const (
	maxPackets     = 1024
	messagesAtOnce = 32 // to one member: one that cannot be reached holds up nobody else's
	maxMessages    = 4096
)

// open starts a memberlist. It blocks no longer than binding takes.
func open(cfg *Config, s *store, keys *memberlist.Keyring, logs io.Writer, send func(any)) (*link, error) {
	l := &link{store: s, began: *s.meta.Load(), send: send, packets: make(chan packet, maxPackets)}
	logger := log.New(logs, "", 0)
	transport, err := cfg.Transport(logger)
	if err != nil {
		return nil, fmt.Errorf("listen for the fleet on %s: %w", cfg.Bind, err)
	}
	m := cfg.list()
	m.Transport, m.Logger, m.Keyring = transport, logger, keys
	m.Delegate, m.Events, m.Ping, m.Conflict = (*callbacks)(l), (*callbacks)(l), (*callbacks)(l), (*callbacks)(l)
	if l.list, err = memberlist.Create(m); err != nil {
		_ = transport.Shutdown()
		return nil, fmt.Errorf("begin the fleet on %s: %w", cfg.Bind, err)
	}
	l.self = nodeOf(l.list.LocalNode()).addr
	l.life, l.end = context.WithCancel(context.Background())
	l.work.Go(l.deliver)
	return l, nil
}

// deliver sends packets until the link ends.
func (l *link) deliver() {
	for {
		select {
		case <-l.life.Done():
			return
		case p := <-l.packets:
			for _, n := range p.to {
				_ = l.list.SendBestEffort(n.memberlist(), p.message) // what is lost comes by gossip
			}
		}
	}
}

// sendPacket has a packet sent, if not too many wait already.
func (l *link) sendPacket(p packet) bool {
	select {
	case l.packets <- p:
		return true
	default:
		return false
	}
}

// write has a message written to a member, on a stream of its own. What cannot be written is said by undelivered.
func (l *link) write(to *member, request uint64, message []byte) bool {
	if l.waiting.Add(1) > maxMessages {
		l.waiting.Add(-1)
		return false
	}
	boot, node, streams := to.Boot, to.node.memberlist(), to.streams
	l.work.Go(func() {
		defer l.waiting.Add(-1)
		select {
		case <-l.life.Done():
			return
		case streams <- struct{}{}:
		}
		defer func() { <-streams }()
		if err := l.list.SendReliable(node, message); err != nil {
			l.send(&undelivered{to: boot, request: request, err: err})
		}
	})
	return true
}

// How long sendWithRetry waits for an answer before it writes again: at first, doubled each time, and at most.
const (
	firstAgain = 250 * time.Millisecond
	mostAgain  = time.Second
)

// sendWithRetry has a message that will be answered written to a member again and again until the answer has come: as a datagram
// each time, and beside that on a stream, one after the other. Where much is lost the datagrams get through; they do not wait for
// a stream, which takes its whole time limit where the other side is silent. The member takes the first that arrives. A stream
// that fails for another reason than that time ran out ends it with undelivered.
func (l *link) sendWithRetry(to *member, request uint64, message []byte, answered <-chan struct{}) bool {
	if l.waiting.Add(1) > maxMessages {
		l.waiting.Add(-1)
		return false
	}
	boot, node, streams := to.Boot, to.node.memberlist(), to.streams
	l.work.Go(func() {
		defer l.waiting.Add(-1)
		ended := make(chan error, 1) // of the stream; one at a time
		ended <- nil
		for wait := firstAgain; ; wait = min(2*wait, mostAgain) {
			_ = l.list.SendBestEffort(node, message)
			again := time.NewTimer(wait)
			streamEnded := ended
		waiting:
			for {
				select {
				case <-l.life.Done():
					again.Stop()
					return
				case <-answered:
					again.Stop()
					return
				case err := <-streamEnded:
					if late, timed := errors.AsType[net.Error](err); err != nil && !(timed && late.Timeout()) {
						again.Stop()
						l.send(&undelivered{to: boot, request: request, err: err})
						return
					}
					streamEnded = nil // the next one begins with the next datagram
					l.work.Go(func() { ended <- l.sendOnStream(node, message, streams, answered) })
				case <-again.C:
					break waiting
				}
			}
		}
	})
	return true
}

// sendOnStream writes a message on a stream of its own, when one of the member's is free.
func (l *link) sendOnStream(node *memberlist.Node, message []byte, streams chan struct{}, answered <-chan struct{}) error {
	select {
	case <-l.life.Done():
		return nil
	case <-answered:
		return nil
	case streams <- struct{}{}:
	}
	defer func() { <-streams }()
	return l.list.SendReliable(node, message)
}

// announce tells everybody what this member says of itself now. One at a time: of two at once, the one that read the older
// metadata could come out as the later one.
func (l *link) announce() {
	l.work.Go(func() {
		l.announcing.Lock()
		defer l.announcing.Unlock()
		_ = l.list.UpdateNode(time.Second)
	})
}

// outdated reports whether the metadata changed after the link began to open.
func (l *link) outdated() bool { return !bytes.Equal(l.began, *l.store.meta.Load()) }

// join looks the names up and talks to every address that is not known to be alive; it answers with joined.
func (l *link) join(cfg *Config, names []string, known []netip.AddrPort, dead []netip.AddrPort) {
	l.work.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, 5*time.Second)
		defer cancel()
		addrs := slices.Clone(dead)
		for _, name := range names {
			addrs = append(addrs, lookup(ctx, cfg, name)...)
		}
		slices.SortFunc(addrs, netip.AddrPort.Compare)
		addrs = slices.DeleteFunc(slices.Compact(addrs), func(a netip.AddrPort) bool { return a == l.self || slices.Contains(known, a) })
		var reached atomic.Int64
		var round sync.WaitGroup
		atOnce := make(chan struct{}, 8)
		for _, a := range addrs {
			atOnce <- struct{}{}
			round.Go(func() {
				defer func() { <-atOnce }()
				if l.life.Err() != nil {
					return
				}
				if n, _ := l.list.Join([]string{a.String()}); n > 0 {
					reached.Add(1)
				}
			})
		}
		round.Wait()
		l.send(&joined{tried: len(addrs), reached: int(reached.Load())})
	})
}

// lookup gives the addresses of "host:port"; none if there is no answer.
func lookup(ctx context.Context, cfg *Config, name string) []netip.AddrPort {
	if a, err := netip.ParseAddrPort(name); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil
	}
	ips, err := cfg.Lookup(ctx, host)
	if err != nil {
		cfg.Log.Warn().Err(err).Str("name", name).Msg("fleet: a name in join has no address")
		return nil
	}
	addrs := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(number)))
	}
	return addrs
}

// leave says goodbye to the members given and ends the link. It blocks for at most three times leaveTimeout.
func (l *link) leave(farewells map[node][]byte) error {
	for to, message := range farewells {
		_ = l.list.SendBestEffort(to.memberlist(), message)
	}
	err := l.list.Leave(leaveTimeout)
	l.end()
	err = errors.Join(err, l.list.Shutdown())
	idle := make(chan struct{})
	go func() { // ends when the last stream has timed out
		l.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(2 * leaveTimeout):
	}
	return err
}
