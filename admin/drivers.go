package admin

import (
	"slices"
	"strings"

	"fencepost/pgerr"
)

// What drivers ask and set on their own when they connect. The console has no session state: a SET of these is taken
// without effect and SHOW answers what a console session always has, the same values as its ParameterStatus messages.
var parameters = map[string]string{
	"application_name":              "",
	"bytea_output":                  "hex",
	"client_encoding":               "UTF8",
	"client_min_messages":           "notice",
	"datestyle":                     "ISO",
	"default_transaction_isolation": "read committed",
	"default_transaction_read_only": "off",
	"extra_float_digits":            "2",
	"integer_datetimes":             "on",
	"intervalstyle":                 "postgres",
	"search_path":                   "",
	"server_encoding":               "UTF8",
	"session_authorization":         "",
	"standard_conforming_strings":   "on",
	"statement_timeout":             "0",
	"timezone":                      "UTC",
	"transaction_isolation":         "read committed",
	"transaction_read_only":         "off",
}

// parameter is the result of SHOW for one of parameters, nil for all else.
func parameter(args []token) *table {
	words := make([]string, len(args))
	for i, a := range args {
		if a.kind != 'w' && a.kind != 'i' {
			return nil
		}
		words[i] = strings.ToLower(a.text)
	}
	name := strings.Join(words, " ")
	switch name {
	case "transaction isolation level":
		name = "transaction_isolation"
	case "time zone":
		name = "timezone"
	}
	value, ok := parameters[name]
	if !ok {
		return nil
	}
	t := &table{columns: "s", names: []string{name}}
	t.row(value)
	return t
}

// set takes what drivers set. Fencepost's own settings are not changed here: they would be lost with the process.
func set(x *execution, s statement) error {
	args := s.args()
	if len(args) > 1 && (args[0].is("session") || args[0].is("local")) && args[1].kind != '=' && !args[1].is("to") {
		args = args[1:]
	}
	if len(args) < 2 || !args[0].name() {
		return pgerr.ConsoleSyntax(s.text)
	}
	key := strings.ToLower(args[0].text)
	switch {
	case args[0].is("characteristics"), args[0].is("transaction"), args[0].is("names"), args[0].is("time") && args[1].is("zone"):
		return ignoredSet(x)
	case args[1].kind != '=' && !args[1].is("to"), len(args) < 3:
		return pgerr.ConsoleSyntax(s.text)
	}
	if _, ok := parameters[key]; ok {
		return ignoredSet(x)
	}
	if !x.cmd.Admin {
		return pgerr.ConsoleDenied()
	}
	for _, r := range x.ops.Config().Rows() {
		if r.Key == key {
			return pgerr.ConsoleError("SET failed").WithDetail(key + " is not changed from the console.").
				WithHint("Change it in the settings file and RELOAD.")
		}
	}
	return pgerr.ConsoleError("SET failed").WithDetail("There is no setting " + key + ".")
}

func ignoredSet(x *execution) error {
	x.notice("SET ignored")
	return x.done("SET")
}

// selectAlias is SELECT: a literal, which drivers and pools send to see whether a connection is alive, version(), or
// another word for SHOW.
func selectAlias(x *execution, s statement) error {
	args := s.args()
	if len(args) == 3 && args[0].is("version") && args[1].kind == '(' && args[2].kind == ')' {
		t, err := showVersion(x)
		if err != nil {
			return err
		}
		x.out = t.encode(x.out, "SELECT 1")
		return nil
	}
	if len(args) == 1 && (args[0].kind == 's' || number(args[0])) {
		t := &table{columns: "s", names: []string{"?column?"}}
		if args[0].kind == 'w' {
			t.columns = "i"
		}
		t.row(args[0].text)
		x.out = t.encode(x.out, "SELECT 1")
		return nil
	}
	return show(x, s)
}

// number reports whether t is an integer that fits int4.
func number(t token) bool {
	return t.kind == 'w' && len(t.text) < 10 && !slices.ContainsFunc([]byte(t.text), func(c byte) bool { return c < '0' || c > '9' })
}
