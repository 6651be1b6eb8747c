package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/ledger"
	"fencepost/soak/raw"
)

// patience bounds every wait for an answer: longer than any query_wait_timeout of the run.
const patience = 60 * time.Second

// session is one connection of a client that works by the protocol alone, with all it should be like.
type session struct {
	r    *run
	rng  *rand.Rand
	soft context.Context // ends with the load; what is under way may finish
	db   *database
	user string
	id   tag // n is the last question's number
	own  *owner
	conn *raw.Conn

	want     map[string]string // settings as they should be
	channels map[string]bool   // listened to
	heard    map[string]int    // payloads, by text
	temp     string            // what the temporary table holds, "" if there is none
	workMem  string            // as set in this session, "" if it was not
	named    string            // what the prepared statement s1 answers, "" if there is none
	doing    string            // name of the activity
	now      *atomic.Pointer[string]
	history  [6]exchange
	asked    int
}

// exchange is kept for the report of a violation.
type exchange struct {
	doing string
	sent  []pgproto3.FrontendMessage
	got   string
}

// disturbed says that a request was refused, for a reason that may happen; nothing of it was done.
type disturbed struct{ code string }

func (d *disturbed) Error() string { return "refused with " + d.code }

// errViolated says that a violation was noted: nothing is known of the session any more.
var errViolated = errors.New("violation")

// question begins the next question.
func (s *session) question() string {
	s.id.n++
	return s.id.String()
}

// violate notes a violation with what the session did last.
func (s *session) violate(k kind, format string, args ...any) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s %s: %s", s.id.name(), s.db.name, s.user, s.doing, fmt.Sprintf(format, args...))
	for i := max(s.asked-len(s.history), 0); i < s.asked; i++ {
		x := s.history[i%len(s.history)]
		fmt.Fprintf(&b, "\n    [%s] sent %s\n    got  %s", x.doing, summary(x.sent), short(x.got, 200))
	}
	s.r.violate(k, "%s", b.String())
	return errViolated
}

func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most/2] + " … " + text[len(text)-most/2:]
}

// summary is messages in short.
func summary(msgs []pgproto3.FrontendMessage) string {
	var words []string
	for i, m := range msgs {
		if i == 12 {
			words = append(words, "…")
			break
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			words = append(words, "Query("+short(m.String, 120)+")")
		case *pgproto3.Parse:
			words = append(words, "Parse("+short(m.Query, 120)+")")
		default:
			words = append(words, strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3."))
		}
	}
	return strings.Join(words, " ")
}

// send sends without waiting. What the server may hold for the session from now on is its own.
func (s *session) send(msgs ...pgproto3.FrontendMessage) error {
	s.own.busy.Store(true)
	s.history[s.asked%len(s.history)] = exchange{doing: s.doing, sent: msgs}
	s.asked++
	if err := s.conn.Send(time.Now().Add(patience), msgs...); err != nil {
		// The other side may have said why before it closed.
		_, err := s.collect(1<<30, nil)
		return err
	}
	return nil
}

// collect reads n ReadyForQuery, or up to what stop says.
func (s *session) collect(n int, stop func(pgproto3.BackendMessage) bool) (*raw.Reply, error) {
	reply, err := s.conn.Collect(time.Now().Add(patience), n, stop)
	if x := &s.history[(s.asked+len(s.history)-1)%len(s.history)]; x.got == "" {
		x.got = reply.String()
	} else {
		x.got += " ~ " + reply.String()
	}
	if err == nil && stop == nil && s.conn.Status == 'I' {
		s.own.busy.Store(false)
	}
	return reply, err
}

// ask sends messages and compares the answer with what is wanted: one text for each ReadyForQuery.
func (s *session) ask(want []string, msgs ...pgproto3.FrontendMessage) error {
	if err := s.send(msgs...); err != nil {
		return err
	}
	return s.answer(want)
}

// answer compares what comes with what is wanted. It returns nil, a *disturbed (the session goes on), a *raw.Lost or
// raw.ErrLate for the caller of the activity to judge, or errViolated.
func (s *session) answer(want []string) error {
	reply, err := s.collect(len(want), nil)
	var refused *disturbed
	for i := range reply.Segments {
		got := &reply.Segments[i]
		d, verr := s.compare(got, want[i], err != nil && i == len(reply.Segments)-1)
		if verr != nil {
			return verr
		}
		if d != nil {
			refused = d
		}
	}
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused
	}
	return nil
}

