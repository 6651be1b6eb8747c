// Package pgerr is the one table of errors that clients see: SQLSTATE, severity, text and what becomes of the session.
//
// There is one constructor per situation, named after it. Message says what happened, in PgBouncer's words where users
// already match on them; Detail names the object; Hint says what to do. No other package spells out a SQLSTATE: what
// must be compared with a server's code is compared with the constants here.
package pgerr

import "errors"

// Severities, as PostgreSQL spells them in the fields S and V of an ErrorResponse.
const (
	// SeverityError ends the statement; the session lives.
	SeverityError = "ERROR"
	// SeverityFatal ends the session.
	SeverityFatal = "FATAL"
	// SeverityNotice is for NoticeResponse only.
	SeverityNotice = "NOTICE"
	severityPanic  = "PANIC"
)

// Disposition says what becomes of the client session that is told of an error.
type Disposition uint8

const (
	// Continue keeps the session: severity ERROR.
	Continue Disposition = iota
	// End ends the session once the error is sent: severity FATAL.
	End
)

// String returns "continue" or "end".
func (d Disposition) String() string {
	if d == End {
		return "end"
	}
	return "continue"
}

// Error is an error as a client is told of it. It is immutable: the With methods copy.
type Error struct {
	// Severity is SeverityError or SeverityFatal.
	Severity string
	// Code is the SQLSTATE: five digits or upper case letters.
	Code string
	// Message is what happened, in one line.
	Message string
	// Detail names the object or the cause; may be empty.
	Detail string
	// Hint says what to do; may be empty.
	Hint string

	// cause is for logs and errors.Is; it is never sent.
	cause error
}

// Error returns severity, message, detail and SQLSTATE in one line, for logs.
func (e *Error) Error() string {
	s := e.Severity + ": " + e.Message
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s + " (SQLSTATE " + e.Code + ")"
}

// Unwrap returns the internal error behind e, nil if there is none. It is not part of what the client is told.
func (e *Error) Unwrap() error { return e.cause }

// Disposition says what becomes of the session: End for FATAL, else Continue.
func (e *Error) Disposition() Disposition {
	if e.Severity == SeverityFatal {
		return End
	}
	return Continue
}

// WithDetail returns a copy of e with another detail.
func (e *Error) WithDetail(detail string) *Error {
	c := *e
	c.Detail = detail
	return &c
}

// WithHint returns a copy of e with another hint.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint = hint
	return &c
}

// WithCause returns a copy of e that wraps err for logs and errors.Is. The client is not told of err.
func (e *Error) WithCause(err error) *Error {
	c := *e
	c.cause = err
	return &c
}

// Fatal returns e if it ends the session, else a copy that does: during a login every error is fatal.
func (e *Error) Fatal() *Error {
	if e.Severity == SeverityFatal {
		return e
	}
	c := *e
	c.Severity = SeverityFatal
	return &c
}

// As returns the *Error in err's chain, else Internal(err); nil for nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return e
	}
	return Internal(err)
}

// FromServer makes an Error of what a server answered, to pass a server's own login error on. FATAL and PANIC end the
// session, all else does not. A code that is missing or no SQLSTATE becomes InternalError, an empty message is
// replaced, so that what we send is always whole.
func FromServer(severity, code, message, detail, hint string) *Error {
	e := &Error{Severity: SeverityError, Code: code, Message: message, Detail: detail, Hint: hint}
	if severity == SeverityFatal || severity == severityPanic {
		e.Severity = SeverityFatal
	}
	if !ValidCode(code) {
		e.Code = InternalError
	}
	if message == "" {
		e.Message = "the server reported an error without a message"
	}
	return e
}

// ValidCode reports whether code has the form of a SQLSTATE: five digits or upper case letters.
func ValidCode(code string) bool {
	if len(code) != 5 {
		return false
	}
	for i := range len(code) {
		c := code[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
