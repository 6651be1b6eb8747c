package frontend

import (
	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
	"fencepost/wire"
)

// superseded ends the lease of a server that is not the primary any more: nothing that it does from now on may reach the
// client, and nothing of the client's may reach it. What the client is told is no more certain than what is known.
//
//	applyingParams                     nothing of the client's was sent: it waits for another one, at its old place
//	between transactions         session mode: 57P01
//	in a block, nothing sent     57P01 at its next message, COMMIT included (doomed)
//	in a block, no COMMIT sent   57P01
//	anything else unanswered     08007
func (f *Frontend) superseded(m *lane.Superseded) {
	if f.backend == nil || f.backend != m.Backend {
		return // it was given back before it was told
	}
	switch {
	case m.Promoted:
		f.drain(pgerr.StandbyPromoted(m.Why), false)
		return
	case m.AtBoundary:
		f.drain(pgerr.Superseded(m.Why), false)
		return
	}
	switch f.phase {
	case applyingParams:
		f.waitAgain()
	case active:
		f.cut(m.Why)
	}
}

// waitAgain goes back to waiting: of the client's nothing was sent.
func (f *Frontend) waitAgain() {
	f.paramAnswers = nil
	if f.cancelled {
		f.stats.QueueCancels++
		f.giveBack(pool.Broken)
		f.refuse(pgerr.Canceled())
		return
	}
	b := f.backend
	f.backend = nil
	b.Release()
	f.phase = waiting
	f.root.Send(f.lane, &lane.Spoiled{Backend: b, Checkout: f.checkout})
	if f.ending != nil {
		f.boundary()
	}
}

// cut gives the backend back at once, to be closed.
func (f *Frontend) cut(why string) {
	// All is asked before giveBack: from then on the backend is the lane's, and its tracker may be another holder's.
	// A block counts as uncommitted only if no message that may commit was sent: a client that hears 57P01 repeats the
	// block, and one that was committed after all would then be done twice. A pinned tracker cannot say what is answered.
	b := f.backend
	inBlock := b.Tracker.Status() != wire.TxIdle
	quiet := b.Tracker.AtRest() && f.scanner.AtBoundary() && b.AtBoundary()
	uncommitted := inBlock && f.unanswered&mayCommit == 0 && !b.Tracker.Pinned()
	f.giveBack(pool.Broken)
	switch {
	case b.Farewell(): // the client has the server's own last word
		f.finish(nil, "server ended the connection: "+b.LastCode())
	case quiet && inBlock: // an error nobody asked for would be read as the answer to the next message
		f.doom(pgerr.SupersededInTransaction(why))
	case quiet && f.mode == Session:
		f.fail(pgerr.Superseded(why))
	case quiet: // all that was left were bytes that no server would answer
		f.phase = idle
		f.conn.Resume()
		if f.ending != nil {
			f.boundary()
		}
	case uncommitted:
		f.fail(pgerr.SupersededInTransaction(why))
	default:
		f.fail(pgerr.SupersededUnanswered(why))
	}
}

// doom waits for the client's next message to tell it that its transaction is lost: clients seldom read what they did not
// ask for. A session that is to end anyway is not waited for.
func (f *Frontend) doom(e *pgerr.Error) {
	if f.ending != nil {
		f.fail(e)
		return
	}
	f.phase, f.ending = doomed, e
	f.conn.Resume()
}
