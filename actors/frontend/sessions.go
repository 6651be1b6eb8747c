package frontend

import (
	"strconv"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend/prepared"
	"fencepost/actors/strategy"
	"fencepost/admin"
	"fencepost/eventloop"
	"fencepost/pgerr"
)

// Sessions is the parent of all frontends of one event loop, and lives on that loop: it may look at them directly.
type Sessions struct {
	Deps *Deps
	Loop eventloop.Loop

	spawner *eventloop.Spawner
	first   *Frontend
	count   int

	// The prepared statements of the loop's clients and server connections, and where messages about them are rewritten.
	statements prepared.Store
	scratch    []byte
}

// statementLimit is max_prepared_statements.
func (s *Sessions) statementLimit() int { return s.Deps.Settings.Load().MaxStatements }

// keepScratch keeps memory for the next chunk that is rewritten, unless a large one was.
func (s *Sessions) keepScratch(b []byte) {
	if b != nil && cap(b) <= 128<<10 {
		s.scratch = b[:0]
	}
}

// SessionsProps are the props of a Sessions actor.
func SessionsProps(s *Sessions) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return s }, actor.WithDispatcher(s.Loop),
		actor.WithMailbox(func() actor.Mailbox { return s.Loop.NewMailbox() }), actor.WithSupervisor(strategy.Stop(s.Deps.Log)))
}

// Receive implements actor.Actor.
func (s *Sessions) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Admit:
		s.admit(ctx, m)
	case *actor.Started:
		s.spawner = eventloop.NewSpawner(s.Loop)
	case *actor.Terminated:
		s.Deps.Clients.Add(-1)
	case *admin.DescribeClients:
		rows := make([]admin.ClientRow, 0, s.count)
		for f := s.first; f != nil; f = f.next {
			if !m.ConsoleOnly || f.phase == console {
				rows = append(rows, f.row())
			}
		}
		m.Reply <- rows
	case *admin.Drain:
		for f := s.first; f != nil; {
			next := f.next
			if m.Database == "" || m.Database == f.database {
				f.drain(pgerr.Shutdown(), m.AtOnce)
			}
			f = next
		}
	case *Recheck:
		st := s.Deps.Settings.Load()
		for f := s.first; f != nil; {
			next := f.next
			f.recheck(st)
			f = next
		}
	case *admin.Kill:
		m.Reply <- s.kill(m.ID)
	case *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		s.Deps.Log.Error().Type("message_type", m).Msg("sessions: unhandled message")
	}
}

func (s *Sessions) admit(ctx actor.Context, m *Admit) {
	id := s.Deps.NextID()
	s.Deps.Clients.Add(1)
	// The mailbox keeps the producer for restarts, which frontends do not have: it must not keep the login with it.
	from := &startup{admit: m, settings: s.Deps.Settings.Load()}
	_, err := s.spawner.SpawnNamed(ctx, strconv.FormatUint(id, 36), func(mb *eventloop.Mailbox) actor.Actor {
		f := &Frontend{id: id, deps: s.Deps, loop: s.Loop, sessions: s, mb: mb, connected: from.admit.Since, startup: from}
		from = nil
		s.add(f)
		return f
	})
	if err != nil {
		s.Deps.Clients.Add(-1)
		if s.first != nil && s.first.id == id {
			s.remove(s.first)
		}
		m.Socket.Close()
		s.Deps.Log.Error().Err(err).Msg("spawn frontend")
	}
}

func (s *Sessions) add(f *Frontend) {
	f.next = s.first
	if s.first != nil {
		s.first.prev = f
	}
	s.first = f
	s.count++
}

func (s *Sessions) remove(f *Frontend) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		s.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
	s.count--
}

func (s *Sessions) kill(id uint64) bool {
	for f := s.first; f != nil; f = f.next {
		if f.id == id {
			f.kill()
			return true
		}
	}
	return false
}
