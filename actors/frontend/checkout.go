package frontend

import (
	"time"

	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/admin"
	"fencepost/pgerr"
	"fencepost/wire"
)

// request looks at what an idle client sends. Nothing is owed to it and it holds no backend, so what would not be
// answered by a server at rest is dropped here: late COPY messages and Flush. Everything else needs a backend.
func (f *Frontend) request(p []byte) {
	for len(p) > 0 {
		if !f.scanner.AtBoundary() { // inside a message that is being dropped
			_, n, err := f.scanner.Next(p)
			if err != nil {
				f.fail(pgerr.As(err))
				return
			}
			p = p[n:]
			continue
		}
		if len(p) < 5 {
			f.conn.Stash(p)
			return
		}
		switch p[0] {
		case wire.MsgCopyData, wire.MsgCopyDone, wire.MsgCopyFail, wire.MsgFlush:
			m, n, err := f.scanner.Next(p)
			if err == nil {
				err = allowed(&m)
			}
			if err != nil {
				f.fail(pgerr.As(err))
				return
			}
			p = p[n:]
		case wire.MsgTerminate:
			f.vanish(nil)
			return
		default:
			if wire.ClientMessageLimit(p[0]) == 0 || p[0] == wire.MsgPasswordResponse {
				f.fail(pgerr.ProtocolViolation("unexpected message type " + printable(p[0])))
				return
			}
			if f.phase == doomed {
				f.fail(f.ending)
				return
			}
			if f.mode != Session && aboutStatements(p[0]) {
				// No backend waits for the rest of a message that must be looked at whole.
				if more, e := incomplete(p); e != nil {
					f.fail(e)
					return
				} else if more {
					f.conn.Stash(p)
					return
				}
			}
			f.ask(p)
			return
		}
	}
}

// ask keeps what the client sent and asks the lane for a backend.
func (f *Frontend) ask(p []byte) {
	f.phase = waiting
	f.conn.Stash(p)
	f.conn.Pause()
	f.req++
	f.requested = f.loop.Now()
	if f.checkout == nil {
		f.checkout = new(lane.Checkout)
	}
	co := f.checkout
	co.Req, co.From, co.Target = f.req, f.self, f.target
	co.Enqueued = f.requested
	co.Deadline = time.Time{}
	if limit := f.route.Spec.WaitLimit; limit > 0 {
		co.Deadline = f.requested.Add(limit)
	}
	f.root.Send(f.lane, co)
}

// granted takes the backend and goes on with what the client sent.
func (f *Frontend) granted(m *lane.Granted) {
	if f.phase != waiting || m.Req != f.req {
		// The client left or its checkout was taken back while the grant was on its way.
		f.root.Send(f.lane, &lane.Checkin{Backend: m.Backend, Condition: pool.Clean})
		return
	}
	if !m.Backend.Resting() { // it died while the grant was on its way
		f.root.Send(f.lane, &lane.Spoiled{Backend: m.Backend, Checkout: f.checkout})
		return
	}
	f.backend = m.Backend
	m.Backend.Serve(f)
	if f.names != nil {
		f.names.Granted()
	}
	if f.params != m.Backend.Params && f.applyParams() {
		return
	}
	f.activate()
}

// activate forwards what was held.
func (f *Frontend) activate() {
	f.phase = active
	f.txBegan, f.txOpen = f.loop.Now(), true
	rest := f.relay(f.conn.Stashed())
	if f.phase == active || f.phase == idle {
		if len(rest) > 0 {
			f.conn.Stash(rest)
		} else {
			f.conn.Unstash()
		}
		if !f.stalled && (f.backend == nil || f.backend.Queued() == 0) {
			f.conn.Resume()
		}
	}
}

// refused answers a request that got no backend. The session goes on: a simple query is answered with the error and
// ReadyForQuery, an extended batch with the error, and ReadyForQuery at its Sync, as a server would.
func (f *Frontend) refused(m *lane.Refused) {
	if f.phase != waiting || m.Req != f.req {
		return
	}
	f.refuse(m.Err)
}

func (f *Frontend) refuse(e *pgerr.Error) {
	if e.Disposition() == pgerr.End {
		f.fail(e)
		return
	}
	f.logError(e)
	f.conn.Write(wire.AppendError(nil, e))
	f.scanner.Reset()
	f.phase = skipping
	f.batch = false
	// What is held begins with the refused request.
	f.conn.Resume()
}

// skip drops what a refused client sends up to the end of the request: a Query, FunctionCall or Sync. Only complete
// messages end it: a client that has its ReadyForQuery in the middle of its own Query would be one answer ahead for ever.
func (f *Frontend) skip(p []byte) {
	for len(p) > 0 {
		m, n, err := f.scanner.Next(p)
		if err == nil && m.First {
			err = allowed(&m)
		}
		if err != nil {
			f.fail(pgerr.As(err))
			return
		}
		p = p[n:]
		if m.Type == wire.MsgTerminate {
			f.vanish(nil)
			return
		}
		if !m.Last {
			continue
		}
		switch m.Type {
		case wire.MsgQuery, wire.MsgFunctionCall, wire.MsgSync:
			if m.Type != wire.MsgSync && f.batch {
				continue // a server that skips to the Sync skips simple queries on the way, too
			}
			f.phase = idle
			f.conn.Write(wire.AppendReadyForQuery(nil, wire.TxIdle))
			if len(p) > 0 { // in a turn of its own, as phase idle: request may ask for a backend and keep the bytes
				f.conn.Stash(p)
				f.conn.Pause()
				f.conn.Resume()
			}
			if f.ending != nil {
				f.boundary()
			}
			return
		case wire.MsgParse, wire.MsgBind, wire.MsgDescribe, wire.MsgClose, wire.MsgExecute:
			f.batch = true
		}
	}
}

// cancelQuery cancels what the client runs or waits for. An idle client has nothing to cancel.
func (f *Frontend) cancelQuery(m *CancelQuery) {
	switch f.phase {
	case waiting:
		f.root.Send(f.lane, &lane.Abandon{Checkout: f.checkout})
		f.checkout = nil
		f.req++ // a grant that crosses it is given back
		f.stats.QueueCancels++
		f.refuse(pgerr.Canceled())
		m.Done()
	case applyingParams: // its request is not sent yet: it is taken back as soon as the backend has answered us
		f.cancelled = true
		m.Done()
	case active:
		f.cancelBackend(m.Done)
	case console:
		f.root.Send(f.deps.Admin, &admin.Interrupt{From: f.self})
		m.Done()
	default:
		if f.stats != nil {
			f.stats.IdleCancels++
		}
		m.Done()
	}
}
