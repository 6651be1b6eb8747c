package backend

import (
	"errors"

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
	step  cleanStep
	reset string
}

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
	b.clean = cleanup{step: draining, reset: m.Reset}
	b.loop.SetTimer(&b.timer, m.Limit)
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
		b.Tracker.Sent('f')
	}
	if b.Tracker.NeedsSync() {
		if !b.Tracker.Skipping() {
			out = append(out, failing...)
			b.Tracker.Sent('P')
		}
		out = wire.AppendSync(out)
		b.Tracker.Sent('S')
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
		b.end(false, errors.New("the reset query failed"))
		return
	}
	if b.clean.step == draining {
		b.endRequests() // a COPY may have begun, or an error skip to a Sync, after the client had left
	}
	b.cleanNext()
}

func (b *Backend) cleanNext() {
	if b.Tracker.Pinned() {
		b.end(true, errors.New("what the server still owes cannot be told"))
		return
	}
	if !b.Tracker.AtRest() || !b.scanner.AtBoundary() {
		return
	}
	switch {
	case b.Tracker.Status() != 'I' && b.clean.step == draining:
		b.clean.step = rollingBack
		b.request("ROLLBACK")
	case b.Tracker.Status() != 'I':
		b.end(true, errors.New("the transaction could not be ended"))
	case b.clean.reset != "" && b.clean.step != resetting:
		b.clean.step = resetting
		b.request(b.clean.reset)
	case b.cancelled:
		b.end(true, errors.New("a cancel was sent for it"))
	default:
		b.loop.StopTimer(&b.timer)
		b.phase, b.clean = idle, cleanup{}
		b.idleSince = b.loop.Now()
		b.send(&Cleaned{Backend: b})
	}
}

func (b *Backend) request(sql string) {
	b.Tracker.Sent('Q')
	b.conn.Write(wire.AppendQuery(nil, sql))
}

// cleanTooLong gives up: what still runs is cancelled, so that the server does not go on with work nobody wants, and the
// connection is closed.
func (b *Backend) cleanTooLong() {
	if b.phase != cleaning {
		return
	}
	if b.Tracker.Outstanding() > 0 {
		b.cancel(&Cancel{})
	}
	b.end(false, errNotAtRest)
}
