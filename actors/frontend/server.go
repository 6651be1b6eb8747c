package frontend

import (
	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
	"fencepost/wire"
)

// ServerData implements backend.Holder: the server sent p, which goes to the client as it is.
func (f *Frontend) ServerData(p []byte, seen backend.Seen) {
	if f.phase == applyingParams {
		f.paramsAnswered(p)
		return
	}
	f.stats.Sent += uint64(len(p))
	f.midAnswer = !seen.Boundary
	if len(p) > 0 && !f.conn.Write(p) {
		f.backend.Pause()
	}
	if seen.Cleared && f.names != nil {
		f.names.Cleared(&f.backend.Statements)
	}
	if f.stalled && clearUp(f.backend, f.names) {
		f.stalled = false
		if f.backend.Queued() == 0 {
			f.conn.Resume()
		}
	}
	if seen.Params {
		f.params = f.backend.Params
	}
	if seen.Ready > 0 {
		f.answeredQueries(seen.Ready)
		if f.backend.Tracker.AtRest() {
			f.unanswered = 0
		}
		if f.mode == Statement && f.backend.Tracker.Status() != wire.TxIdle {
			f.fail(pgerr.StatementMode())
			return
		}
	}
	f.done()
}

// answeredQueries counts n ReadyForQuery, and the transaction if it is over.
func (f *Frontend) answeredQueries(n int) {
	now := f.loop.Now()
	took := now.Sub(f.requested)
	f.stats.Queries += uint64(n)
	f.stats.QueryTime += took
	f.stats.Query.Observe(took)
	f.requested = now
	if f.backend.Tracker.Status() == wire.TxIdle && f.txOpen {
		took := now.Sub(f.txBegan)
		f.stats.Transactions++
		f.stats.TransactionTime += took
		f.stats.Transaction.Observe(took)
		f.txOpen = f.mode == Session
		f.txBegan = now
	}
}

// done gives the backend back if the transaction is over: the server owes nothing and is outside a transaction, nothing
// was sent since the last Sync, both directions are at a message boundary, and everything sent has left our queue.
func (f *Frontend) done() {
	b := f.backend
	if b.LastCode() != "" {
		return // the server said FATAL and will close: so ends the session (ServerLost)
	}
	if !b.Tracker.AtRest() || !f.scanner.AtBoundary() || !b.AtBoundary() || b.Queued() > 0 {
		return
	}
	if f.terminated {
		f.vanish(nil)
		return
	}
	if b.Tracker.Status() != wire.TxIdle {
		return
	}
	if f.mode != Session {
		if f.names != nil && f.sessions.statementLimit() == 0 {
			f.names.Cleared(nil)
		}
		f.giveBack(condition(f.backend))
		f.phase = idle
	}
	if f.ending != nil {
		f.boundary()
	}
}

// giveBack ends the lease.
func (f *Frontend) giveBack(c pool.Condition) {
	b := f.backend
	f.backend = nil
	b.Release()
	f.checkin.Backend, f.checkin.Condition = b, c
	f.root.Send(f.lane, &f.checkin)
}

// ServerDrained implements backend.Holder: the server takes more.
func (f *Frontend) ServerDrained() {
	if f.phase != active {
		return
	}
	f.conn.Resume()
	f.done()
}

// ServerLost implements backend.Holder. If the server said goodbye itself (a FATAL error, already forwarded) there is
// nothing to add. A client of whom nothing was sent waits for another server.
func (f *Frontend) ServerLost(e *pgerr.Error) {
	if f.phase == applyingParams {
		f.waitAgain()
		return
	}
	b := f.backend
	f.backend = nil
	told := b.Farewell()
	f.root.Send(f.lane, &lane.Checkin{Backend: b, Condition: pool.Broken})
	if told {
		f.finish(nil, "server ended the connection: "+b.LastCode())
		return
	}
	f.fail(e)
}

func (f *Frontend) cancelBackend(done func()) {
	b := f.backend
	if b.Tracker.Outstanding() == 0 {
		f.stats.IdleCancels++
		done()
		return
	}
	f.root.Send(f.lane, &lane.CancelLease{Backend: b, Cancel: &backend.Cancel{Holder: f, Done: done}})
}
