package eventloop

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
)

// Group is the event loops of a process.
type Group struct {
	opt   Options
	loops []*loop
	sim   *simulation
	once  sync.Once

	running sync.WaitGroup // goroutines of streams and acceptors

	// mu guards what follows; nothing is locked while it is held.
	mu      sync.Mutex
	stopped bool
	streams map[*stream]int // how many of its goroutines run
}

// NewGroup starts the loops. For Epoll loops it raises GOMAXPROCS to one more than their number if it is lower, and fixes
// it: a loop that waits keeps its processor for some milliseconds, and everything else needs one too.
func NewGroup(opt Options) (*Group, error) {
	if opt.Kind == "" {
		opt.Kind = defaultKind
		if opt.Seed != nil {
			opt.Kind = Portable
		}
	}
	opt.Loops = max(opt.Loops, 1)
	switch {
	case opt.Kind != Epoll && opt.Kind != Portable:
		return nil, fmt.Errorf("eventloop: no loops of kind %q", opt.Kind)
	case opt.Seed != nil && opt.Kind != Portable:
		return nil, errors.New("eventloop: only portable loops can be seeded")
	}
	g := &Group{opt: opt, streams: map[*stream]int{}}
	for i := range opt.Loops {
		l := newLoop(g, i)
		if opt.Kind == Portable {
			l.poll = newPortable(l)
		} else {
			p, err := newEpoll(l)
			if err != nil {
				for _, l := range g.loops {
					l.poll.close()
				}
				return nil, err
			}
			l.poll = p
		}
		g.loops = append(g.loops, l)
	}
	if opt.Kind == Epoll {
		// Also where it is high enough: once set, the runtime does not lower it when the process is given fewer cores.
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), opt.Loops+1))
	}
	if opt.Seed != nil {
		g.sim = newSimulation(g, *opt.Seed)
		go g.sim.run()
		return g, nil
	}
	for _, l := range g.loops {
		go l.run()
	}
	return g, nil
}

// Loops are all loops, in the order of their index.
func (g *Group) Loops() []Loop {
	all := make([]Loop, len(g.loops))
	for i, l := range g.loops {
		all[i] = l
	}
	return all
}

// Loop is the loop with index i.
func (g *Group) Loop(i int) Loop { return g.loops[i] }

// Socket takes a connection over, so that a loop of the group can adopt it (any goroutine). For Epoll loops its
// descriptor is taken out of Go's netpoller, which needs a *net.TCPConn or *net.UnixConn; Portable loops take any
// net.Conn. nc must not be used any more, also when an error is returned: it is closed then.
func (g *Group) Socket(nc net.Conn) (Socket, error) {
	if g.opt.Kind == Portable {
		return g.streamSocket(nc), nil
	}
	s, err := fdSocket(nc)
	if err != nil {
		return nil, fmt.Errorf("take over a connection: %w", err)
	}
	return s, nil
}

func (g *Group) streamSocket(nc net.Conn) *socket {
	return &socket{stream: newStream(g, nc), fd: -1, unix: isUnix(nc.LocalAddr()), remote: addrPort(nc.RemoteAddr())}
}

// Stop ends the loops, once what was posted before has run, closes their listeners and connections without any callback
// and waits until all of it is gone (Portable: within streamLinger, for peers that do not read what was written to
// them). It must not be called on a loop. Idempotent.
func (g *Group) Stop() {
	g.once.Do(func() {
		for _, l := range g.loops {
			l.stop()
		}
	})
	for _, l := range g.loops {
		<-l.ended
	}
	g.mu.Lock()
	g.stopped = true
	left := make([]*stream, 0, len(g.streams))
	for s := range g.streams {
		left = append(left, s)
	}
	g.mu.Unlock()
	for _, s := range left {
		if !s.isClosed() {
			s.close() // detached and adopted by nobody
		}
	}
	g.running.Wait()
}

// begin accounts for a goroutine, unless the group has stopped.
func (g *Group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running.Add(1)
	return true
}

// open accounts for the two goroutines of a stream.
func (g *Group) open(s *stream) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running.Add(2)
	g.streams[s] = 2
	return true
}

// done is called by each of them at its end.
func (g *Group) done(s *stream) {
	g.mu.Lock()
	if g.streams[s]--; g.streams[s] == 0 {
		delete(g.streams, s)
	}
	g.mu.Unlock()
	g.running.Done()
}
