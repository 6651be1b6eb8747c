package pgerr

import (
	"fmt"
	"time"
)

// NoPrimary is for a write that waited while no host of its shard was known to be the primary. since is for how long
// that has been so, state the shard's health, explanation what each host said, hint what an operator can do about it
// ("" for nothing but wait).
func NoPrimary(shard string, since time.Duration, state, explanation, hint string) *Error {
	if hint == "" {
		hint = "SHOW REPLICATION shows what each host says."
	}
	return &Error{Severity: SeverityError, Code: CannotConnectNow,
		Message: fmt.Sprintf("no primary has been known for shard %q for %s (%s)", shard, since.Round(time.Millisecond), state),
		Detail:  explanation,
		Hint:    "Nothing was sent, so it is safe to retry. " + hint}
}

// NoStandby is for a read with target standby while no standby of its shard serves reads. explanation is what each host
// said.
func NoStandby(shard, explanation string) *Error {
	return &Error{Severity: SeverityError, Code: CannotConnectNow,
		Message: fmt.Sprintf("no standby of shard %q serves reads", shard),
		Detail:  explanation,
		Hint: "Nothing was sent, so it is safe to retry. Target prefer-standby takes the primary when there is no standby; " +
			"SHOW REPLICATION shows what each host says."}
}

// FenceUnanswered is for a request whose server, asked whether it still is the primary, did not answer for waited.
func FenceUnanswered(waited time.Duration) *Error {
	return &Error{Severity: SeverityError, Code: ConnectionFailure,
		Message: "the server did not confirm that it is the primary",
		Detail: fmt.Sprintf("It was asked before the request was to be sent, and did not answer within %s.",
			waited.Round(time.Millisecond)),
		Hint: "The request was not sent, so it is safe to retry. SHOW REPLICATION shows what each host says."}
}

// superseded is the message of the errors that end a session whose server lost its role.
const superseded = "terminating connection: its server is no longer the primary"

// Superseded ends a session that holds a server connection, between transactions. why is what led to it.
func Superseded(why string) *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: superseded, Detail: why,
		Hint: "Reconnect. No transaction was open; settings and other session state on the old server are lost."}
}

// SupersededInTransaction ends a session in a transaction block that certainly was not committed.
func SupersededInTransaction(why string) *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: superseded,
		Detail: "The open transaction was not committed: it is rolled back. " + why,
		Hint:   "Reconnect. It is safe to repeat the transaction from its beginning."}
}

// SupersededUnanswered ends a session whose request was sent, was not answered, and may have been committed.
func SupersededUnanswered(why string) *Error {
	return &Error{Severity: SeverityFatal, Code: TransactionOutcomeUnknown, Message: superseded,
		Detail: "The request was sent and not answered: it may or may not have taken effect. " + why,
		Hint:   "Reconnect, and check whether the change was made before you repeat it."}
}

// StandbyPromoted ends a session that wants a standby and holds a connection to a server that is none any more, between
// transactions. why is what is known of it.
func StandbyPromoted(why string) *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: "terminating connection: its server is no longer a standby", Detail: why,
		Hint: "Reconnect. No transaction was open; settings and other session state on that server are lost."}
}

// StandbySilent ends a session whose standby has said nothing for long, on any connection. why names it.
func StandbySilent(why error) *Error {
	return &Error{Severity: SeverityFatal, Code: ConnectionFailure, Message: "terminating connection: its standby does not answer", Detail: why.Error(),
		Hint: "Reconnect. A standby takes no writes: what was not answered is safe to repeat."}
}
