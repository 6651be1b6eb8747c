package pgerr

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"
)

// row is one situation as clients see it. This table is the specification: a text that changes breaks somebody's match.
type row struct {
	constructor string
	err         *Error
	severity    string
	code        string
	message     string
	noHint      bool // there is nothing to be done
}

func table() []row {
	const e, f = "ERROR", "FATAL"
	return []row{
		{"ProtocolViolation", ProtocolViolation("invalid length of startup packet"), f, "08P01", "invalid length of startup packet", false},
		{"UnsupportedProtocol", UnsupportedProtocol(2, 0), f, "0A000", "unsupported frontend protocol 2.0", false},
		{"DirectTLS", DirectTLS(), f, "0A000", "direct TLS connections are not supported", false},
		{"UnencryptedData", UnencryptedData("SSL"), f, "08P01", "received unencrypted data after SSL request", true},
		{"NoUser", NoUser(), f, "28000", "no username supplied", false},
		{"UnsupportedStartupParameter", UnsupportedStartupParameter("x"), f, "0A000", "unsupported startup parameter: x", false},
		{"UnsupportedOption", UnsupportedOption("x"), f, "0A000", "unsupported startup parameter in options: x", false},
		{"MalformedOptions", MalformedOptions("-e"), f, "0A000",
			"unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed", false},
		{"InvalidStartupValue", InvalidStartupValue("replication", "x", "0, 1"), f, "22023", `invalid value for parameter "replication": "x"`, false},
		{"TooManyClients", TooManyClients(), f, "53300", "no more connections allowed (max_client_conn)", false},
		{"TooManyFiles", TooManyFiles(), f, "53300", "no more connections allowed (limit of open files)", false},
		{"NoSuchDatabase", NoSuchDatabase("x"), f, "3D000", "no such database: x", false},
		{"LoginFailed", LoginFailed("x"), f, "28P01", `password authentication failed for user "x"`, false},
		{"NotAllowed", NotAllowed(), f, "28000", "not allowed", false},
		{"LoginTimeout", LoginTimeout(), f, "08P01", "client_login_timeout", false},
		{"QueryWaitTimeout", QueryWaitTimeout(time.Minute), e, "53300", "query_wait_timeout", false},
		{"Paused", Paused("x", time.Minute), e, "57P03", `query_wait_timeout: database "x" is paused`, false},
		{"CannotConnect", CannotConnect(errors.New("refused")), e, "57P03", "cannot connect to server", false},
		{"ServerLost", ServerLost(true), f, "08007", "server conn crashed?", false},
		{"ServerLost", ServerLost(false), f, "08006", "server conn crashed?", false},
		{"NoPrimary", NoPrimary("main", time.Minute, "failover", "a: in recovery", ""), e, "57P03",
			`no primary has been known for shard "main" for 1m0s (failover)`, false},
		{"NoStandby", NoStandby("main", "a: lags"), e, "57P03", `no standby of shard "main" serves reads`, false},
		{"FenceUnanswered", FenceUnanswered(time.Second), e, "08006", "the server did not confirm that it is the primary", false},
		{"Superseded", Superseded("b was elected"), f, "57P01", "terminating connection: its server is no longer the primary", false},
		{"SupersededInTransaction", SupersededInTransaction("b was elected"), f, "57P01", "terminating connection: its server is no longer the primary", false},
		{"StandbyPromoted", StandbyPromoted("b is out of recovery"), f, "57P01", "terminating connection: its server is no longer a standby", false},
		{"StandbySilent", StandbySilent(errors.New("b has answered nobody")), f, "08006", "terminating connection: its standby does not answer", false},
		{"SupersededUnanswered", SupersededUnanswered("b was elected"), f, "08007", "terminating connection: its server is no longer the primary", false},
		{"Canceled", Canceled(), e, "57014", "canceling statement due to user request", true},
		{"StatementMode", StatementMode(), f, "0A000", "transaction blocks not allowed in statement pooling mode", false},
		{"DuplicateStatement", DuplicateStatement("x"), e, "42P05", `prepared statement "x" already exists`, true},
		{"StatementNotKept", StatementNotKept("x"), e, "26000", `prepared statement "x" does not exist`, false},
		{"TooManyStatements", TooManyStatements(), e, "54000", "too many prepared statements", false},
		{"StatementTooLong", StatementTooLong(10), f, "54000", "a named statement must not be longer than 10 bytes", false},
		{"ResultTypeChanged", ResultTypeChanged(), e, "0A000", "cached plan must not change result type", true},
		{"StatementsUncertain", StatementsUncertain(), f, "0A000", "named statements cannot be used after a COPY that was interrupted by other messages", false},
		{"Shutdown", Shutdown(), f, "57P01", "server shutting down", false},
		{"ShutdownLogin", ShutdownLogin(), f, "57P01", "pooler is shutting down", false},
		{"AdminDisconnect", AdminDisconnect(), f, "57P01", "admin forced disconnect", false},
		{"DatabaseChanged", DatabaseChanged(), f, "57P01", "database configuration changed", false},
		{"Internal", Internal(errors.New("x")), f, "58000", "internal error in the pooler", false},
		{"NoServerPassword", NoServerPassword("u"), f, "28000", `the server asks for a password of user "u", and none is configured`, false},
		{"AuthorizationIdentity", AuthorizationIdentity(), f, "0A000", "client uses authorization identity, but it is not supported", true},
		{"FeatureNotSupported", FeatureNotSupported("no"), e, "0A000", "no", true},
		{"ConsoleError", ConsoleError("no"), e, "55000", "no", true},
		{"ConsoleSyntax", ConsoleSyntax("no"), e, "42601", "invalid command 'no', use SHOW HELP;", true},
		{"ConsoleDenied", ConsoleDenied(), e, "42501", "admin access needed", false},
		{"ReloadFailed", ReloadFailed("a: b"), e, "F0000", "RELOAD failed", false},
		{"FromServer", FromServer("FATAL", "3D000", "gone", "", ""), f, "3D000", "gone", true},
		{"As", As(NoUser()), f, "28000", "no username supplied", false},
	}
}

