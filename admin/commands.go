package admin

import (
	"strings"

	"fencepost/config"
	"fencepost/pgerr"
)

// command is a verb of the console.
type command struct {
	admin bool // needs more than stats_users have
	fleet bool // FLEET behind it gives it to every member
	run   func(x *execution, s statement) error
}

// commands by verb, in lower case.
var commands = map[string]command{
	"show":        {run: show},
	"select":      {run: selectAlias},
	"set":         {run: set},
	"reload":      {admin: true, fleet: true, run: reload},
	"pause":       {admin: true, fleet: true, run: pauseCommand},
	"resume":      {admin: true, fleet: true, run: resume},
	"reconnect":   {admin: true, fleet: true, run: reconnect},
	"wait_close":  {admin: true, run: waitClose},
	"kill_client": {admin: true, run: killClient},
	"shutdown":    {admin: true, run: shutdown},
	"drain":       {admin: true, run: drain},
	"forget":      {admin: true, fleet: true, run: forget},
	"switchover":  {admin: true, run: switchover},

	"disable": {admin: true, run: notAvailable},
	"enable":  {admin: true, run: notAvailable},
	"kill":    {admin: true, run: notAvailable},
	"suspend": {admin: true, run: notAvailable},

	// What drivers send on their own: the console has no transactions and no session state, so there is nothing to do.
	"begin":      {run: nothing("BEGIN")},
	"start":      {run: nothing("START TRANSACTION")},
	"commit":     {run: nothing("COMMIT")},
	"end":        {run: nothing("COMMIT")},
	"rollback":   {run: nothing("ROLLBACK")},
	"abort":      {run: nothing("ROLLBACK")},
	"discard":    {run: nothing("DISCARD ALL")},
	"reset":      {run: nothing("RESET")},
	"deallocate": {run: nothing("DEALLOCATE")},
	"unlisten":   {run: nothing("UNLISTEN")},
	"close":      {run: nothing("CLOSE CURSOR ALL")},
}

// verb is the first word in lower case, "" if the statement begins with something else.
func (s statement) verb() string {
	if s.tokens[0].kind != 'w' {
		return ""
	}
	return strings.ToLower(s.tokens[0].text)
}

// args are the tokens behind the verb.
func (s statement) args() []token { return s.tokens[1:] }

// argument is the only argument, "" if there is none.
func (s statement) argument() (string, *pgerr.Error) {
	switch args := s.args(); {
	case len(args) == 0:
		return "", nil
	case len(args) == 1 && args[0].name():
		return args[0].text, nil
	}
	return "", pgerr.ConsoleSyntax(s.text)
}

func nothing(tag string) func(*execution, statement) error {
	return func(x *execution, _ statement) error { return x.done(tag) }
}

func notAvailable(_ *execution, s statement) error {
	return pgerr.FeatureNotSupported(strings.ToUpper(s.verb()) + " is not available in this version")
}

// consoleDatabase is the name the console goes by in its own results, as in PgBouncer's.
const consoleDatabase = "pgbouncer"

// database is the database a verb is for, "" for all of them.
func (x *execution) database(s statement, doing string) (string, error) {
	name, err := s.argument()
	switch {
	case err != nil:
		return "", err
	case name == "":
		if len(s.args()) > 0 { // a quoted nothing is not everything
			return "", pgerr.ConsoleError("no such database: ")
		}
		return "", nil
	case config.IsConsole(name):
		return "", pgerr.ConsoleError("cannot " + doing + " admin db: " + name)
	}
	if _, ok := x.ops.Config().Database(name); !ok && !x.c.isPaused(name) {
		return "", pgerr.ConsoleError("no such database: " + name)
	}
	return name, nil
}
