package backend

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/role"
	"fencepost/wire"
)

// fence is a fence under way.
type fence struct {
	id    uint64
	asked time.Time
	rows  int
	proof *Proof // of the first row
	err   error  // the first thing that went wrong
}

var errNotIdle = errors.New("fence: the backend is not idle")

// startFence sends the identity query that the login found the server to understand.
func (b *Backend) startFence(id uint64) {
	switch {
	case b.phase == gone:
		return // Lost answers, or DialFailed did
	case b.phase != idle || !b.leases.MayBeHandedOn():
		b.send(&Fenced{Backend: b, ID: id, Err: errNotIdle})
		return
	}
	b.phase = fencing
	b.fence = &fence{id: id, asked: b.loop.Now()}
	b.Tracker.Reset()
	b.Tracker.Sent(wire.MsgQuery)
	b.conn.Write(wire.AppendQuery(nil, cmp.Or(b.login.Query, role.IdentityQuery)))
}

// answersFence reports whether a message of type typ may come between a fence's query and its ReadyForQuery.
func answersFence(typ byte) bool {
	switch typ {
	case wire.MsgRowDescription, wire.MsgCommandComplete, wire.MsgEmptyQueryResponse, wire.MsgNoticeResponse, wire.MsgNotificationResponse:
		return true
	}
	return false
}

// fenceRow takes a row of the answer, nil if it is too long to be one.
func (b *Backend) fenceRow(body []byte) {
	f := b.fence
	f.rows++
	if f.rows > 1 {
		f.fail(errNotOneRow)
		return
	}
	var row pgproto3.DataRow
	if err := row.Decode(body); err != nil {
		f.fail(err)
		return
	}
	id, err := role.ParseIdentity(row.Values)
	if err != nil {
		f.fail(err)
		return
	}
	f.proof = &Proof{Identity: id, Asked: f.asked}
}

func (f *fence) fail(err error) {
	if f.err == nil {
		f.err = fmt.Errorf("fence: %w", err)
	}
}

// fenceDone tells the lane what the server has answered. Without an answer that makes sense nothing is known any more,
// whatever was known before.
func (b *Backend) fenceDone() {
	f := b.fence
	if f.rows == 0 {
		f.fail(errNotOneRow)
	}
	b.fence, b.phase, b.idleSince = nil, idle, b.loop.Now()
	answered := time.Now()
	if f.err != nil {
		b.proof = nil
	} else {
		f.proof.Answered = answered
		b.setProof(f.proof)
	}
	b.send(&Fenced{Backend: b, ID: f.id, Asked: f.asked, Answered: answered, Err: f.err})
}

func (b *Backend) setProof(p *Proof) {
	if b.proof = p; p != nil {
		p.Dialled = b.dialledAt
	}
	b.shadowed = b.shadowed || p != nil && p.BackendPID != b.login.PID
}
