package frontend

import (
	"errors"

	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
	"fencepost/wire"
)

var errFailed = errors.New("session failed")

// vanish ends the session of a client that is gone or has said Terminate.
func (f *Frontend) vanish(err error) {
	why := "client closed the connection"
	if err != nil {
		why = err.Error()
	}
	f.close(nil, why, true)
}

// terminate takes the client's goodbye. As a server would, what was sent before it is still carried out and answered.
func (f *Frontend) terminate() {
	f.terminated = true
	f.conn.Pause()
	f.done()
}

// finish ends the session with a last message, if any.
func (f *Frontend) finish(e *pgerr.Error, why string) { f.close(e, why, false) }

// close ends the session: everything it holds is given back, once. gone: the client is not there any more.
func (f *Frontend) close(e *pgerr.Error, why string, gone bool) {
	if f.phase == ended {
		return
	}
	// The phase is ended before anything is given back: a grant or a callback that crosses this finds no session to go on
	// with, and a second close returns above.
	was := f.phase
	f.phase = ended
	if was == console {
		f.deps.Consoles.Add(-1)
	}
	// The client has its last word already: an error inside a message would be read as part of it, and after the server's
	// own FATAL nothing more is expected.
	told := f.midAnswer || was == active && f.backend != nil && f.backend.Farewell()
	f.leavePool(was) // after told was asked: it gives the backend away
	if f.bound {
		f.root.Send(f.deps.Cancel, &Unbind{Key: f.key})
		f.bound = false
	}
	if f.startup != nil {
		f.loop.StopTimer(&f.startup.timer)
	}
	f.logEnd(was, e, why)
	if f.conn != nil {
		if e != nil && !told {
			f.conn.Write(wire.AppendError(nil, e))
		}
		if e == nil && gone {
			f.conn.Close() // nobody is there to read what may be queued
		} else {
			f.conn.CloseFlushed(flushLimit)
		}
	}
	f.paramAnswers, f.startup = nil, nil
	if f.names != nil {
		f.names.Drop()
	}
	f.stop()
}

func (f *Frontend) stop() { f.root.Stop(f.self) }

// leavePool gives back what the session has of its lane.
func (f *Frontend) leavePool(was phase) {
	if was == waiting {
		f.root.Send(f.lane, &lane.Abandon{Checkout: f.checkout})
	}
	if f.backend != nil {
		f.checkin.Patient = f.terminated
		f.giveBack(f.leftBehind())
	}
	if f.attached {
		f.root.Send(f.lane, &lane.Detach{Req: f.req, From: f.self, Pool: f.route.Pool})
		f.attached = false
	}
}

// leftBehind is the condition of a backend whose client leaves: one in the middle of a client's message, or whose server
// has announced its end, can only be closed, any other is brought to rest, and in session mode reset.
func (f *Frontend) leftBehind() pool.Condition {
	switch {
	case !f.scanner.AtBoundary(), f.backend.LastCode() != "":
		return pool.Broken
	case f.mode != Session && !f.backend.Statements.SQLNames() && f.backend.Tracker.Idle() && f.backend.AtBoundary() && f.backend.Queued() == 0:
		return pool.Clean
	}
	return pool.Dirty
}

// release is close for an actor that stops without having ended its session: it failed.
func (f *Frontend) release() {
	if f.phase != ended {
		f.close(pgerr.Internal(errFailed).Fatal(), errFailed.Error(), false)
	}
}

// drain ends the session with e at its next transaction boundary, which may be now.
func (f *Frontend) drain(e *pgerr.Error, atOnce bool) {
	if f.phase == doomed {
		f.fail(f.ending) // it says more
		return
	}
	f.ending = e
	switch {
	case atOnce:
		f.fail(e)
	case f.phase == console:
	default:
		f.boundary()
	}
}

// boundary ends a session that is to end, if it is between transactions.
func (f *Frontend) boundary() {
	switch f.phase {
	case idle, waiting, login, attaching:
		f.fail(f.ending)
	case active:
		if b := f.backend; b.Tracker.Idle() && f.scanner.AtBoundary() && b.AtBoundary() {
			f.fail(f.ending)
		}
	}
}

// recheck follows a reload: a session whose database or pool is not there any more ends at its next transaction
// boundary, any other takes the new limits. The pool mode is that of the login.
func (f *Frontend) recheck(st *Settings) {
	if f.route == nil || f.phase == ended || f.ending != nil {
		return
	}
	r, err := st.Route(f.database, f.user)
	if err != nil || r.Pool != f.route.Pool {
		f.drain(pgerr.DatabaseChanged(), false)
		return
	}
	f.setRoute(r)
}

func (f *Frontend) logError(e *pgerr.Error) {
	if st := f.deps.Settings.Load(); st.LogErrors {
		f.deps.Log.Info().Uint64("client", f.id).Str("user", f.user).Str("database", f.database).Str("code", e.Code).Str("error", e.Message).Msg("error sent to client")
	}
}

func (f *Frontend) logEnd(was phase, e *pgerr.Error, why string) {
	if e != nil {
		f.logError(e)
	}
	st := f.deps.Settings.Load()
	if st.LogDisconnects && was != login && was != attaching {
		f.deps.Log.Info().Uint64("client", f.id).Str("user", f.user).Str("database", f.database).Str("reason", why).Msg("client gone")
	}
}
