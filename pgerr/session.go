package pgerr

import (
	"fmt"
	"time"
)

// QueryWaitTimeout is for a client that waited query_wait_timeout for a server connection while the pool was busy.
func QueryWaitTimeout(waited time.Duration) *Error {
	return &Error{Severity: SeverityError, Code: TooManyConnections, Message: "query_wait_timeout",
		Detail: fmt.Sprintf("No server connection became free within %s.", waited.Round(time.Millisecond)),
		Hint: "Nothing was sent, so it is safe to retry. Shorten transactions, or raise default_pool_size or " +
			"query_wait_timeout; SHOW POOLS shows the queues."}
}

// Paused is for a client that waited query_wait_timeout while its database was paused from the console.
func Paused(database string, waited time.Duration) *Error {
	return &Error{Severity: SeverityError, Code: CannotConnectNow,
		Message: fmt.Sprintf("query_wait_timeout: database %q is paused", database),
		Detail:  fmt.Sprintf("The request waited %s.", waited.Round(time.Millisecond)),
		Hint:    "Nothing was sent, so it is safe to retry after RESUME."}
}

// CannotConnect is for work that waited for a server that could not be reached or did not let us in. cause becomes the
// detail (nil for none); it must not hold secrets. A server's own refusal goes on with FromServer instead.
func CannotConnect(cause error) *Error {
	e := &Error{Severity: SeverityError, Code: CannotConnectNow, Message: "cannot connect to server",
		Hint: "Nothing was sent, so it is safe to retry. Check that the server runs and can be reached from here; " +
			"SHOW SERVERS shows its connections."}
	if cause != nil {
		e.Detail = cause.Error()
	}
	return e
}

// ServerLost is for a server connection that broke while a client held it. outstanding: a request had been sent and
// was not fully answered, so that its outcome is unknown.
func ServerLost(outstanding bool) *Error {
	if outstanding {
		return &Error{Severity: SeverityFatal, Code: TransactionOutcomeUnknown, Message: "server conn crashed?",
			Detail: "The server connection was lost before the server answered: the request may or may not have taken effect.",
			Hint:   "Reconnect, and check whether the change was made before you repeat it."}
	}
	return &Error{Severity: SeverityFatal, Code: ConnectionFailure, Message: "server conn crashed?",
		Detail: "The server connection was lost after every request had been answered.",
		Hint:   "Reconnect. An open transaction is rolled back; it is safe to repeat it from its beginning."}
}

// Canceled is for a request that was cancelled while it waited for a server connection.
func Canceled() *Error {
	return &Error{Severity: SeverityError, Code: QueryCanceled, Message: "canceling statement due to user request"}
}

// StatementMode is for a transaction block in a pool of mode statement.
func StatementMode() *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: "transaction blocks not allowed in statement pooling mode",
		Hint:    "Use autocommit, or pool_mode = \"transaction\" for this database."}
}

// Shutdown ends a session because the pooler stops.
func Shutdown() *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: "server shutting down", Hint: "Reconnect."}
}

// ShutdownLogin refuses a login because the pooler stops.
func ShutdownLogin() *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: "pooler is shutting down", Hint: "Reconnect."}
}

// AdminDisconnect ends a session from the console.
func AdminDisconnect() *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: "admin forced disconnect", Hint: "Reconnect."}
}

// DatabaseChanged ends a session whose database the reloaded settings define otherwise or no longer have.
func DatabaseChanged() *Error {
	return &Error{Severity: SeverityFatal, Code: AdminShutdown, Message: "database configuration changed",
		Hint: "Reconnect."}
}

// Internal is for a failure of our own. The client is not told of err, which is wrapped for the log.
func Internal(err error) *Error {
	return &Error{Severity: SeverityFatal, Code: SystemError, Message: "internal error in the pooler", cause: err,
		Hint: "Reconnect. Fencepost's log has the details; please report them."}
}

// FeatureNotSupported is for a request that the pooler understands and does not serve. msg is the whole message.
func FeatureNotSupported(msg string) *Error {
	return &Error{Severity: SeverityError, Code: FeatureUnsupported, Message: msg}
}
