package pgerr

import "fmt"

// ProtocolViolation is for bytes that are not the protocol. what is a whole sentence fragment, e.g. "invalid length of
// startup packet".
func ProtocolViolation(what string) *Error {
	return &Error{Severity: SeverityFatal, Code: ProtocolViolated, Message: what,
		Hint: "Check that the client speaks PostgreSQL's protocol 3 and that no device in between changes its bytes."}
}

// UnsupportedProtocol is for a startup packet of another major version than 3.
func UnsupportedProtocol(major, minor uint16) *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: fmt.Sprintf("unsupported frontend protocol %d.%d", major, minor),
		Detail:  "Protocol versions 3.0 and 3.2 are supported.",
		Hint:    "Use a client that speaks protocol 3.0 or 3.2."}
}

// DirectTLS is for a TLS ClientHello in place of a startup packet. The client cannot read the answer: it is for the
// log, and the connection is closed.
func DirectTLS() *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: "direct TLS connections are not supported",
		Hint:    "Connect with sslnegotiation=postgres, which asks first."}
}

// UnencryptedData is for bytes that came in plain text behind an accepted request for encryption ("SSL" or "GSSAPI"):
// either the client does not wait for the answer or somebody injected them (CVE-2021-3935).
func UnencryptedData(request string) *Error {
	return &Error{Severity: SeverityFatal, Code: ProtocolViolated,
		Message: "received unencrypted data after " + request + " request",
		Detail:  "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack."}
}

// NoUser is for a startup packet without a user name.
func NoUser() *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidAuthorization, Message: "no username supplied",
		Hint: "Name the user in the connection string (user=...)."}
}

// UnsupportedStartupParameter is for a parameter of the startup packet that is neither carried to servers nor ignored.
func UnsupportedStartupParameter(name string) *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported, Message: "unsupported startup parameter: " + name,
		Hint: "Remove it from the connection string, or add it to ignore_startup_parameters to have it ignored."}
}

// UnsupportedOption is for a setting inside the startup parameter "options" that is neither carried to servers nor
// ignored.
func UnsupportedOption(name string) *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: "unsupported startup parameter in options: " + name,
		Hint: "Remove it from options. Add it to track_extra_parameters if servers report it; " +
			"to have it ignored, add its name or \"options\" to ignore_startup_parameters."}
}

// MalformedOptions is for a startup parameter "options" that is not a list of settings. argument is the part that does
// not fit.
func MalformedOptions(argument string) *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported,
		Message: "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed",
		Detail:  fmt.Sprintf("%q does not fit.", argument),
		Hint:    "A space inside a value is written with a backslash before it."}
}

// InvalidStartupValue is for a startup parameter whose value is not one of those allowed, which says which are.
func InvalidStartupValue(name, value, allowed string) *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidParameterValue,
		Message: fmt.Sprintf("invalid value for parameter %q: %q", name, value),
		Hint:    "Valid values are: " + allowed + "."}
}

// TooManyClients is for a client beyond max_client_conn.
func TooManyClients() *Error {
	return &Error{Severity: SeverityFatal, Code: TooManyConnections,
		Message: "no more connections allowed (max_client_conn)",
		Hint:    "Raise max_client_conn, or let clients keep fewer connections open."}
}

// TooManyFiles is for a client for which the process has no file left.
func TooManyFiles() *Error {
	return &Error{Severity: SeverityFatal, Code: TooManyConnections,
		Message: "no more connections allowed (limit of open files)",
		Hint:    "Raise the limit of open files of Fencepost (ulimit -n), or let clients keep fewer connections open."}
}

// NoSuchDatabase is for a database name that the settings do not have.
func NoSuchDatabase(name string) *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidCatalogName, Message: "no such database: " + name,
		Hint: "Add it to [databases], or a \"*\" entry for any name."}
}

// NoServerPassword is for a login to a server that asks for the password of a user for whom there is none, or only an md5
// hash or a SCRAM verifier, which cannot be sent.
func NoServerPassword(user string) *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidAuthorization,
		Message: fmt.Sprintf("the server asks for a password of user %q, and none is configured", user),
		Detail:  "An md5 hash or a SCRAM verifier proves who a client is, but does not log in to a server.",
		Hint:    "Set password in the database's section, or a plaintext password in the user's section of [users]."}
}

// AuthorizationIdentity is for a SASL login that names another user to act as.
func AuthorizationIdentity() *Error {
	return &Error{Severity: SeverityFatal, Code: FeatureUnsupported, Message: "client uses authorization identity, but it is not supported"}
}

// LoginFailed is the one answer to a login that failed, whatever the cause: nobody learns from it which users exist.
func LoginFailed(user string) *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidPassword,
		Message: fmt.Sprintf("password authentication failed for user %q", user),
		Hint:    "Check the user and the password; Fencepost's log has the reason."}
}

// NotAllowed is for a console login by a user in neither admin_users nor stats_users.
func NotAllowed() *Error {
	return &Error{Severity: SeverityFatal, Code: InvalidAuthorization, Message: "not allowed",
		Hint: "Add the user to admin_users or stats_users."}
}

// LoginTimeout is for a client that did not finish its login within client_login_timeout.
func LoginTimeout() *Error {
	return &Error{Severity: SeverityFatal, Code: ProtocolViolated, Message: "client_login_timeout",
		Hint: "The login took longer than client_login_timeout. Check the client and the network, or raise the setting."}
}
