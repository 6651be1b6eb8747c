package pgerr

import "fmt"

// DuplicateStatement is for a Parse under a name that the client has a statement of, in PostgreSQL's words.
func DuplicateStatement(name string) *Error {
	return &Error{Severity: SeverityError, Code: DuplicatePreparedStatement,
		Message: fmt.Sprintf("prepared statement \"%s\" already exists", name)}
}

// StatementNotKept is for a statement that the client parsed in an earlier transaction, where statements do not outlive one
// (max_prepared_statements = 0).
func StatementNotKept(name string) *Error {
	return &Error{Severity: SeverityError, Code: InvalidStatementName,
		Message: fmt.Sprintf("prepared statement \"%s\" does not exist", name),
		Hint:    "With max_prepared_statements = 0 a named statement lasts until its transaction ends. Raise it, or use unnamed statements."}
}

// TooManyStatements is for a Parse that would make a client, or all of them, have more statements than Fencepost keeps.
func TooManyStatements() *Error {
	return &Error{Severity: SeverityError, Code: ProgramLimitExceeded, Message: "too many prepared statements",
		Hint: "Close statements that are not needed any more, or use unnamed ones."}
}

// StatementTooLong is for a message about a statement that is longer than Fencepost looks at.
func StatementTooLong(limit int) *Error {
	return &Error{Severity: SeverityFatal, Code: ProgramLimitExceeded,
		Message: fmt.Sprintf("a named statement must not be longer than %d bytes", limit),
		Hint:    "Use an unnamed statement, or pool_mode = \"session\" for this database."}
}

// StatementsUncertain is for a message about a named statement after a COPY that left it open what the server has done.
func StatementsUncertain() *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: "named statements cannot be used after a COPY that was interrupted by other messages",
		Hint:    "Reconnect. End a COPY with CopyDone or CopyFail before any other message."}
}

// ResultTypeChanged is for a statement whose parameters or columns have other types than when the client parsed it, in
// PostgreSQL's words.
func ResultTypeChanged() *Error {
	return &Error{Severity: SeverityError, Code: FeatureUnsupported, Message: "cached plan must not change result type"}
}
