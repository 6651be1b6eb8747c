package frontend

import (
	"fencepost/admin"
	"fencepost/pgerr"
	"fencepost/wire"
)

// openConsole ends the login of a client of the console's database.
func (f *Frontend) openConsole() {
	st := f.startup.settings
	if !st.Admins[f.user] && !st.Stats[f.user] {
		f.fail(pgerr.NotAllowed())
		return
	}
	f.phase = console
	f.deps.Consoles.Add(1)
	out := wire.AppendAuthenticationOk(nil)
	for _, p := range [][2]string{
		{"server_version", "18.0 (Fencepost " + f.deps.Version + ")"}, {"client_encoding", "UTF8"}, {"server_encoding", "UTF8"},
		{"standard_conforming_strings", "on"}, {"DateStyle", "ISO"}, {"TimeZone", "UTC"}, {"integer_datetimes", "on"},
	} {
		out = wire.AppendParameterStatus(out, p[0], p[1])
	}
	f.ready(out)
}

// consoleData handles what a console client sends. Only the simple protocol is spoken: an extended batch is refused, and
// ReadyForQuery follows at its Sync, so that no driver hangs.
func (f *Frontend) consoleData(p []byte) {
	if f.busy {
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
		return
	case m.Len > maxCommand:
		f.fail(pgerr.ProtocolViolation("console command too long"))
		return
	case !m.Last:
		f.conn.Stash(p)
		return
	}
	switch m.Type {
	case wire.MsgQuery:
		f.command(m.Body)
	case wire.MsgTerminate:
		f.vanish(nil)
		return
	case wire.MsgSync:
		f.batch = false
		f.conn.Write(wire.AppendReadyForQuery(nil, wire.TxIdle))
	case wire.MsgParse, wire.MsgBind, wire.MsgDescribe, wire.MsgClose, wire.MsgExecute, wire.MsgFunctionCall:
		if !f.batch {
			f.batch = m.Type != wire.MsgFunctionCall
			out := wire.AppendError(nil, pgerr.FeatureNotSupported("the console speaks the simple query protocol only"))
			if m.Type == wire.MsgFunctionCall {
				out = wire.AppendReadyForQuery(out, wire.TxIdle)
			}
			f.conn.Write(out)
		}
	case wire.MsgFlush, wire.MsgCopyData, wire.MsgCopyDone, wire.MsgCopyFail:
	default:
		f.fail(pgerr.ProtocolViolation("unexpected message type " + printable(m.Type)))
		return
	}
	if rest := p[n:]; len(rest) > 0 {
		f.conn.Stash(rest)
		f.conn.Pause()
		if !f.busy {
			f.conn.Resume()
		}
	}
}

// maxCommand bounds a console statement.
const maxCommand = 64 << 10

func (f *Frontend) command(body []byte) {
	if f.batch {
		return // skipped up to the Sync
	}
	text, ok := wire.QueryText(body)
	if !ok {
		f.fail(pgerr.ProtocolViolation("query without end"))
		return
	}
	f.busy = true
	f.req++
	f.requested = f.loop.Now()
	f.root.Send(f.deps.Admin, &admin.Command{Req: f.req, From: f.self, Text: string(text), User: f.user, Admin: f.deps.Settings.Load().Admins[f.user]})
}

func (f *Frontend) answered(m *admin.Answer) {
	if f.phase != console || m.Req != f.req {
		return
	}
	if m.More {
		f.conn.Write(m.Bytes)
		return
	}
	f.busy = false
	f.conn.Write(wire.AppendReadyForQuery(m.Bytes, wire.TxIdle))
	f.conn.Resume()
}
