package soak

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/ledger"
	"fencepost/soak/raw"
)

// errLeft says that the session has left in a way of its own.
var errLeft = errors.New("left")

// parting is the phase a session is in when it leaves.
type parting struct {
	name   string
	weight int
	modes  string
	do     func(*session) error // brings the session there; errLeft or nil: it can leave
}

var partings = []parting{
	{"at rest", 10, "tsm", func(*session) error { return nil }},
	{"waiting for a server", 4, "tsm", partQueued},
	{"in a transaction", 4, "ts", partInTransaction},
	{"in a failed transaction", 2, "ts", partInFailedTransaction},
	{"in a running statement", 3, "ts", partRunning},
	{"at COMMIT", 3, "ts", partAtCommit},
	{"in COPY IN", 3, "tsm", partInCopyIn},
	{"in COPY OUT", 2, "tsm", partInCopyOut},
	{"with unread results", 3, "tsm", partUnread},
	{"in a pipeline without Sync", 3, "tsm", partWithoutSync},
	{"in a pipeline", 3, "tsm", partInPipeline},
	{"after an error without Sync", 2, "tsm", partAfterError},
	{"in the middle of a message", 3, "tsm", partInMessage},
	{"during a cancel", 1, "tsm", partDuringCancel},
}

// leave ends the session in one of the ways clients end.
func (s *session) leave() {
	defer func() { s.own.leave(s.doing) }()
	switch s.rng.IntN(8) {
	case 0, 1:
		s.doing += ", terminate"
		s.own.said.Store(true)
		s.conn.Terminate()
	case 2, 3:
		s.doing += ", close"
		s.conn.Close()
	case 4:
		s.doing += ", half-close"
		s.halfClose()
	default:
		s.doing += ", reset"
		s.conn.Reset()
	}
}

// halfClose ends the sending direction and reads until the other side closes, which it must.
func (s *session) halfClose() {
	defer s.conn.Close()
	if s.conn.CloseWrite() != nil {
		return
	}
	reply, err := s.conn.Collect(time.Now().Add(cancelClosing), 1<<30, nil)
	for i := range reply.Segments {
		if k := strange(s.id, reply.Segments[i].Text); k == foreignAnswer {
			s.violate(k, "after a half-close came %s", short(reply.String(), 400)) //nolint:errcheck // the session ends anyway
		}
	}
	if errors.Is(err, raw.ErrLate) && s.r.hard.Err() == nil {
		s.violate(notClosed, "a half-closed connection is still open after %v", cancelClosing) //nolint:errcheck // as above
	}
}

// partQueued asks and does not wait. In a pool with few connections the question is still in the queue.
func partQueued(s *session) error {
	t := s.question()
	if err := s.send(query("SELECT " + literal(t))); err != nil {
		return err
	}
	if s.rng.IntN(2) == 0 {
		s.wait(time.Duration(s.rng.IntN(20)) * time.Millisecond)
	}
	return nil
}

// open begins a transaction with a part of a ledger transaction in it that must not be there when the session has left.
func (s *session) open() (ledger.Key, error) {
	k := s.r.book.Begin(s.db.index, s.id.client, 1)
	if err := s.ask([]string{"C[BEGIN] Z[T]"}, query("BEGIN")); err != nil {
		return k, err
	}
	return k, s.insert(k, 1, 1)
}

func partInTransaction(s *session) error {
	_, err := s.open()
	return err
}

func partInFailedTransaction(s *session) error {
	if _, err := s.open(); err != nil {
		return err
	}
	t := s.question()
	return s.ask([]string{"E[22P02] Z[E]"}, query("SELECT "+literal(t)+"::int"))
}

// partRunning leaves a statement running in a transaction: for a moment, or for longer than a pooler should wait for it.
func partRunning(s *session) error {
	if _, err := s.open(); err != nil {
		return err
	}
	return s.send(query([]string{"SELECT pg_sleep(0.2)", "SELECT pg_sleep(12)"}[s.rng.IntN(2)]))
}

// partAtCommit does not wait for the answer to COMMIT.
func partAtCommit(s *session) error {
	k, err := s.open()
	if err != nil {
		return err
	}
	s.r.book.Set(k, ledger.Unknown)
	return s.send(query("COMMIT"))
}

