package soak

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// activity is something a session does, from a session at rest to a session at rest.
type activity struct {
	name   string
	weight int
	modes  string // the databases it is for, by the first letter of their mode: session, transaction, statement
	do     func(*session) error
}

// activities are all of them. The weights are parts of the sum of those a database allows.
var activities = []activity{
	{"simple query", 20, "tsm", simpleQuery},
	{"extended query", 12, "tsm", extendedQuery},
	{"several statements in a query", 4, "tsm", severalStatements},
	{"empty queries", 1, "tsm", emptyQueries},
	{"pipeline", 8, "tsm", pipeline},
	{"pipeline with an error", 4, "tsm", pipelineWithError},
	{"query while skipping", 2, "tsm", queryWhileSkipping},
	{"error without Sync", 2, "tsm", errorWithoutSync},
	{"describe first", 3, "tsm", describeFirst},
	{"portal in slices", 2, "tsm", portalInSlices},
	{"failing statement", 5, "tsm", failingStatement},
	{"failed transaction", 3, "ts", failedTransaction},
	{"function call", 1, "tsm", functionCall},
	{"late copy messages", 1, "tsm", lateCopyMessages},
	{"notices", 2, "tsm", notices},

	{"transaction", 16, "ts", ledgerTransaction},
	{"autocommit insert", 5, "tsm", autocommitInsert},
	{"implicit transaction", 4, "tsm", implicitTransaction},
	{"transaction block in statement mode", 1, "m", blockInStatementMode},
	{"sum of all accounts", 2, "ts", sumOfAccounts},
	{"own transactions", 3, "ts", ownTransactions},

	{"copy in", 4, "tsm", copyIn},
	{"copy in, extended", 2, "tsm", copyInExtended},
	{"copy in given up", 2, "tsm", copyInGivenUp},
	{"copy in refused", 2, "tsm", copyInRefused},
	{"copy out", 3, "tsm", copyOut},
	{"many rows", 3, "tsm", manyRows},
	{"big row", 2, "tsm", bigRow},
	{"big result", 2, "tsm", bigResult},
	{"big parameter", 2, "tsm", bigParameter},

	{"settings", 6, "tsm", checkSettings},
	{"change of a setting", 4, "ts", changeSetting},
	{"change of a setting rolled back", 2, "ts", changeSettingRolledBack},

	{"cancel", 3, "tsm", cancelRunning},
	{"cancel at random", 3, "tsm", cancelAtRandom},
	{"cancel when idle", 1, "tsm", cancelIdle},
	{"cancel with a false key", 1, "tsm", cancelFalseKey},

	{"notification to itself", 4, "s", notifySelf},
	{"notification to another", 3, "s", notifyOther},
	{"temporary table", 3, "s", temporaryTable},
	{"prepared statement", 3, "s", preparedStatement},
	{"session setting", 2, "s", sessionSetting},
	{"advisory lock", 2, "s", advisoryLock},
}

// who is appended to questions and answers: an answer of another database or user is foreign, too.
const who = "current_database(), session_user"

func (s *session) whoValues(t string) []string { return []string{t, s.db.server, s.user} }

func simpleQuery(s *session) error {
	t := s.question()
	return s.ask([]string{row(s.whoValues(t)...) + " Z[I]"}, query("SELECT "+literal(t)+", "+who))
}

func extendedQuery(s *session) error {
	t := s.question()
	return s.ask([]string{"1 2 " + row(s.whoValues(t)...) + " Z[I]"},
		parse("", "SELECT $1::text, "+who), bind("", t), describePortal(), execute(0), syncMessage())
}

func severalStatements(s *session) error {
	t := s.question()
	var sql, want []string
	for i := range 2 + s.rng.IntN(4) {
		v := fmt.Sprintf("%s %d", t, i)
		sql, want = append(sql, "SELECT "+literal(v)), append(want, row(v))
	}
	return s.ask([]string{strings.Join(want, " ") + " Z[I]"}, query(strings.Join(sql, "; ")))
}

// emptyQueries also sends a query and an extended batch behind them without waiting.
func emptyQueries(s *session) error {
	t := s.question()
	return s.ask([]string{"I Z[I]", "1 2 I Z[I]", row(t) + " Z[I]"},
		query(""), parse("", ""), bind(""), execute(0), syncMessage(), query("SELECT "+literal(t)))
}

