package frontend

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/pgerr"
	"fencepost/wire"
)

// loginData handles what a client sends while it logs in: password messages, one at a time.
func (f *Frontend) loginData(p []byte) {
	if f.startup.stepping {
		f.conn.Stash(p)
		f.conn.Pause()
		return
	}
	if len(p) < 5 {
		f.conn.Stash(p)
		return
	}
	var sc wire.Scanner
	m, n, err := sc.Next(p)
	switch {
	case err != nil:
		f.fail(pgerr.As(err))
	case m.Type == wire.MsgTerminate:
		f.vanish(io.EOF)
	case m.Type != wire.MsgPasswordResponse:
		f.fail(pgerr.ProtocolViolation("expected a password message"))
	case m.Len > loginMessageLimit:
		f.fail(pgerr.ProtocolViolation("password message too long"))
	case !m.Last:
		f.conn.Stash(p)
	default:
		f.conn.Stash(p[n:])
		f.conn.Pause() // until the step is taken: what follows in p is delivered again then
		f.step(m.Body)
	}
}

// step takes one message of the exchange; what costs milliseconds runs on a goroutine that answers by message.
func (f *Frontend) step(body []byte) {
	e := f.startup.exchange
	if !e.Slow() {
		out, done, err := e.Step(nil, body)
		f.stepped(&authenticated{out, done, err})
		return
	}
	f.startup.stepping = true
	body = append([]byte(nil), body...)
	root, self := f.root, f.self
	go func() {
		out, done, err := e.Step(nil, body)
		root.Send(self, &authenticated{out, done, err})
	}()
}

func (f *Frontend) stepped(m *authenticated) {
	if f.phase != login {
		return
	}
	f.startup.stepping = false
	if len(m.out) > 0 {
		f.conn.Write(m.out)
	}
	switch {
	case m.err != nil:
		f.loginFailed(m.err)
	case m.done:
		f.loggedIn()
	default:
		f.conn.Resume()
	}
}

func (f *Frontend) loginFailed(err error) {
	if cause := errors.Unwrap(err); cause != nil && f.startup.settings.LogErrors {
		f.deps.Log.Info().Str("user", f.user).Str("database", f.database).Err(cause).Msg("login refused")
	}
	f.fail(pgerr.As(err))
}

// loggedIn goes on with a client that has proved who it is.
func (f *Frontend) loggedIn() {
	st := f.startup.settings
	if Consoles[f.database] {
		f.openConsole()
		return
	}
	if f.deps.Draining.Load() {
		f.fail(pgerr.ShutdownLogin())
		return
	}
	route, e := st.Route(f.database, f.user)
	if e != nil {
		f.fail(e)
		return
	}
	f.setRoute(route)
	f.mode = route.Mode
	f.phase, f.attached = attaching, true
	f.conn.Pause()
	f.req++
	f.lane = f.deps.Lanes[f.loop.Index()]
	// From here on the lane watches the clock: it knows why a client waits.
	f.loop.StopTimer(&f.startup.timer)
	f.root.Send(f.lane, &lane.Attach{Req: f.req, From: f.self, Pool: route.Pool, Spec: route.Spec, Target: f.target, Deadline: f.attachBy(), Since: f.connected})
}

// attachBy is until when the lane may take to say what its servers report: a client that logs in waits for a server no
// longer than one that has a query.
func (f *Frontend) attachBy() time.Time {
	by := f.startup.deadline
	if limit := f.route.Spec.WaitLimit; limit > 0 {
		if d := f.loop.Now().Add(limit); by.IsZero() || d.Before(by) {
			by = d
		}
	}
	return by
}

func (f *Frontend) attachRefused(m *lane.AttachRefused) {
	if f.phase != attaching || m.Req != f.req {
		return
	}
	f.fail(m.Err)
}

// completeLogin tells the client what its pool's servers reported, with its own wishes on top, and its cancel key.
func (f *Frontend) completeLogin(m *lane.Attached) {
	if f.phase != attaching || m.Req != f.req {
		return
	}
	f.lane, f.stats = m.Lane, m.Stats
	f.params = m.Startup.Params.Overlay(f.startup.wanted)
	values := f.params.Values()
	out := wire.AppendAuthenticationOk(nil)
	for _, p := range m.Startup.Parameters {
		value := p[1]
		if i := f.deps.Names.Index(p[0]); i >= 0 && values[i] != backend.Unknown {
			value = values[i]
		}
		out = wire.AppendParameterStatus(out, p[0], value)
	}
	f.ready(out)
}

// ready ends the login: out is sent with the cancel key and the first ReadyForQuery behind it.
func (f *Frontend) ready(out []byte) {
	st := f.startup.settings
	f.key = newKey(st.PeerID, f.startup.admit.Startup.NegotiatedVersion())
	f.bound = true
	f.root.Send(f.deps.Cancel, &Bind{Key: f.key, PID: f.self})
	out = wire.AppendBackendKeyData(out, f.key.PID, f.key.Secret)
	out = wire.AppendReadyForQuery(out, wire.TxIdle)
	if st.LogConnections {
		f.deps.Log.Info().Uint64("client", f.id).Str("user", f.user).Str("database", f.database).Str("addr", addrText(f.conn.RemoteAddr())).Msg("client logged in")
	}
	f.loop.StopTimer(&f.startup.timer)
	f.startup = nil
	if f.phase != console {
		f.phase = idle
	}
	f.conn.Write(out)
	f.conn.Resume()
	if f.ending != nil {
		f.boundary()
	}
}

// addrText is where a client comes from, for the log: "unix" is the Unix socket.
func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return "unix"
	}
	return a.String()
}