// TestTable checks every constructor's severity, SQLSTATE, text and disposition, and that one code and text never mean
// two dispositions.
func TestTable(t *testing.T) {
	dispositions := map[string]Disposition{}
	for _, r := range table() {
		t.Run(r.constructor, func(t *testing.T) {
			if r.err.Severity != r.severity || r.err.Code != r.code || r.err.Message != r.message {
				t.Errorf("got %s %s %q, want %s %s %q", r.err.Severity, r.err.Code, r.err.Message, r.severity, r.code, r.message)
			}
			want := Continue
			if r.severity == "FATAL" {
				want = End
			}
			if got := r.err.Disposition(); got != want {
				t.Errorf("disposition %v, want %v", got, want)
			}
			if !ValidCode(r.err.Code) {
				t.Errorf("%q is no SQLSTATE", r.err.Code)
			}
			if (r.err.Hint == "") != r.noHint {
				t.Errorf("hint %q, want one: %v", r.err.Hint, !r.noHint)
			}
			key := r.code + " " + r.message
			if d, ok := dispositions[key]; ok && d != want {
				t.Errorf("%s means %v and %v", key, d, want)
			}
			dispositions[key] = want
		})
	}
}

// TestTableIsComplete finds the constructors in the source, so that none is forgotten above.
func TestTableIsComplete(t *testing.T) {
	known := map[string]bool{}
	for _, r := range table() {
		known[r.constructor] = true
	}
	for _, fn := range constructors(t) {
		if !known[fn] {
			t.Errorf("%s is not in the table", fn)
		}
	}
}

func constructors(t *testing.T) (names []string) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results == nil {
				continue
			}
			if star, ok := fn.Type.Results.List[0].Type.(*ast.StarExpr); ok && fmt.Sprint(star.X) == "Error" {
				names = append(names, fn.Name.Name)
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("found only %v", names)
	}
	return names
}

func TestCodesAreSQLSTATEs(t *testing.T) {
	for code, want := range map[string]bool{"00000": true, "57P01": true, "F0000": true, "": false, "57p01": false,
		"57P0": false, "57P011": false, "57-01": false, "57P0é": false} {
		if got := ValidCode(code); got != want {
			t.Errorf("ValidCode(%q) = %v", code, got)
		}
	}
}

