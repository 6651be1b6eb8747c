package frontend

import (
	"strings"

	"fencepost/actors/backend"
	"fencepost/auth"
	"fencepost/pgerr"
	"fencepost/wire"
)

// loginMessageLimit bounds messages before the session is ready.
const loginMessageLimit = auth.MaxMessage

// begin starts the login. Parameters are judged first, then the number of clients, then user and secret; whether the
// database exists is told only to who has proved to be somebody.
func (f *Frontend) begin() {
	a := f.startup.admit
	f.startup.timer.Fire = func() { f.root.Send(f.self, loginTimeout{}) }
	c, err := f.loop.Adopt(a.Socket, f, f.mb)
	if err != nil {
		f.deps.Log.Warn().Err(err).Msg("adopt client socket")
		f.phase = ended
		f.stop()
		return
	}
	f.conn = c
	if a.Timeout > 0 {
		f.startup.deadline = f.loop.Now().Add(a.Timeout)
		f.loop.SetTimer(&f.startup.timer, a.Timeout)
	}
	s := &a.Startup
	f.user, f.database = s.User, s.Database
	if f.database == "" {
		f.database = s.User
	}
	if e := f.readParameters(s); e != nil {
		f.fail(e)
		return
	}
	st := f.startup.settings
	if !Consoles[f.database] && f.deps.Clients.Load() > int64(st.MaxClients) {
		f.fail(pgerr.TooManyClients())
		return
	}
	f.authenticate(s)
}

// loginTooLong ends a login whose client took its time.
func (f *Frontend) loginTooLong() {
	if f.phase == login {
		f.fail(pgerr.LoginTimeout())
	}
}

// readParameters takes the tracked parameters and refuses what cannot be honoured: nothing is dropped silently.
func (f *Frontend) readParameters(s *wire.Startup) *pgerr.Error {
	if on, err := s.WantsReplication(); err != nil {
		return pgerr.As(err)
	} else if on {
		return pgerr.FeatureNotSupported("replication connections are not supported")
	}
	if s.ApplicationName != "" {
		f.want("application_name", s.ApplicationName)
	}
	for _, p := range s.Params {
		if taken, e := f.aim(p.Name, p.Value); taken {
			if e != nil {
				return e
			}
			continue
		}
		if !f.want(p.Name, p.Value) && !f.tolerated(p.Name) {
			return pgerr.UnsupportedStartupParameter(p.Name)
		}
	}
	if s.Options == "" {
		return nil
	}
	ignore := f.startup.settings.Ignore["options"]
	options, err := wire.ParseOptions(s.Options)
	if err != nil {
		if ignore {
			return nil
		}
		return pgerr.As(err)
	}
	for _, p := range options {
		if taken, e := f.aim(p.Name, p.Value); taken {
			if e != nil {
				return e
			}
			continue
		}
		if !f.want(p.Name, p.Value) && !ignore && !f.tolerated(p.Name) {
			return pgerr.UnsupportedOption(p.Name)
		}
	}
	return nil
}

// want notes a tracked parameter; false if it is not tracked.
func (f *Frontend) want(name, value string) bool {
	i := f.deps.Names.Index(name)
	if i < 0 {
		return false
	}
	if f.startup.wanted == nil {
		f.startup.wanted = backend.UnknownValues(len(f.deps.Names))
	}
	f.startup.wanted[i] = value
	return true
}

func (f *Frontend) tolerated(name string) bool {
	return f.startup.settings.Ignore[strings.ToLower(name)]
}

func (f *Frontend) authenticate(s *wire.Startup) {
	var out []byte
	if s.NeedsNegotiation() {
		out = wire.AppendNegotiateProtocolVersion(out, s.NegotiatedVersion(), s.UnknownOptions())
	}
	st := f.startup.settings
	secret := st.Secret(f.user)
	if st.Method == auth.Trust && secret == nil {
		secret, _ = auth.ParseSecret(f.user, "")
	}
	e := st.Auth.NewExchange(st.Method, f.user, secret)
	f.startup.exchange = e
	early := f.startup.admit.Early
	out = e.Start(out)
	if len(out) > 0 {
		f.conn.Write(out)
	}
	switch {
	case e.Done():
		f.loggedIn()
	case e.Err() != nil:
		f.loginFailed(e.Err())
	}
	if len(early) > 0 && f.phase != ended {
		f.conn.Pause()
		f.conn.Stash(early)
		if f.phase != attaching {
			f.conn.Resume()
		}
	}
}
