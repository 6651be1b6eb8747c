package supervisor

import (
	"fmt"
	"hash/maphash"
	"net"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/eventloop"
)

// listener accepts clients on the first loop and reads their startup packets; a client whose packet is complete is
// handed to the sessions of a loop that has a lane of its pool.
type listener struct {
	s          *Fencepost
	loop       eventloop.Loop
	listening  chan error
	tcp        []eventloop.Acceptor
	unix       []eventloop.Acceptor
	next       int
	seed       maphash.Seed
	lastFail   time.Time
	greeting   map[*greeter]struct{}
	cancelling int // of them: cancel requests being dealt with
}

func newListener(s *Fencepost, loop eventloop.Loop, listening chan error) *listener {
	return &listener{s: s, loop: loop, listening: listening, seed: maphash.MakeSeed(), greeting: map[*greeter]struct{}{}}
}

// Receive implements actor.Actor.
func (l *listener) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		l.listening <- l.listen()
	case yield:
		l.yield()
	case *actor.Stopping:
		l.stop()
		for g := range l.greeting {
			g.close()
		}
	case *actor.Stopped, *actor.Restarting:
	default:
		l.s.log.Error().Type("message_type", m).Msg("listener: unhandled message")
	}
}

// listen begins to accept on the sockets that are open.
func (l *listener) listen() error {
	b := l.s.sockets
	backlog := l.s.config.Load().Fencepost.ListenBacklog
	for _, ln := range b.tcp {
		addr := ln.Addr()
		if err := l.accept(ln, backlog, &l.tcp); err != nil {
			return err
		}
		l.s.log.Info().Stringer("addr", addr).Msg("listening")
	}
	if b.unix != nil {
		addr := b.unix.Addr()
		if err := l.accept(b.unix, backlog, &l.unix); err != nil {
			return err
		}
		l.s.log.Info().Stringer("addr", addr).Msg("listening")
	}
	b.released = true
	return nil
}

func (l *listener) accept(ln net.Listener, backlog int, list *[]eventloop.Acceptor) error {
	if err := setBacklog(ln, backlog); err != nil {
		return fmt.Errorf("listen_backlog: %w", err)
	}
	a, err := l.loop.Listen(ln, l.greet, l.acceptFailed)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	*list = append(*list, a)
	return nil
}

func (l *listener) acceptFailed(err error) {
	if now := l.loop.Now(); now.Sub(l.lastFail) >= time.Minute {
		l.lastFail = now
		l.s.log.Error().Err(err).Msg("cannot accept: raise the limit of open files or lower max_client_conn")
	}
}

// yield leaves a shared port to the process that takes over. A port of our own, and the Unix socket, stay open for cancels
// and admins until the end.
func (l *listener) yield() {
	if !l.s.config.Load().Fencepost.SoReuseport {
		return
	}
	for _, a := range l.tcp {
		a.Close()
	}
	l.tcp = nil
}

func (l *listener) stop() {
	for _, a := range append(l.tcp, l.unix...) {
		a.Close()
	}
	l.tcp, l.unix = nil, nil
	l.s.sockets.removeFile()
}

// place chooses the loop for a client: loops that have a lane of its pool, in turn. A pool has at most a lane per four
// connections.
func (l *listener) place(database, user string) int {
	n := len(l.s.tree.sessions)
	if n == 1 {
		return 0
	}
	lanes := n
	if r, _ := l.s.settings.Load().Route(database, user); r != nil {
		lanes = min(n, max(1, r.Spec.Size/4))
	}
	l.next++
	base := int(maphash.String(l.seed, database+"\x00"+user) % uint64(n))
	return (base + l.next%lanes) % n
}