// compare looks at one segment; cut says that the session ended inside of it.
func (s *session) compare(got *raw.Segment, want string, cut bool) (*disturbed, error) {
	if got.Text == want && !cut {
		for i := range got.Errors {
			e := &got.Errors[i]
			if !s.mine(e) {
				return nil, s.violate(strange(s.id, e.Message+e.Detail), "an error without the tag of its question: %s %s", e, e.Detail)
			}
		}
		return nil, nil
	}
	if cut {
		text := got.Text
		if n := len(got.Errors); n > 0 {
			text = strings.TrimSuffix(text, "E["+got.Errors[n-1].Code+"]")
		}
		if s.r.causes.down() { // servers that are shut down at once say so in a notice
			text = shutdownNotice.ReplaceAllString(text, "")
		}
		text = strings.TrimSuffix(text, " ")
		if !strings.HasPrefix(want, text) {
			return nil, s.violate(strange(s.id, text), "before the session ended came %s, wanted the begin of %s", short(text, 400), short(want, 400))
		}
		return nil, nil
	}
	if len(got.Errors) == 1 && got.Text == "E["+got.Errors[0].Code+"] Z[I]" && s.r.refusal(s.db, &got.Errors[0]) {
		s.r.error(got.Errors[0].Code, got.Errors[0].Error())
		return &disturbed{got.Errors[0].Code}, nil
	}
	return nil, s.violate(s.classify(got), "got %s%s, wanted %s", short(got.Text, 400), errorTexts(got.Errors), short(want, 400))
}

var shutdownNotice = regexp.MustCompile(`N\[terminating connection [^\]]*\] ?`)

// mine reports whether an error that was wanted says whose it is. Some cannot.
func (s *session) mine(e *raw.Error) bool {
	switch e.Code {
	case "25P02": // the transaction is aborted: after an error that had the tag
		return true
	case "57014": // our own cancel, or CopyFail with the tag as its reason
		return len(tags(e.Message)) == 0 || strings.Contains(e.Message, s.id.String())
	}
	return strings.Contains(e.Message+e.Detail, s.id.String())
}

func (s *session) classify(got *raw.Segment) kind {
	text := got.Text
	for _, e := range got.Errors {
		if e.Code == "57014" && !strings.Contains(e.Message, "COPY") {
			return foreignCancel
		}
		text += e.Message + e.Detail
	}
	k := strange(s.id, text)
	if k == wrongAnswer && len(got.Errors) > 0 {
		return unexpected
	}
	return k
}

func errorTexts(all []raw.Error) string {
	text := ""
	for i := range all {
		text += " (" + all[i].Error() + ")"
	}
	return text
}

// known is what the ledger may be told after a request that might have committed ended with err.
func (s *session) known(k ledger.Key, err error) {
	switch lost := (*raw.Lost)(nil); {
	case err == nil:
		s.r.book.Set(k, ledger.Present)
	case errors.As(err, &lost) && lost.Said != nil && lost.Said.Code == "08006":
		s.r.book.Set(k, ledger.Absent) // 08006 says that the request was not sent
	default:
		if d := (*disturbed)(nil); errors.As(err, &d) {
			s.r.book.Set(k, ledger.Absent)
		}
	}
}

// judge notes the end of a session if it is not one that may happen.
func (s *session) judge(err error) {
	lost := (*raw.Lost)(nil)
	switch {
	case err == nil, errors.Is(err, errViolated), errors.Is(err, errLeft), s.r.hard.Err() != nil:
	case errors.As(err, &lost) && lost.Said == nil && lost.Inside && (s.r.causes.harmed() || recent(&s.r.causes.lastKill)):
		s.r.error("closed inside a message", lost.Error())
	case errors.As(err, &lost) && lost.Said == nil:
		s.wait(500 * time.Millisecond)                                                   // for the log's last line
		s.violate(wordless, "%v; log:\n    %s", lost, s.r.log.about(s.conn.LocalAddr())) //nolint:errcheck // the session ends anyway
	case errors.As(err, &lost):
		if s.r.mayEnd(lost.Said) {
			s.r.error(lost.Said.Code, lost.Said.Error())
		} else {
			s.violate(unexpected, "%v (detail %q, hint %q)", lost.Said, lost.Said.Detail, lost.Said.Hint) //nolint:errcheck // as above
		}
	case errors.Is(err, raw.ErrLate):
		s.violate(noAnswer, "nothing within %v; %s", patience, s.r.clientsNow()) //nolint:errcheck // as above
	default:
		s.violate(harness, "%v", err) //nolint:errcheck // as above
	}
}

// judgeLogin notes a login that failed if it may not fail.
func (r *run) judgeLogin(who string, err error) {
	var pe *pgconn.PgError
	switch {
	case r.hard.Err() != nil:
	case errors.As(err, &pe):
		e := raw.Error{Severity: pe.Severity, Code: pe.Code, Message: pe.Message, Detail: pe.Detail, Hint: pe.Hint}
		if r.mayEnd(&e) || r.mayRefuseLogin(&e) {
			r.error(pe.Code, e.Error())
			return
		}
		r.violate(unexpected, "%s: login: %v (detail %q)", who, &e, pe.Detail)
	default:
		r.violate(noAnswer, "%s: login: %v", who, err)
	}
}
