package monitor

import (
	"context"
	"net"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/role"
)

// Config says what a monitor watches and how.
type Config struct {
	// Host is an address, "ip:port", or a unix socket, "/directory:port". A name is resolved by the operating system at
	// every connect, without anybody hearing of it: see Names.
	Host role.Host
	// To gets the messages; nil: the monitor's parent.
	To *actor.PID
	// Names, if not nil, gets a Refresh of Name with every attempt to connect: Name is the one of the settings that Host is
	// an address of. The attempt does not wait for it.
	Names *actor.PID
	Name  string

	User, Database string
	// Password is asked at every connect. It may block until ctx ends. nil: no password.
	Password func(ctx context.Context) (string, error)
	// Dial connects, as net.Dialer.DialContext does; nil: that, without keep-alive.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Mode Mode // how to begin; zero fields: 1 s and LongBackoff
	// How long things may take; 0: the default.
	Late       time.Duration // a probe before Late is reported: 1 s
	Unanswered time.Duration // a probe before the connection is given up: 10 s
	Connect    time.Duration // until connected: 3 s
	Login      time.Duration // until logged in, the time to connect included: 10 s

	Log zerolog.Logger
}

// DefaultUnanswered is the default of Config.Unanswered.
const DefaultUnanswered = 10 * time.Second

func (c Config) withDefaults() *Config {
	if c.Password == nil {
		c.Password = func(context.Context) (string, error) { return "", nil }
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	for d, def := range map[*time.Duration]time.Duration{
		&c.Late: time.Second, &c.Unanswered: DefaultUnanswered, &c.Connect: 3 * time.Second, &c.Login: 10 * time.Second,
		&c.Mode.Interval: time.Second, &c.Mode.Backoff: LongBackoff,
	} {
		if *d == 0 {
			*d = def
		}
	}
	return &c
}

// Props spawns a monitor, on the ordinary dispatcher; one actor per Props. A restarted one knows the last Mode and nothing
// else: it connects anew.
func Props(c Config) *actor.Props {
	cfg := c.withDefaults()
	return actor.PropsFromProducer(func() actor.Actor { return &monitor{cfg: cfg} })
}

// monitor is the actor: it carries out what its machine decides.
type monitor struct {
	cfg     *Config
	machine machine
	journal journal
	worker  *worker
	probe   context.CancelFunc // ends the worker's watch, so that it probes; nil: it does not watch
	timer   *time.Timer
	armed   time.Time // when timer fires; zero: not armed
	timerID uint64
}

// Receive implements actor.Actor.
func (m *monitor) Receive(ctx actor.Context) {
	now := time.Now()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		m.started(ctx, now)
	case *ProbeNow:
		m.execute(ctx, now, m.machine.probeNow(now))
	case *Mode:
		m.cfg.Mode = *msg
		m.execute(ctx, now, m.machine.setMode(now, *msg))
	case *Reconnect:
		m.execute(ctx, now, m.machine.reconnect(now, msg.Before))
	case *Close:
		ctx.Stop(ctx.Self())
	case tick:
		if msg.id == m.timerID {
			m.armed = time.Time{}
			m.execute(ctx, now, m.machine.tick(now))
		}
	case dialed:
		m.dialed(ctx, now, msg)
	case probed:
		m.probed(ctx, now, msg)
	case dropped:
		if msg.by == m.worker {
			m.endListening()
			m.execute(ctx, now, m.machine.lost(now, msg.cause))
		}
	case *actor.Stopping, *actor.Restarting:
		m.end()
	case *actor.Stopped:
	default:
		m.cfg.Log.Error().Str("host", string(m.cfg.Host)).Type("message_type", msg).Msg("monitor: unhandled message")
	}
}

func (m *monitor) started(ctx actor.Context, now time.Time) {
	m.startWorker(ctx)
	m.journal = journal{log: m.cfg.Log.With().Str("host", string(m.cfg.Host)).Logger()}
	m.machine = machine{host: m.cfg.Host, late: m.cfg.Late}
	m.machine.setMode(now, m.cfg.Mode)
	m.execute(ctx, now, m.machine.start(now))
}

func (m *monitor) startWorker(ctx actor.Context) {
	root, self := ctx.ActorSystem().Root, ctx.Self()
	m.worker = startWorker(m.cfg, func(r any) { root.Send(self, r) })
}

func (m *monitor) dialed(ctx actor.Context, now time.Time, msg dialed) {
	switch {
	case msg.by != m.worker:
	case msg.failed != nil:
		m.execute(ctx, now, m.machine.refused(now, msg.failed))
	default:
		m.listen()
		m.execute(ctx, now, m.machine.connected(now))
	}
}

func (m *monitor) probed(ctx actor.Context, now time.Time, msg probed) {
	switch {
	case msg.by != m.worker:
		return
	case msg.senseless != nil:
		m.listen()
		m.execute(ctx, now, m.machine.senseless(now, msg.senseless))
	default:
		m.listen()
		m.execute(ctx, now, m.machine.answered(now, msg.id))
	}
}

// listen has the worker watch the connection until the next probe is asked.
func (m *monitor) listen() {
	m.endListening()
	hold, probe := context.WithCancel(m.worker.life)
	m.probe = probe
	m.worker.jobs <- job{hold}
}

// endListening ends a watch that the worker is past.
func (m *monitor) endListening() {
	if m.probe != nil {
		m.probe()
		m.probe = nil
	}
}

func (m *monitor) execute(ctx actor.Context, now time.Time, effects []effect) {
	to := m.cfg.To
	if to == nil {
		to = ctx.Parent()
	}
	for _, e := range effects {
		switch e := e.(type) {
		case dial:
			m.worker.jobs <- job{}
			if m.cfg.Names != nil {
				ctx.Send(m.cfg.Names, &Refresh{Name: m.cfg.Name})
			}
		case hangUp: // the worker may be in the middle of a probe; what it still reports is not its successor's
			m.worker.end()
			m.endListening()
			m.startWorker(ctx)
		case ask:
			m.probe()
		default:
			m.journal.note(now, e)
			if to != nil {
				ctx.Send(to, e)
			}
		}
	}
	m.arm(ctx)
}

// arm sets the timer for what the machine has to do next.
func (m *monitor) arm(ctx actor.Context) {
	next := m.machine.next()
	if next.Equal(m.armed) {
		return
	}
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timerID++
	m.armed = next
	if next.IsZero() {
		return
	}
	root, self, id := ctx.ActorSystem().Root, ctx.Self(), m.timerID
	m.timer = time.AfterFunc(time.Until(next), func() { root.Send(self, tick{id}) })
}

// end gives up the connection and the goroutine. It may be called twice.
func (m *monitor) end() {
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timerID++
	if m.worker != nil {
		m.worker.end()
	}
	m.endListening()
}
