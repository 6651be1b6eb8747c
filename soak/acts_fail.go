package soak

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/raw"
)

// partly compares an answer without its ReadyForQuery with what is wanted. A refusal is a *disturbed: its ReadyForQuery
// is still to come, for a Sync that may still have to be sent (see synced).
func (s *session) partly(reply *raw.Reply, want string) error {
	got := &reply.Segments[0]
	if len(got.Errors) == 1 && got.Text == "E["+got.Errors[0].Code+"]" && s.r.refusal(s.db, &got.Errors[0]) {
		s.r.error(got.Errors[0].Code, got.Errors[0].Error())
		return &disturbed{got.Errors[0].Code}
	}
	if got.Text == want {
		for i := range got.Errors {
			if !s.mine(&got.Errors[i]) {
				return s.violate(strange(s.id, got.Errors[i].Message), "an error without the tag of its question: %v", &got.Errors[i])
			}
		}
		return nil
	}
	return s.violate(s.classify(got), "got %s%s, wanted %s", short(got.Text, 400), errorTexts(got.Errors), short(want, 400))
}

// synced ends an extended batch that was refused.
func (s *session) synced(err error) error {
	if d := (*disturbed)(nil); !errors.As(err, &d) {
		return err
	}
	if serr := s.ask([]string{"Z[I]"}, syncMessage()); serr != nil {
		return serr
	}
	return err
}

// failures are statements that fail with the tag in their message.
var failures = []func(t string) (sql, code string){
	func(t string) (string, string) { return "SELECT " + literal(t) + "::int", "22P02" },
	func(t string) (string, string) { return "SELECT * FROM " + name(t), "42P01" },
	func(t string) (string, string) { return "DO $$BEGIN RAISE EXCEPTION '" + t + "'; END$$", "P0001" },
	func(t string) (string, string) { return "SELECT " + name(t), "42703" },
}

func failingStatement(s *session) error {
	t := s.question()
	sql, code := failures[s.rng.IntN(len(failures))](t)
	if s.rng.IntN(3) == 0 {
		want := "E[" + code + "] Z[I]"
		if code == "P0001" {
			want = "1 2 " + want
		}
		return s.ask([]string{want}, append(extended(sql), syncMessage())...)
	}
	return s.ask([]string{"E[" + code + "] Z[I]"}, query(sql))
}

// failedTransaction stays in a failed transaction for a while.
func failedTransaction(s *session) error {
	t := s.question()
	if err := s.ask([]string{"C[BEGIN] Z[T]"}, query("BEGIN")); err != nil {
		return err
	}
	sql, code := failures[s.rng.IntN(len(failures))](t)
	if err := s.ask([]string{"E[" + code + "] Z[E]"}, query(sql)); err != nil {
		return err
	}
	s.pause()
	if err := s.ask([]string{"E[25P02] Z[E]"}, query("SELECT "+literal(t))); err != nil {
		return err
	}
	return s.ask([]string{"C[ROLLBACK] Z[I]"}, query([]string{"ROLLBACK", "COMMIT"}[s.rng.IntN(2)]))
}

// functionCall uses the protocol's own call of textcat(text, text).
func functionCall(s *session) error {
	const textcat = 1258
	t := s.question()
	return s.ask([]string{"V[" + t + "!] Z[I]"}, &pgproto3.FunctionCall{Function: textcat, Arguments: [][]byte{[]byte(t), []byte("!")}})
}

// lateCopyMessages sends what belongs to a COPY that is over: servers ignore it.
func lateCopyMessages(s *session) error {
	t := s.question()
	return s.ask([]string{row(t) + " Z[I]"}, &pgproto3.CopyData{Data: []byte("late")}, &pgproto3.CopyDone{}, flush(),
		&pgproto3.CopyFail{Message: "late"}, query("SELECT "+literal(t)))
}

// notices has many notices come before the answer.
func notices(s *session) error {
	t := s.question()
	n := 1 + s.rng.IntN(300)
	want := make([]string, 0, n+1)
	for i := 1; i <= n; i++ {
		want = append(want, fmt.Sprintf("N[%s %d]", t, i))
	}
	return s.ask([]string{strings.Join(append(want, "C[DO] Z[I]"), " ")},
		query(fmt.Sprintf("DO $$BEGIN FOR i IN 1..%d LOOP RAISE NOTICE '%s %%', i; END LOOP; END$$", n, t)))
}
