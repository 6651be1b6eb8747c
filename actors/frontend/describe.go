package frontend

import (
	"fencepost/admin"
	"fencepost/pgerr"
)

// row describes the session for SHOW CLIENTS.
func (f *Frontend) row() admin.ClientRow {
	r := admin.ClientRow{Console: f.phase == console, ID: f.id, User: f.user, Database: f.database, State: phaseNames[f.phase], Connected: f.connected, Requested: f.requested, PID: f.key.PID}
	if f.conn != nil && f.phase != ended {
		r.Remote, r.Local = f.conn.RemoteAddr(), f.conn.LocalAddr()
	}
	if f.phase == waiting {
		r.Wait = f.loop.Now().Sub(f.requested)
	}
	if b := f.backend; b != nil {
		r.Backend = b.ID
		if l := b.Login(); l != nil {
			r.BackendPID = l.PID
		}
		if f.mode == Session && b.Tracker.Idle() {
			r.State = "idle"
		}
	}
	if f.params.Known() {
		r.ApplicationName = f.deps.Names.Value(f.params, "application_name")
	}
	if f.route != nil {
		r.ServerUser = f.route.Pool.ServerUser
	}
	return r
}

func (f *Frontend) kill() { f.fail(pgerr.AdminDisconnect()) }
