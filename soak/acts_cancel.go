package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// How long a statement that is to be cancelled runs, how long a cancel may take to have its effect, and how long its
// connection may stay open.
const (
	cancelSleep   = 15 * time.Second
	cancelLimit   = 10 * time.Second
	cancelClosing = 20 * time.Second
)

// cancelOwn sends a cancel request for the session and waits until it has been dealt with.
func (s *session) cancelOwn() error { return s.cancelKey(s.conn.PID, s.conn.Secret) }

func (s *session) cancelKey(pid uint32, secret []byte) error {
	ctx, cancel := context.WithTimeout(s.r.hard, cancelClosing)
	defer cancel()
	if err := s.conn.Cancel(ctx, pid, secret); err != nil && s.r.hard.Err() == nil {
		return s.violate(notClosed, "cancel request: %v", err)
	}
	return nil
}

// cancelRunning cancels a statement that has said that it runs: the cancel must take effect.
func cancelRunning(s *session) error {
	t := s.question()
	sql := fmt.Sprintf("DO $$BEGIN RAISE NOTICE '%s on'; PERFORM pg_sleep(%d); RAISE NOTICE '%s off'; END$$", t, int(cancelSleep.Seconds()), t)
	if err := s.send(query(sql)); err != nil {
		return err
	}
	reply, err := s.collect(1, func(m pgproto3.BackendMessage) bool {
		switch m := m.(type) {
		case *pgproto3.NoticeResponse:
			return m.Code == "00000" // and no warning that the server shuts down
		case *pgproto3.ErrorResponse:
			return true
		}
		return false
	})
	if err != nil {
		return err
	}
	if perr := s.partly(reply, "N["+t+" on]"); perr != nil {
		if d, ok := perr.(*disturbed); ok { //nolint:errorlint // never wrapped
			if aerr := s.answer([]string{"Z[I]"}); aerr != nil {
				return aerr
			}
			return d
		}
		return perr
	}
	began := time.Now()
	if err := s.cancelOwn(); err != nil {
		return err
	}
	reply, err = s.collect(1, nil)
	switch {
	case err != nil:
		return err
	case reply.Segments[0].Text == "N["+t+" off] C[DO] Z[I]":
		return s.violate(lostCancel, "the statement ran to its end")
	case reply.Segments[0].Text != "E[57014] Z[I]":
		return s.violate(s.classify(&reply.Segments[0]), "got %s%s, wanted E[57014] Z[I]", reply, errorTexts(reply.Segments[0].Errors))
	}
	s.r.error("57014", reply.Segments[0].Errors[0].Error())
	if time.Since(began) > cancelLimit {
		return s.violate(lostCancel, "the cancel took %v", time.Since(began))
	}
	return s.again(simpleQuery)
}

// cancelAtRandom cancels at any moment: before the statement has begun, while it runs, after its end. What comes next is
// not cancelled, and every question has one answer.
func cancelAtRandom(s *session) error {
	t := s.question()
	if err := s.send(query(fmt.Sprintf("SELECT %s, pg_sleep(%.3f)", literal(t), s.rng.Float64()*0.06))); err != nil {
		return err
	}
	s.wait(time.Duration(s.rng.IntN(60)) * time.Millisecond)
	if err := s.cancelOwn(); err != nil {
		return err
	}
	reply, err := s.collect(1, nil)
	if err != nil {
		return err
	}
	// The description and even the row may have left before the statement was cancelled.
	came, cancelled := strings.CutSuffix(reply.Segments[0].Text, "E[57014] Z[I]")
	if cancelled && strings.HasPrefix(row(t, ""), strings.TrimSuffix(came, " ")) {
		s.r.error("57014", reply.Segments[0].Errors[0].Error())
	} else {
		d, verr := s.compare(&reply.Segments[0], row(t, "")+" Z[I]", false)
		if verr != nil {
			return verr
		}
		if d != nil {
			return d
		}
	}
	for range 2 {
		if err := s.again(simpleQuery); err != nil {
			return err
		}
	}
	return nil
}

// cancelIdle cancels while there is nothing to cancel.
func cancelIdle(s *session) error {
	if err := s.cancelOwn(); err != nil {
		return err
	}
	return simpleQuery(s)
}

// cancelFalseKey asks to cancel with a key that is almost its own while the session works.
func cancelFalseKey(s *session) error {
	t := s.question()
	if err := s.send(query("SELECT " + literal(t) + ", pg_sleep(0.02)")); err != nil {
		return err
	}
	secret := append([]byte(nil), s.conn.Secret...)
	secret[s.rng.IntN(len(secret))] ^= 1 << s.rng.IntN(8)
	if err := s.cancelKey(s.conn.PID, secret); err != nil {
		return err
	}
	return s.answer([]string{row(t, "") + " Z[I]"})
}