// pipeline sends batches and queries without waiting, some with a Flush.
func pipeline(s *session) error {
	t := s.question()
	var want []string
	var msgs []pgproto3.FrontendMessage
	for i := range 2 + s.rng.IntN(8) {
		v := fmt.Sprintf("%s %d", t, i)
		switch s.rng.IntN(4) {
		case 0:
			msgs, want = append(msgs, query("SELECT "+literal(v))), append(want, row(v)+" Z[I]")
		case 1: // several statements to one Sync
			msgs = append(append(msgs, extended("SELECT $1::text", v)...), extended("SELECT $1::text", v+"b")...)
			msgs, want = append(msgs, syncMessage()), append(want, "1 2 "+data(v)+" C[SELECT 1] 1 2 "+data(v+"b")+" C[SELECT 1] Z[I]")
		default:
			msgs = append(msgs, extended("SELECT $1::text", v)...)
			if s.rng.IntN(2) == 0 {
				msgs = append(msgs, flush())
			}
			msgs, want = append(msgs, syncMessage()), append(want, "1 2 "+data(v)+" C[SELECT 1] Z[I]")
		}
	}
	return s.ask(want, msgs...)
}

// pipelineWithError has a statement fail in the middle of a batch: what follows up to the Sync must not run, what comes
// behind it must.
func pipelineWithError(s *session) error {
	k := s.r.book.Begin(s.db.index, s.id.client, 2)
	t := s.question()
	msgs := append(extended("SELECT $1::text", t), extended(s.insertSQL(k.N, 1, 2, t))...)
	msgs = append(append(msgs, parse("", "SELECT "+literal(t)+"::int"), bind(""), execute(0)), extended(s.insertSQL(k.N, 2, 2, t))...)
	msgs = append(append(msgs, syncMessage()), extended("SELECT $1::text", t)...)
	return s.ask([]string{"1 2 " + data(t) + " C[SELECT 1] 1 2 " + data(t) + " C[INSERT 0 1] E[22P02] Z[I]", "1 2 " + data(t) + " C[SELECT 1] Z[I]"},
		append(msgs, syncMessage())...)
}

// queryWhileSkipping puts a simple query into what the server skips after an error.
func queryWhileSkipping(s *session) error {
	t := s.question()
	return s.ask([]string{"E[22P02] Z[I]", row(t) + " Z[I]"},
		parse("", "SELECT "+literal(t)+"::int"), bind(""), execute(0), query("SELECT 'skipped'"), syncMessage(), query("SELECT "+literal(t)))
}

// errorWithoutSync waits for an error before it sends the Sync, as some drivers do.
func errorWithoutSync(s *session) error {
	t := s.question()
	if err := s.send(parse("", "SELECT "+literal(t)+"::int")); err != nil {
		return err
	}
	reply, err := s.collect(1, func(m pgproto3.BackendMessage) bool { _, ok := m.(*pgproto3.ErrorResponse); return ok })
	if err != nil {
		return err
	}
	if serr := s.send(syncMessage()); serr != nil {
		return serr
	}
	perr := s.partly(reply, "E[22P02]")
	if errors.Is(perr, errViolated) {
		return perr
	}
	if err := s.answer([]string{"Z[I]"}); err != nil {
		return err
	}
	return perr
}

// describeFirst waits for the description, which has been flushed, before it binds.
func describeFirst(s *session) error {
	t := s.question()
	if err := s.send(parse("", "SELECT $1::text"), describeStatement(""), flush()); err != nil {
		return err
	}
	reply, err := s.collect(1, func(m pgproto3.BackendMessage) bool {
		switch m.(type) {
		case *pgproto3.RowDescription, *pgproto3.ErrorResponse:
			return true
		}
		return false
	})
	if err != nil {
		return err
	}
	if err := s.partly(reply, "1 t T"); err != nil {
		return s.synced(err)
	}
	return s.ask([]string{"2 " + data(t) + " C[SELECT 1] Z[I]"}, bind("", t), execute(0), syncMessage())
}

// portalInSlices fetches from a portal bit by bit over Flush.
func portalInSlices(s *session) error {
	t := s.question()
	v := func(i int) string { return data(fmt.Sprintf("%s %d", t, i)) }
	steps := []struct {
		want string
		msgs []pgproto3.FrontendMessage
	}{
		{"1 2 " + v(1) + " " + v(2) + " s", []pgproto3.FrontendMessage{
			parse("", "SELECT $1::text || ' ' || i FROM generate_series(1, 5) i"), bind("", t), execute(2), flush()}},
		{v(3) + " " + v(4) + " s", []pgproto3.FrontendMessage{execute(2), flush()}},
	}
	for _, step := range steps {
		if err := s.send(step.msgs...); err != nil {
			return err
		}
		reply, err := s.collect(1, func(m pgproto3.BackendMessage) bool {
			switch m.(type) {
			case *pgproto3.PortalSuspended, *pgproto3.ErrorResponse:
				return true
			}
			return false
		})
		if err != nil {
			return err
		}
		if err := s.partly(reply, step.want); err != nil {
			return s.synced(err)
		}
	}
	return s.ask([]string{v(5) + " C[SELECT 1] Z[I]"}, execute(0), syncMessage())
}