// partInCopyIn leaves between the rows, inside of a message, or right behind the end of the data.
func partInCopyIn(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 3)
	t := s.question()
	if err := s.beginCopy("G", query(copyLedger)); err != nil {
		return err
	}
	rows := s.pieces(s.copyRows(k, 3, t))
	switch s.rng.IntN(3) {
	case 0:
		return s.send(rows...)
	case 1:
		s.own.busy.Store(true)
		return s.conn.SendPart(time.Now().Add(patience), 1+s.rng.IntN(10), rows...)
	}
	s.r.book.Set(k, ledger.Unknown)
	return s.send(append(rows, &pgproto3.CopyDone{})...)
}

// partInCopyOut has read a little of a long COPY.
func partInCopyOut(s *session) error {
	t := s.question()
	if err := s.send(query(fmt.Sprintf("COPY (SELECT repeat(%s, 50) FROM generate_series(1, 20000)) TO STDOUT", literal(t)))); err != nil {
		return err
	}
	_, err := s.collect(1, func(m pgproto3.BackendMessage) bool {
		switch m.(type) {
		case *pgproto3.CopyData, *pgproto3.ErrorResponse:
			return true
		}
		return false
	})
	return err
}

// partUnread reads nothing of a result of megabytes.
func partUnread(s *session) error {
	t := s.question()
	err := s.send(query(fmt.Sprintf("SELECT repeat(%s, 1000) FROM generate_series(1, %d)", literal(t), 1+s.rng.IntN(500))))
	s.wait(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	return err
}

// partWithoutSync never asks for the end of a batch: what it did must not stay.
func partWithoutSync(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 1)
	t := s.question()
	err := s.send(append(extended(s.insertSQL(k.N, 1, 1, t)), flush())...)
	if err != nil || s.rng.IntN(2) == 0 {
		return err
	}
	// Leave when the insert is known to have run.
	_, err = s.collect(1, func(m pgproto3.BackendMessage) bool {
		switch m.(type) {
		case *pgproto3.CommandComplete, *pgproto3.ErrorResponse:
			return true
		}
		return false
	})
	return err
}

// partInPipeline sends many batches and reads none of the answers. Each batch may have been committed or not.
func partInPipeline(s *session) error {
	var msgs []pgproto3.FrontendMessage
	for range 1 + s.rng.IntN(6) {
		k := s.r.book.Begin(s.db.index, s.id.client, 1)
		s.r.book.Set(k, ledger.Unknown)
		msgs = append(append(msgs, extended(s.insertSQL(k.N, 1, 1, s.question()))...), syncMessage())
	}
	return s.send(msgs...)
}

// partAfterError leaves while the server skips everything up to a Sync, with an insert before and one behind the error.
func partAfterError(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 2)
	t := s.question()
	msgs := append(extended(s.insertSQL(k.N, 1, 2, t)), extended("SELECT * FROM "+name(t))...)
	return s.send(append(append(msgs, extended(s.insertSQL(k.N, 2, 2, t))...), flush())...)
}

// partInMessage leaves inside of a message, at rest or in a transaction.
func partInMessage(s *session) error {
	if s.db.mode != "statement" && s.rng.IntN(2) == 0 {
		if _, err := s.open(); err != nil {
			return err
		}
	}
	s.own.busy.Store(true)
	t := s.question()
	return s.conn.SendPart(time.Now().Add(patience), 1+s.rng.IntN(20), query("SELECT "+literal(t)+", 1234567890"))
}

// partDuringCancel leaves while a cancel for it is on its way.
func partDuringCancel(s *session) error {
	if err := s.send(query("SELECT pg_sleep(3)")); err != nil {
		return err
	}
	s.wait(time.Duration(s.rng.IntN(30)) * time.Millisecond)
	conn, r := s.conn, s.r
	r.side.Go(func() { // ends with the cancel's connection
		other := session{r: r, id: s.id, db: s.db, user: s.user, doing: "cancel of a session that leaves", conn: conn}
		other.cancelOwn() //nolint:errcheck // noted
	})
	return nil
}
