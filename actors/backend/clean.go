package backend

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// cleanup is the state of bringing a backend to rest. Each step is one request; the next follows when the server is at
// rest again.
//
//	draining: the last holder's answers are read and dropped (CopyFail and Sync end what waits for the client)
//	rollingBack: an open transaction is rolled back
//	resetting: the reset query runs
type cleanup struct {
	step     cleanStep
	reset    string
	limit    time.Duration
	deadline time.Time     // of the cancels; zero before the first
	wait     time.Duration // until the next one
}

// firstCancelRetry is how soon a statement that did not end is cancelled again; the wait doubles. The first cancel may come
// too early: a server that has not begun with the statement ignores it.
const firstCancelRetry = 100 * time.Millisecond

type cleanStep uint8

const (
	draining cleanStep = iota + 1
	rollingBack
	resetting
)

var errNotAtRest = errors.New("the server did not come to rest in time after its client had left")

func (b *Backend) startCleaning(m *Clean) {
	if b.phase != idle && b.phase != left {
		return // lost meanwhile: Lost answers
	}
	b.phase = cleaning
	b.clean = cleanup{step: draining, reset: m.Reset, limit: m.Limit, wait: firstCancelRetry}
	if m.Reset == "" && b.Statements.SQLNames() {
		b.clean.reset = "DEALLOCATE ALL" // only a client's EXECUTE knows these names, and the next client's must not
	}
	switch {
	case m.Patient && !b.unwanted:
	case b.Tracker.Outstanding() > 0 && b.deps.CancelVanished():
		b.cancelLeftover()
	default:
		b.loop.SetTimer(&b.timer, m.Limit)
	}
	b.endRequests()
	b.cleanNext()
}

// endRequests ends what waits for the client: a COPY by CopyFail, an extended batch by a Sync. A batch that has not failed
// is made to fail first: its Sync would commit what the client sent and never confirmed, where PostgreSQL, when a
// connection ends, rolls back.
func (b *Backend) endRequests() {
	var out []byte
	if b.Tracker.CopyingIn() {
		out = wire.AppendCopyFail(out, "the client has disconnected")
		b.Tracker.Sent(wire.MsgCopyFail)
	}
	if b.Tracker.NeedsSync() {
		if !b.Tracker.Skipping() {
			out = append(out, failing...)
			b.Tracker.Sent(wire.MsgParse)
		}
		out = wire.AppendSync(out)
		b.Tracker.Sent(wire.MsgSync)
	}
	if len(out) > 0 {
		b.conn.Write(out)
	}
}

// failing is a Parse that no server can parse.
var failing = encode(&pgproto3.Parse{Query: "-- the client has disconnected\nFENCEPOST ROLLBACK"})

func encode(m pgproto3.FrontendMessage) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err) // a constant
	}
	return b
}

// cleanProgress goes on when the server has answered.
func (b *Backend) cleanProgress(seen Seen) {
	if seen.Failed && b.clean.step != draining {
		b.endUnclean(errors.New("the reset query failed"))
		return
	}
	if seen.Rows && !b.timer.Armed() {
		// Patience is for statements that do something; rows have nobody to read them any more. PostgreSQL, too, fails
		// as soon as it cannot send.
		b.loop.SetTimer(&b.timer, b.clean.limit)
	}
	if b.clean.step == draining {
		b.endRequests() // a COPY may have begun, or an error skip to a Sync, after the client had left
	}
	b.cleanNext()
}

func (b *Backend) cleanNext() {
	if b.Tracker.Pinned() {
		b.end(true, errors.New("the server's outstanding answers are unknown"))
		return
	}
	if !b.Tracker.AtRest() || !b.scanner.AtBoundary() {
		return
	}
	if !b.timer.Armed() {
		b.loop.SetTimer(&b.timer, b.clean.limit)
	}
	switch {
	case b.leases.Spoiled():
		b.end(true, errors.New("a cancel may still arrive for it"))
	case b.leases.InFlight() > 0:
		// A cancel on its way must hit neither the next holder nor the statements below: cancelEnded goes on.
	case b.Tracker.Status() != wire.TxIdle && b.clean.step == draining:
		b.clean.step = rollingBack
		b.request("ROLLBACK")
	case b.Tracker.Status() != wire.TxIdle:
		b.end(true, errors.New("the transaction could not be ended"))
	case b.clean.reset != "" && b.clean.step != resetting:
		b.clean.step = resetting
		b.request(b.clean.reset)
	default:
		b.loop.StopTimer(&b.timer)
		b.clean = cleanup{}
		b.rest()
		b.idleSince = b.loop.Now()
		b.send(&Cleaned{Backend: b})
	}
}

func (b *Backend) request(sql string) {
	b.loop.SetTimer(&b.timer, b.clean.limit)
	b.Tracker.Sent(wire.MsgQuery)
	b.conn.Write(wire.AppendQuery(nil, sql))
}

// cancelLeftover cancels what still runs, so that the server does not go on with work nobody wants, and looks again later.
func (b *Backend) cancelLeftover() {
	if b.clean.deadline.IsZero() {
		b.clean.deadline = b.loop.Now().Add(b.clean.limit)
	}
	b.loop.SetTimer(&b.timer, b.clean.wait)
	b.clean.wait *= 2
	b.startCancel(nil, nil)
}

// cleanTooLong cancels, again and again until the limit, and gives up then, with a last cancel on the way out: closing our
// socket alone would not end the statement. A lease is waited for: it has a limit of its own.
func (b *Backend) cleanTooLong() {
	unanswered := b.clean.step == draining && b.Tracker.Outstanding() > 0
	switch {
	case b.phase != cleaning:
	case b.leases.InFlight() > 0:
		b.loop.SetTimer(&b.timer, firstCancelRetry)
	case unanswered && (b.clean.deadline.IsZero() || b.loop.Now().Before(b.clean.deadline)):
		b.cancelLeftover()
	default:
		if unanswered {
			b.startCancel(nil, nil)
		}
		b.endUnclean(errNotAtRest)
	}
}

// endUnclean closes a connection that could not be brought to rest. That is no loss, which would speak against the host: what a
// client leaves behind is enough to bring it about.
func (b *Backend) endUnclean(why error) {
	b.deps.Log.Info().Uint64("backend", b.ID).Str("host", b.target.Host).AnErr("cause", why).Msg("server connection closed: it could not be cleaned")
	b.end(true, why)
}
