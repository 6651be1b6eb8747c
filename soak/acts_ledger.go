package soak

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/ledger"
	"fencepost/soak/raw"
)

// Accounts of each database; transfers leave their sum as it is.
const (
	accounts       = 64
	accountBalance = 1000
)

// insertSQL writes one part of a transaction and returns its tag.
func (s *session) insertSQL(n, part, parts int, t string) string {
	return fmt.Sprintf("INSERT INTO ledger VALUES (%d, %d, %d, %d, %s) RETURNING tag", s.id.client, n, part, parts, literal(t))
}

// insert writes one part inside a transaction, by either protocol.
func (s *session) insert(k ledger.Key, part, parts int) error {
	t := s.question()
	if s.rng.IntN(2) == 0 {
		return s.ask([]string{"1 2 " + data(t) + " C[INSERT 0 1] Z[T]"}, append(extended(s.insertSQL(k.N, part, parts, t)), syncMessage())...)
	}
	return s.ask([]string{"T " + data(t) + " C[INSERT 0 1] Z[T]"}, query(s.insertSQL(k.N, part, parts, t)))
}

// transfer moves money between two accounts, always locked in the same order.
func (s *session) transfer() error {
	a, b := 1+s.rng.IntN(accounts), 1+s.rng.IntN(accounts)
	a, b = min(a, b), max(a, b)
	return s.ask([]string{"C[UPDATE 1] C[UPDATE 1] Z[T]"}, query(fmt.Sprintf(
		"UPDATE accounts SET balance = balance - 1 WHERE id = %d; UPDATE accounts SET balance = balance + 1 WHERE id = %d", a, b)))
}

// ledgerTransaction writes some parts, and ends with COMMIT, ROLLBACK, or a failure.
func ledgerTransaction(s *session) error {
	parts := 1 + s.rng.IntN(3)
	k := s.r.book.Begin(s.db.index, s.id.client, parts)
	if err := s.ask([]string{"C[BEGIN] Z[T]"}, query("BEGIN")); err != nil {
		return err
	}
	if s.rng.IntN(2) == 0 {
		if err := s.transfer(); err != nil {
			return err
		}
	}
	for p := 1; p <= parts; p++ {
		if err := s.insert(k, p, parts); err != nil {
			return err
		}
		if s.rng.IntN(4) == 0 {
			s.pause()
		}
	}
	switch s.rng.IntN(10) {
	case 0, 1:
		return s.ask([]string{"C[ROLLBACK] Z[I]"}, query("ROLLBACK"))
	case 2:
		t := s.question()
		if err := s.ask([]string{"E[22P02] Z[E]"}, query("SELECT "+literal(t)+"::int")); err != nil {
			return err
		}
		return s.ask([]string{"C[ROLLBACK] Z[I]"}, query("COMMIT"))
	}
	return s.commit(k)
}

// commit sends COMMIT and writes down what is known of it.
func (s *session) commit(k ledger.Key) error {
	s.r.book.Set(k, ledger.Unknown)
	err := s.ask([]string{"C[COMMIT] Z[I]"}, query("COMMIT"))
	s.known(k, err)
	return err
}

func autocommitInsert(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 1)
	t := s.question()
	s.r.book.Set(k, ledger.Unknown)
	var err error
	if s.rng.IntN(2) == 0 {
		err = s.ask([]string{"T " + data(t) + " C[INSERT 0 1] Z[I]"}, query(s.insertSQL(k.N, 1, 1, t)))
	} else {
		err = s.ask([]string{"1 2 " + data(t) + " C[INSERT 0 1] Z[I]"}, append(extended(s.insertSQL(k.N, 1, 1, t)), syncMessage())...)
	}
	s.known(k, err)
	return err
}

// implicitTransaction is several statements in one query, or to one Sync: all or nothing, and nothing if one fails.
func implicitTransaction(s *session) error {
	parts := 2 + s.rng.IntN(3)
	k := s.r.book.Begin(s.db.index, s.id.client, parts)
	t := s.question()
	fails, simple := s.rng.IntN(3) == 0, s.rng.IntN(2) == 0
	var sql, want []string
	var msgs []pgproto3.FrontendMessage
	for p := 1; p <= parts; p++ {
		one := s.insertSQL(k.N, p, parts, t)
		sql, msgs = append(sql, one), append(msgs, extended(one)...)
		if simple {
			want = append(want, "T "+data(t)+" C[INSERT 0 1]")
		} else {
			want = append(want, "1 2 "+data(t)+" C[INSERT 0 1]")
		}
	}
	if fails {
		bad := "SELECT * FROM " + name(t)
		sql, msgs, want = append(sql, bad), append(msgs, extended(bad)...), append(want, "E[42P01]")
	} else {
		s.r.book.Set(k, ledger.Unknown)
	}
	if simple {
		msgs = []pgproto3.FrontendMessage{query(strings.Join(sql, "; "))}
	} else {
		msgs = append(msgs, syncMessage())
	}
	err := s.ask([]string{strings.Join(want, " ") + " Z[I]"}, msgs...)
	if !fails {
		s.known(k, err)
	}
	return err
}

// blockInStatementMode opens a transaction block where none is allowed: the session is ended.
func blockInStatementMode(s *session) error {
	if err := s.send(query("BEGIN")); err != nil {
		return err
	}
	reply, err := s.collect(1, nil)
	if err == nil {
		first := &reply.Segments[0]
		if len(first.Errors) == 1 && s.r.refusal(s.db, &first.Errors[0]) {
			s.r.error(first.Errors[0].Code, first.Errors[0].Error())
			return &disturbed{first.Errors[0].Code}
		}
		_, err = s.collect(1, nil)
	}
	if err == nil {
		return s.violate(wrongAnswer, "a transaction block in statement mode")
	}
	if lost := (*raw.Lost)(nil); errors.As(err, &lost) && lost.Said != nil && lost.Said.Code == "0A000" {
		s.r.error(lost.Said.Code, lost.Said.Error())
		return errLeft
	}
	return err
}

// sumOfAccounts must be the same in every snapshot.
func sumOfAccounts(s *session) error {
	t := s.question()
	return s.ask([]string{row(t, strconv.Itoa(accounts*accountBalance)) + " Z[I]"},
		query("SELECT "+literal(t)+", sum(balance) FROM accounts"))
}

// ownTransactions commits, and looks through the pool, most likely from another server connection.
func ownTransactions(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 1)
	t := s.question()
	s.r.book.Set(k, ledger.Unknown)
	err := s.ask([]string{"T " + data(t) + " C[INSERT 0 1] Z[I]"}, query(s.insertSQL(k.N, 1, 1, t)))
	s.known(k, err)
	if err != nil {
		return err
	}
	q := s.question()
	return s.ask([]string{row(q, t) + " Z[I]"},
		query(fmt.Sprintf("SELECT %s, tag FROM ledger WHERE client = %d AND n = %d", literal(q), s.id.client, k.N)))
}