func TestAs(t *testing.T) {
	lost := ServerLost(true)
	if got := As(fmt.Errorf("read backend b7: %w", lost)); got != lost {
		t.Errorf("As of a wrapped error = %v", got)
	}
	if As(nil) != nil {
		t.Error("As(nil) is not nil")
	}
	cause := errors.New("no such file /etc/secret")
	internal := As(cause)
	if internal.Code != SystemError || !errors.Is(internal, cause) {
		t.Errorf("As of a foreign error = %v", internal)
	}
	if s := internal.Message + internal.Detail + internal.Hint; strings.Contains(s, "secret") {
		t.Errorf("the client is told of the cause: %q", s)
	}
	if !strings.Contains(internal.Error(), "/etc/secret") {
		t.Errorf("the log is not told of the cause: %q", internal.Error())
	}
	var typedNil *Error
	if got := As(fmt.Errorf("x: %w", typedNil)); got == nil || got.Code != SystemError {
		t.Errorf("As of a typed nil = %v", got)
	}
}

func TestCopies(t *testing.T) {
	e := Canceled()
	d, h, c, f := e.WithDetail("d"), e.WithHint("h"), e.WithCause(errors.New("c")), e.Fatal()
	if *e != *Canceled() {
		t.Errorf("the original changed: %+v", e)
	}
	if d.Detail != "d" || h.Hint != "h" || errors.Unwrap(c).Error() != "c" {
		t.Errorf("copies: %+v %+v %+v", d, h, c)
	}
	if f.Severity != SeverityFatal || f.Disposition() != End || f.Code != e.Code || f.Message != e.Message {
		t.Errorf("Fatal: %+v", f)
	}
	if f.Fatal() != f {
		t.Error("Fatal copies what is fatal already")
	}
}

func TestErrorText(t *testing.T) {
	got := CannotConnect(errors.New("dial tcp: refused")).WithCause(errors.New("cause")).Error()
	if want := "ERROR: cannot connect to server: dial tcp: refused: cause (SQLSTATE 57P03)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := CannotConnect(nil); got.Detail != "" {
		t.Errorf("detail of nothing: %q", got.Detail)
	}
}

func TestFromServer(t *testing.T) {
	for _, c := range []struct{ severity, code, message, wantSeverity, wantCode string }{
		{"FATAL", "28P01", "no", "FATAL", "28P01"},
		{"PANIC", "58000", "no", "FATAL", "58000"},
		{"ERROR", "42601", "no", "ERROR", "42601"},
		{"ERREUR", "42601", "no", "ERROR", "42601"},
		{"FATAL", "", "no", "FATAL", "XX000"},       // a server error without SQLSTATE: CVE-2026-6666
		{"FATAL", "08p01x", "no", "FATAL", "XX000"}, // a code that is none
		{"", "", "", "ERROR", "XX000"},
	} {
		e := FromServer(c.severity, c.code, c.message, "d", "h")
		if e.Severity != c.wantSeverity || e.Code != c.wantCode || e.Detail != "d" || e.Hint != "h" || e.Message == "" {
			t.Errorf("FromServer(%+v) = %+v", c, e)
		}
	}
}

func TestLongConsoleCommandIsCut(t *testing.T) {
	if m := ConsoleSyntax(strings.Repeat("é", 10000)).Message; len(m) > 200 || strings.Contains(m, "�") {
		t.Errorf("%d bytes: %q", len(m), m)
	}
}

// What a client must know before it repeats anything is said in so many words, and what led to it is not lost.
func TestRoleErrorsSayWhatBecameOfTheRequest(t *testing.T) {
	for _, c := range []struct {
		err          *Error
		detail, hint string
	}{
		{NoPrimary("main", time.Minute, "failover", "a: in recovery", "FORGET main."), "a: in recovery", "safe to retry. FORGET main."},
		{NoPrimary("main", time.Minute, "failover", "", ""), "", "SHOW REPLICATION"},
		{NoStandby("main", "a: lags"), "a: lags", "safe to retry"},
		{FenceUnanswered(1500 * time.Millisecond), "1.5s", "not sent"},
		{Superseded("b was elected"), "b was elected", "Reconnect"},
		{SupersededInTransaction("b was elected"), "not committed: it is rolled back. b was elected", "safe to repeat"},
		{SupersededUnanswered("b was elected"), "may or may not have taken effect. b was elected", "before you repeat"},
	} {
		if !strings.Contains(c.err.Detail, c.detail) || !strings.Contains(c.err.Hint, c.hint) {
			t.Errorf("%s: detail %q, hint %q", c.err.Message, c.err.Detail, c.err.Hint)
		}
	}
}

func TestDispositionString(t *testing.T) {
	if Continue.String() != "continue" || End.String() != "end" {
		t.Error(Continue, End)
	}
}
