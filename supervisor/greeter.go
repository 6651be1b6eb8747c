package supervisor

import (
	"time"

	"fencepost/actors/frontend"
	"fencepost/eventloop"
	"fencepost/pgerr"
	"fencepost/wire"
)

// greeter is a connection whose startup packet is not complete. It is not an actor: most that is odd about clients
// (health checks, scanners, half-open sockets) ends here.
type greeter struct {
	l         *listener
	conn      eventloop.Conn
	timer     eventloop.Timer
	since     time.Time
	limit     time.Duration
	askedTLS  bool
	askedGSS  bool
	cancelled bool // a CancelRequest is being dealt with
}

// Bounds on connections that are not sessions: cancel requests being dealt with, whose budget is their own so that a flood
// of them takes nothing from logins, and connections that have not said yet what they want, beside max_client_conn.
const (
	maxCancelling = 512
	maxSilent     = 1024
)

// errorFlush is how long a refused client has to take its error.
const errorFlush = 2 * time.Second

// lastSilent is how many connections that have not said what they want are kept when no client can be served any more. They are
// among the process's own files.
const lastSilent = 16

// spare is how many clients can be served beside those that are there.
func (l *listener) spare() int {
	return l.s.files.Load().spare(int(l.s.clients.Load()), l.s.budgets.Used)
}

// greet takes a new connection.
func (l *listener) greet(s eventloop.Socket) {
	g := &greeter{l: l, since: l.loop.Now(), limit: l.s.config.Load().Fencepost.ClientLoginTimeout}
	silent := len(l.greeting) - l.cancelling
	if silent >= maxSilent+l.s.config.Load().Fencepost.MaxClientConn {
		s.Close()
		return
	}
	c, err := l.loop.Adopt(s, g, nil)
	if err != nil {
		return
	}
	g.conn = c
	if silent >= lastSilent && silent >= lastSilent+l.spare() { // no file is left for one that takes its time
		g.refuse(pgerr.TooManyFiles())
		return
	}
	l.greeting[g] = struct{}{}
	g.timer.Fire = g.close
	if g.limit > 0 {
		l.loop.SetTimer(&g.timer, g.limit)
	}
}

func (g *greeter) close() {
	g.forget()
	g.conn.Close()
}

func (g *greeter) forget() {
	if _, here := g.l.greeting[g]; here && g.cancelled {
		g.l.cancelling--
	}
	delete(g.l.greeting, g)
	g.l.loop.StopTimer(&g.timer)
}

// OnData implements eventloop.Handler.
func (g *greeter) OnData(c eventloop.Conn, b []byte) {
	if g.cancelled {
		return
	}
	s, n, err := wire.ParseStartup(b)
	if err != nil {
		if s.Kind == wire.DirectTLS || s.Kind == wire.CancelRequest { // neither reads an answer
			g.close()
			return
		}
		g.refuse(pgerr.As(err))
		return
	}
	if n == 0 {
		c.Stash(b)
		return
	}
	switch s.Kind {
	case wire.SSLRequest, wire.GSSENCRequest:
		g.encryption(s.Kind, b[n:])
	case wire.CancelRequest:
		g.cancel(s.CancelKey)
	case wire.StartupMessage:
		g.admit(s, b[n:])
	}
}

// encryption declines. Bytes that were sent behind the request could be taken for encrypted ones later: refused, as
// PostgreSQL does.
func (g *greeter) encryption(kind wire.Kind, rest []byte) {
	asked := &g.askedTLS
	if kind == wire.GSSENCRequest {
		asked = &g.askedGSS
	}
	switch {
	case len(rest) > 0:
		g.refuse(pgerr.UnencryptedData(kind.String()))
	case *asked:
		g.refuse(pgerr.ProtocolViolation("repeated " + kind.String()))
	default:
		*asked = true
		g.conn.Write([]byte{wire.EncryptionRefused})
	}
}

// cancel passes the request on and keeps the connection until it has been dealt with: clients wait for its close.
func (g *greeter) cancel(key wire.CancelKey) {
	if g.l.cancelling >= maxCancelling {
		g.close()
		return
	}
	g.cancelled = true
	g.l.cancelling++
	loop := g.l.loop
	done := func() { loop.Post(g.close) }
	g.l.s.system.Root.Send(g.l.s.tree.cancel, &frontend.CancelRequest{Key: key, Done: done})
}

func (g *greeter) admit(s wire.Startup, rest []byte) {
	if g.l.s.closed.Load() && !g.isAdmin(s) {
		g.refuse(pgerr.ShutdownLogin())
		return
	}
	database := s.Database
	if database == "" {
		database = s.User
	}
	if !frontend.Consoles[database] && g.l.spare() <= 0 {
		g.refuse(pgerr.TooManyFiles())
		return
	}
	early := append([]byte(nil), rest...)
	g.conn.Unstash()
	socket, err := g.conn.Detach()
	if err != nil {
		g.close()
		return
	}
	g.forget()
	timeout := g.limit
	if timeout > 0 {
		timeout = max(timeout-g.l.loop.Now().Sub(g.since), time.Millisecond)
	}
	to := g.l.s.tree.sessions[g.l.place(database, s.User)]
	g.l.s.system.Root.Send(to, &frontend.Admit{Socket: socket, Startup: s, Early: early, Since: g.since, Timeout: timeout})
}

// isAdmin reports whether an admin asks for the console on the Unix socket, who is served while the process drains.
func (g *greeter) isAdmin(s wire.Startup) bool {
	return frontend.Consoles[s.Database] && !g.conn.RemoteAddr().IsValid() && g.l.s.settings.Load().Admins[s.User]
}

func (g *greeter) refuse(e *pgerr.Error) {
	g.forget()
	g.conn.Write(wire.AppendError(nil, e))
	g.conn.CloseFlushed(errorFlush)
}

// OnDrained implements eventloop.Handler.
func (g *greeter) OnDrained(eventloop.Conn) {}

// OnClosed implements eventloop.Handler. A canceller that closes at once has still asked.
func (g *greeter) OnClosed(eventloop.Conn, error) { g.close() }
