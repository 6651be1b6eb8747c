package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/pgerr"
	"fencepost/role"
	"fencepost/wire"
)

// askAgain is when a query that was refused for lack of privilege is tried again: the privilege may have been granted. The
// server logs each refusal.
const askAgain = 5 * time.Second

// maxMessages bounds how many messages a server may send in answer to one query.
const maxMessages = 100

// choose finds out which prober the server needs.
func (l *link) choose() *failure {
	row, sqlError, f := l.exec(role.AuroraCheck)
	switch {
	case f != nil:
		return f
	case sqlError != nil:
		return &failure{kind: Senseless, code: sqlError.Code, err: sqlError}
	case len(row) == 1 && string(row[0]) == "t":
		l.prober = aurora{}
	default:
		l.prober = postgres{}
	}
	return nil
}

// ask sends the probe and waits for its answer, at the latest for the limit. With a nil lost the link goes on; then
// either the identity or senseless is the answer.
func (l *link) ask() (id role.Identity, senseless, lost *failure) {
	if l.better != nil && time.Since(l.refused) >= askAgain {
		l.prober, l.better = l.better, nil
	}
	row, sqlError, f := l.exec(l.prober.query())
	if f == nil && sqlError != nil && sqlError.Code == pgerr.InsufficientPrivilege && l.prober.denied() != nil {
		l.better, l.refused = l.prober, time.Now()
		l.prober = l.prober.denied()
		row, sqlError, f = l.exec(l.prober.query())
	}
	switch {
	case f != nil:
		return id, nil, f
	case sqlError != nil:
		return id, &failure{kind: Senseless, code: sqlError.Code, err: sqlError}, nil
	}
	id, err := role.ParseIdentity(row)
	if err != nil {
		return id, &failure{kind: Senseless, err: err}, nil
	}
	return id, nil, nil
}

// exec runs one query that gives one row, and copies the row.
func (l *link) exec(query string) (row [][]byte, sqlError *pgconn.PgError, lost *failure) {
	if err := l.conn.SetDeadline(time.Now().Add(l.limit)); err != nil {
		return nil, nil, loss(err, l.warned)
	}
	defer l.conn.SetDeadline(time.Time{}) //nolint:errcheck // it fails on a closed connection, which the next read finds
	l.fe.SendQuery(&pgproto3.Query{String: query})
	if err := l.fe.Flush(); err != nil {
		return nil, nil, l.drain(err)
	}
	for range maxMessages {
		msg, err := l.fe.Receive()
		if err != nil {
			return nil, nil, loss(err, l.warned)
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow:
			if row != nil {
				return nil, nil, loss(fmt.Errorf("more than one row: %w", errSense), "")
			}
			row = copyRow(msg.Values)
		case *pgproto3.ErrorResponse:
			if !goesOn(msg) {
				return nil, nil, farewell(msg)
			}
			sqlError = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			if msg.TxStatus != wire.TxIdle {
				return nil, nil, loss(fmt.Errorf("transaction status %q: %w", msg.TxStatus, errSense), "")
			}
			return row, sqlError, nil
		case *pgproto3.RowDescription, *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse:
		default:
			if f := l.unasked(msg); f != nil {
				return nil, nil, f
			}
		}
	}
	return nil, nil, loss(fmt.Errorf("more than %d messages: %w", maxMessages, errSense), "")
}

// drain gives a server that has closed its end a last word: what it said before is still to be read.
func (l *link) drain(writeError error) *failure {
	for range maxMessages {
		msg, err := l.fe.Receive()
		if err != nil {
			break
		}
		if f := l.unasked(msg); f != nil {
			return f
		}
	}
	return loss(writeError, l.warned)
}

func copyRow(values [][]byte) [][]byte {
	row := make([][]byte, len(values))
	for i, v := range values {
		if v != nil {
			row[i] = append([]byte{}, v...)
		}
	}
	return row
}

// goesOn reports whether the session lives on after the error.
func goesOn(m *pgproto3.ErrorResponse) bool {
	severity := m.SeverityUnlocalized
	if severity == "" {
		severity = m.Severity
	}
	return severity == "ERROR"
}

// watch reads what the server says unasked until hold is over (nil) or the link is lost.
func (l *link) watch(hold context.Context) *failure {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(hold, func() {
		l.conn.SetReadDeadline(past) //nolint:errcheck // it fails on a closed connection, whose reads end anyway
		close(interrupted)
	})
	defer func() {
		if !stop() {
			<-interrupted // so that it cannot hit the deadline of the probe that follows
		}
	}()
	for {
		msg, err := l.fe.Receive()
		switch {
		case err != nil && hold.Err() != nil && timedOut(err):
			return nil
		case err != nil:
			return loss(err, l.warned)
		}
		if f := l.unasked(msg); f != nil {
			return f
		}
	}
}

// unasked takes what a server may send at any time.
func (l *link) unasked(msg pgproto3.BackendMessage) *failure {
	switch msg := msg.(type) {
	case *pgproto3.ParameterStatus, *pgproto3.NotificationResponse:
	case *pgproto3.NoticeResponse:
		if msg.Code == pgerr.AdminShutdown || msg.Code == pgerr.CrashShutdown {
			l.warned = msg.Code
		}
	case *pgproto3.ErrorResponse:
		return farewell(msg)
	default:
		return loss(fmt.Errorf("%T: %w", msg, errSense), "")
	}
	return nil
}
