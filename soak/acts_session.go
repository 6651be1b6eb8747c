package soak

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// What only works where a session keeps its server connection.

// listen begins to listen on the session's own channel.
func (s *session) listen() (channel string, err error) {
	channel = "to " + s.id.name()
	if s.channels[channel] {
		return channel, nil
	}
	if s.channels == nil {
		s.channels, s.heard = map[string]bool{}, map[string]int{}
	}
	s.channels[channel] = true // may come before the answer
	if err := s.ask([]string{"C[LISTEN] Z[I]"}, query("LISTEN "+name(channel))); err != nil {
		return "", err
	}
	s.r.listeners.add(s.db.index, channel)
	return channel, nil
}

// notified checks a notification: only those for a channel the session listens on are its own.
func (s *session) notified(channel, payload string) {
	if !s.channels[channel] || !strings.HasPrefix(payload, channel+" from ") {
		s.violate(foreignNotice, "notification on %q: %q", channel, payload) //nolint:errcheck // the session goes on
		return
	}
	s.heard[payload]++
}

// notifySelf sends a notification to its own channel: it comes once.
func notifySelf(s *session) error {
	channel, err := s.listen()
	if err != nil {
		return err
	}
	payload := channel + " from " + s.question()
	if err := s.ask([]string{"C[NOTIFY] Z[I]"}, query("NOTIFY "+name(channel)+", "+literal(payload))); err != nil {
		return err
	}
	// PostgreSQL sends a session its own notifications before the end of the transaction's answer or right after it.
	if err := s.ask([]string{row("1") + " Z[I]"}, query("SELECT 1")); err != nil {
		return err
	}
	if n := s.heard[payload]; n != 1 {
		return s.violate(wrongAnswer, "a notification to itself came %d times", n)
	}
	delete(s.heard, payload)
	return nil
}

// notifyOther sends a notification to whoever else listens in this database.
func notifyOther(s *session) error {
	if _, err := s.listen(); err != nil {
		return err
	}
	channel := s.r.listeners.any(s.db.index, s.rng.IntN)
	if channel == "" {
		return simpleQuery(s)
	}
	t := s.question()
	return s.ask([]string{row("") + " Z[I]"}, query(fmt.Sprintf("SELECT pg_notify(%s, %s)", literal(channel), literal(channel+" from "+t))))
}

// temporaryTable makes one, or finds what it put into the one it made.
func temporaryTable(s *session) error {
	if s.temp == "" {
		t := s.question()
		if err := s.ask([]string{"C[CREATE TABLE] C[INSERT 0 1] Z[I]"},
			query("CREATE TEMP TABLE soak_temp (tag text); INSERT INTO soak_temp VALUES ("+literal(t)+")")); err != nil {
			return err
		}
		s.temp = t
		return nil
	}
	return s.kept(row(s.temp)+" Z[I]", query("SELECT tag FROM soak_temp"))
}

// preparedStatement makes one by the name that all sessions use, or runs the one it made.
func preparedStatement(s *session) error {
	if s.named == "" {
		t := s.question()
		if err := s.ask([]string{"1 Z[I]"}, parse("s1", "SELECT "+literal(t)+" || $1::text"), syncMessage()); err != nil {
			return err
		}
		s.named = t
	}
	t := s.question()
	return s.kept("2 "+data(s.named+t)+" C[SELECT 1] Z[I]", bind("s1", t), execute(0), syncMessage())
}

// sessionSetting sets what no pooler carries: it is the session's until its end, and nobody's after it.
func sessionSetting(s *session) error {
	want := s.workMem
	if want == "" {
		want = "4MB"
	}
	if err := s.kept("T "+data(want)+" C[SHOW] Z[I]", query("SHOW work_mem")); err != nil {
		return err
	}
	v := fmt.Sprintf("%dMB", 5+s.rng.IntN(50))
	if err := s.ask([]string{"C[SET] Z[I]"}, query("SET work_mem = "+literal(v))); err != nil {
		return err
	}
	s.workMem = v
	return nil
}

// kept is ask for state of the session's own: something else is another session's.
func (s *session) kept(want string, msgs ...pgproto3.FrontendMessage) error {
	if err := s.send(msgs...); err != nil {
		return err
	}
	reply, err := s.collect(1, nil)
	if err != nil {
		return err
	}
	got := &reply.Segments[0]
	if got.Text == want {
		return nil
	}
	if len(got.Errors) == 1 && s.r.refusal(s.db, &got.Errors[0]) {
		s.r.error(got.Errors[0].Code, got.Errors[0].Error())
		return &disturbed{got.Errors[0].Code}
	}
	return s.violate(leakedState, "got %s%s, wanted %s", short(got.Text, 400), errorTexts(got.Errors), want)
}

// advisoryLock takes the client's own lock, which an earlier session of the client may have left behind: it must become
// free, since that session is gone.
func advisoryLock(s *session) error {
	t := s.question()
	took := row(t, "t") + " Z[I]"
	sql := fmt.Sprintf("SELECT %s, pg_try_advisory_lock(%d)", literal(t), s.id.client)
	for until := time.Now().Add(cancelClosing); ; {
		if err := s.send(query(sql)); err != nil {
			return err
		}
		reply, err := s.collect(1, nil)
		if err != nil {
			return err
		}
		got := &reply.Segments[0]
		switch {
		case got.Text == took:
			if s.rng.IntN(2) == 0 {
				return nil // the end of the session frees it
			}
			return s.ask([]string{row(t, "t") + " Z[I]"}, query(fmt.Sprintf("SELECT %s, pg_advisory_unlock(%d)", literal(t), s.id.client)))
		case got.Text != row(t, "f")+" Z[I]":
			d, verr := s.compare(got, took, false)
			if verr != nil {
				return verr
			}
			return d
		case time.Now().After(until):
			return s.violate(leakedState, "an advisory lock of a session that is gone is still held")
		}
		s.wait(50 * time.Millisecond)
	}
}
