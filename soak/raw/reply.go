package raw

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Reply is what came back for a number of requests, in a short notation: a letter for each message with what matters of
// it in brackets. ParameterStatus and NotificationResponse are left out, since they may come at any time.
//
//	T  D[a|b]  C[SELECT 1]  E[22P02]  N[text]  1 2 3 n t s I G H W c  d[data]  V[result]  Z[I]
type Reply struct {
	Segments []Segment // one per ReadyForQuery, the last one unfinished if the session ended or nothing more came
}

// Segment is what belongs to one ReadyForQuery.
type Segment struct {
	Text   string
	Errors []Error
	Done   bool // ReadyForQuery came
}

// Error is an ErrorResponse.
type Error struct {
	Severity, Code, Message, Detail, Hint string
}

// Fatal reports whether the error ends the session.
func (e *Error) Fatal() bool { return e.Severity == "FATAL" || e.Severity == "PANIC" }

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %s", e.Severity, e.Code, e.Message) }

// Lost says that the session has ended. Said is the last FATAL error of the other side, nil if it said nothing.
type Lost struct {
	Said *Error
	Err  error // of the socket
	// Inside: the connection ended inside of a message, where nothing can be said.
	Inside bool
}

func (l *Lost) Error() string {
	if l.Said != nil {
		return l.Said.Error()
	}
	return "the connection was closed without a word: " + l.Err.Error()
}

func (l *Lost) Unwrap() error { return l.Err }

// ErrLate says that an answer did not come in time.
var ErrLate = errors.New("no answer in time")

// String joins the segments.
func (r *Reply) String() string {
	var b strings.Builder
	for i := range r.Segments {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.Segments[i].Text)
	}
	return b.String()
}

// maxText bounds what one message adds to a Reply's text; what is longer is cut in the middle, with its length.
const maxText = 64 << 10

// Collect reads until n ReadyForQuery have come or stop, which may be nil, says of a message that it is the last. An
// error is a *Lost or ErrLate; the reply holds what came before it.
func (c *Conn) Collect(until time.Time, n int, stop func(pgproto3.BackendMessage) bool) (*Reply, error) {
	r := &Reply{Segments: []Segment{{}}}
	var text strings.Builder
	var said *Error
	finish := func() { r.Segments[len(r.Segments)-1].Text = text.String() }
	for {
		m, err := c.Receive(until)
		if err != nil {
			finish()
			return r, c.ended(err, said)
		}
		seg := &r.Segments[len(r.Segments)-1]
		if e, ok := m.(*pgproto3.ErrorResponse); ok {
			seg.Errors = append(seg.Errors, Error{e.Severity, e.Code, e.Message, e.Detail, e.Hint})
			if last := &seg.Errors[len(seg.Errors)-1]; last.Fatal() {
				said = &Error{e.Severity, e.Code, e.Message, e.Detail, e.Hint}
			}
		}
		if word := describe(m); word != "" {
			if text.Len() > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(word)
		}
		if _, ok := m.(*pgproto3.ReadyForQuery); ok {
			seg.Done = true
			if n--; n <= 0 {
				finish()
				return r, nil
			}
			finish()
			text.Reset()
			r.Segments = append(r.Segments, Segment{})
		}
		if stop != nil && said == nil && stop(m) { // after a FATAL error only the end is left to come
			finish()
			return r, nil
		}
	}
}

func (c *Conn) ended(err error, said *Error) error {
	if ne, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && ne.Timeout() {
		return fmt.Errorf("%w: %w", ErrLate, err)
	}
	return &Lost{Said: said, Err: err, Inside: !c.nc.in.atBoundary()}
}

func describe(m pgproto3.BackendMessage) string {
	switch m := m.(type) {
	case *pgproto3.RowDescription:
		return "T"
	case *pgproto3.DataRow:
		values := make([]string, len(m.Values))
		for i, v := range m.Values {
			values[i] = clip(v)
			if v == nil {
				values[i] = "NULL"
			}
		}
		return "D[" + strings.Join(values, "|") + "]"
	case *pgproto3.CommandComplete:
		return "C[" + string(m.CommandTag) + "]"
	case *pgproto3.ErrorResponse:
		return "E[" + m.Code + "]"
	case *pgproto3.NoticeResponse:
		return "N[" + m.Message + "]"
	case *pgproto3.CopyData:
		return "d[" + clip(m.Data) + "]"
	case *pgproto3.FunctionCallResponse:
		return "V[" + clip(m.Result) + "]"
	case *pgproto3.ReadyForQuery:
		return "Z[" + string(m.TxStatus) + "]"
	case *pgproto3.ParameterStatus, *pgproto3.NotificationResponse:
		return ""
	}
	return letter(m)
}

func letter(m pgproto3.BackendMessage) string {
	switch m.(type) {
	case *pgproto3.ParseComplete:
		return "1"
	case *pgproto3.BindComplete:
		return "2"
	case *pgproto3.CloseComplete:
		return "3"
	case *pgproto3.NoData:
		return "n"
	case *pgproto3.ParameterDescription:
		return "t"
	case *pgproto3.PortalSuspended:
		return "s"
	case *pgproto3.EmptyQueryResponse:
		return "I"
	case *pgproto3.CopyInResponse:
		return "G"
	case *pgproto3.CopyOutResponse:
		return "H"
	case *pgproto3.CopyBothResponse:
		return "W"
	case *pgproto3.CopyDone:
		return "c"
	}
	return fmt.Sprintf("%T", m)
}

func clip(b []byte) string {
	if len(b) <= maxText {
		return string(b)
	}
	return fmt.Sprintf("%s…%d bytes…%s", b[:256], len(b), b[len(b)-256:])
}
