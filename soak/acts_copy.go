package soak

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/poll"
	"fencepost/soak/ledger"
)

// copyRows is a transaction's parts as COPY reads them.
func (s *session) copyRows(k ledger.Key, parts int, t string) []byte {
	var b strings.Builder
	for p := 1; p <= parts; p++ {
		fmt.Fprintf(&b, "%d\t%d\t%d\t%d\t%s\n", s.id.client, k.N, p, parts, t)
	}
	return []byte(b.String())
}

// pieces cuts data at random places, as CopyData messages.
func (s *session) pieces(b []byte) (msgs []pgproto3.FrontendMessage) {
	for len(b) > 0 {
		n := 1 + s.rng.IntN(len(b))
		msgs, b = append(msgs, &pgproto3.CopyData{Data: b[:n]}), b[n:]
	}
	return msgs
}

const copyLedger = "COPY ledger FROM STDIN"

// copyStarted reports CopyInResponse, or an error in its place.
func copyStarted(m pgproto3.BackendMessage) bool {
	switch m.(type) {
	case *pgproto3.CopyInResponse, *pgproto3.ErrorResponse:
		return true
	}
	return false
}

// beginCopy sends the statement and waits until the server wants data. A refused request is read to its end.
func (s *session) beginCopy(want string, msgs ...pgproto3.FrontendMessage) error {
	if err := s.send(msgs...); err != nil {
		return err
	}
	reply, err := s.collect(1, copyStarted)
	if err != nil {
		return err
	}
	err = s.partly(reply, want)
	if _, simple := msgs[len(msgs)-1].(*pgproto3.Query); simple {
		if d, ok := err.(*disturbed); ok { //nolint:errorlint // never wrapped
			if aerr := s.answer([]string{"Z[I]"}); aerr != nil {
				return aerr
			}
			return d
		}
		return err
	}
	return s.synced(err)
}

// copyIn waits for the server or sends everything at once.
func copyIn(s *session) error {
	parts := 1 + s.rng.IntN(40)
	k := s.r.book.Begin(s.db.index, s.id.client, parts)
	t := s.question()
	data := append(s.pieces(s.copyRows(k, parts, t)), &pgproto3.CopyDone{})
	done := []string{fmt.Sprintf("C[COPY %d] Z[I]", parts)}
	if s.rng.IntN(3) == 0 {
		s.r.book.Set(k, ledger.Unknown)
		err := s.ask([]string{"G " + done[0]}, append([]pgproto3.FrontendMessage{query(copyLedger)}, data...)...)
		s.known(k, err)
		return err
	}
	if err := s.beginCopy("G", query(copyLedger)); err != nil {
		return err
	}
	s.pause()
	s.r.book.Set(k, ledger.Unknown)
	err := s.ask(done, data...)
	s.known(k, err)
	return err
}

// copyInExtended has the COPY in an extended batch, its Sync sent with it (the server ignores it) or after the data.
func copyInExtended(s *session) error {
	parts := 1 + s.rng.IntN(40)
	k := s.r.book.Begin(s.db.index, s.id.client, parts)
	t := s.question()
	start := []pgproto3.FrontendMessage{parse("", copyLedger), bind(""), execute(0)}
	if s.rng.IntN(2) == 0 {
		// A Sync straight after Execute is what libpq sends; refused, it would be the end of the batch.
		if err := s.send(append(start, syncMessage())...); err != nil {
			return err
		}
		reply, err := s.collect(1, copyStarted)
		if err != nil {
			return err
		}
		if err := s.partly(reply, "1 2 G"); err != nil {
			if d, ok := err.(*disturbed); ok { //nolint:errorlint // never wrapped
				if aerr := s.answer([]string{"Z[I]"}); aerr != nil {
					return aerr
				}
				return d
			}
			return err
		}
	} else if err := s.beginCopy("1 2 G", append(start, flush())...); err != nil {
		return err
	}
	s.r.book.Set(k, ledger.Unknown)
	err := s.ask([]string{fmt.Sprintf("C[COPY %d] Z[I]", parts)}, append(s.pieces(s.copyRows(k, parts, t)), &pgproto3.CopyDone{}, syncMessage())...)
	s.known(k, err)
	return err
}

// copyInGivenUp sends some rows and then CopyFail.
func copyInGivenUp(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 2)
	t := s.question()
	if err := s.beginCopy("G", query(copyLedger)); err != nil {
		return err
	}
	return s.ask([]string{"E[57014] Z[I]"}, append(s.pieces(s.copyRows(k, 2, t)), &pgproto3.CopyFail{Message: t})...)
}

// copyInRefused has the server fail the COPY early while megabytes are still on their way, in a transaction block or
// outside of one.
func copyInRefused(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 2)
	t := s.question()
	block := s.db.mode != "statement" && s.rng.IntN(2) == 0
	if block {
		if err := s.ask([]string{"C[BEGIN] Z[T]"}, query("BEGIN")); err != nil {
			return err
		}
	}
	if err := s.beginCopy("G", query(copyLedger)); err != nil {
		return err
	}
	msgs := []pgproto3.FrontendMessage{&pgproto3.CopyData{Data: append(s.copyRows(k, 2, t), t+"\n"...)}}
	chunk := &pgproto3.CopyData{Data: []byte(strings.Repeat(t+"\n", 4000))}
	for range 1 + s.rng.IntN(30) {
		msgs = append(msgs, chunk)
	}
	msgs = append(msgs, &pgproto3.CopyDone{})
	if !block {
		return s.ask([]string{"E[22P02] Z[I]"}, msgs...)
	}
	if err := s.ask([]string{"E[22P02] Z[E]"}, msgs...); err != nil {
		return err
	}
	return s.ask([]string{"C[ROLLBACK] Z[I]"}, query("ROLLBACK"))
}

func copyOut(s *session) error {
	t := s.question()
	n := 1 + s.rng.IntN(500)
	want := make([]string, 0, n+3)
	want = append(want, "H")
	for i := 1; i <= n; i++ {
		want = append(want, fmt.Sprintf("d[%s %d\n]", t, i))
	}
	return s.ask([]string{strings.Join(append(want, fmt.Sprintf("c C[COPY %d] Z[I]", n)), " ")},
		query(fmt.Sprintf("COPY (SELECT %s || i FROM generate_series(1, %d) i) TO STDOUT", literal(t+" "), n)))
}

func manyRows(s *session) error {
	t := s.question()
	n := 1 + s.rng.IntN(2000)
	want := make([]string, 0, n+2)
	want = append(want, "T")
	for i := 1; i <= n; i++ {
		want = append(want, data(fmt.Sprintf("%s %d", t, i)))
	}
	return s.ask([]string{strings.Join(append(want, fmt.Sprintf("C[SELECT %d] Z[I]", n)), " ")},
		query(fmt.Sprintf("SELECT %s || i FROM generate_series(1, %d) i", literal(t+" "), n)))
}

// pause is a client's thinking inside of what it does.
func (s *session) pause() { s.wait(s.r.think(s.rng)) }

func (s *session) wait(d time.Duration) {
	poll.For(s.r.hard, d) //nolint:errcheck // whatever comes next sees its end
}
