package pgerr

import "strings"

// ConsoleError is for a console command that cannot be carried out now, e.g. RESUME of what is not paused. msg is the
// whole message.
func ConsoleError(msg string) *Error {
	return &Error{Severity: SeverityError, Code: ObjectNotInPrerequisite, Message: msg}
}

// ConsoleSyntax is for a console command that does not exist or lacks an argument. command is cut to 100 bytes.
func ConsoleSyntax(command string) *Error {
	const most = 100
	if len(command) > most {
		command = strings.ToValidUTF8(command[:most], "") + "..."
	}
	return &Error{Severity: SeverityError, Code: SyntaxError, Message: "invalid command '" + command + "', use SHOW HELP;"}
}

// ConsoleDenied is for a command that only admin_users may give.
func ConsoleDenied() *Error {
	return &Error{Severity: SeverityError, Code: InsufficientPrivilege, Message: "admin access needed",
		Hint: "Log in as one of admin_users."}
}

// ReloadFailed is for a RELOAD whose settings are refused; problems lists them all, one per line. The old settings
// stay.
func ReloadFailed(problems string) *Error {
	return &Error{Severity: SeverityError, Code: ConfigFileError, Message: "RELOAD failed", Detail: problems,
		Hint: "The former settings stay in force. Correct the file; fencepost check reads it without applying it."}
}
