package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/cluster"
	"fencepost/pgerr"
)

// What consoles ask of each other over the fleet. An order is the random name that its withdrawal goes by.
const (
	statementVerb = "CONSOLE" // statement, order: carry it out as if an admin had given it here
	undoVerb      = "UNDO"    // order: end the PAUSE that it began
	holdVerb      = "HOLD"    // shard, order, milliseconds, primary: make writes wait; answered by a row as holding has it
	releaseVerb   = "RELEASE" // shard, order: let them go on
)

// How long members have to answer: longer than a member waits for its own loops and shards.
const (
	memberLimit = answerLimit + 2*time.Second
	pauseLimit  = 30 * time.Second // for transactions to end; PAUSE of one process waits without a limit
	undoLimit   = 5 * time.Second
	returnLimit = time.Second // of the time for an answer: for its way back
)

// forFleet reports whether a statement is for every member. The name of a database, which may be fleet, has quotes then.
func (s statement) forFleet() bool {
	s, _, _ = s.split()
	args := s.args()
	return len(args) > 0 && args[len(args)-1].is("fleet")
}

// here is the statement without FLEET, written so that any member reads the same in it.
func (s statement) here() string {
	words := []string{strings.ToUpper(s.verb())}
	for _, t := range s.tokens[1 : len(s.tokens)-1] {
		switch {
		case t.name():
			words = append(words, `"`+strings.ReplaceAll(t.text, `"`, `""`)+`"`)
		default:
			words = append(words, t.text)
		}
	}
	return strings.Join(words, " ")
}

// fleetWide sends a statement to every member and answers with a row for each.
func (x *execution) fleetWide(s statement) error {
	s, without, syntax := s.split()
	if syntax != nil {
		return syntax
	}
	verb, text, order := strings.ToUpper(s.verb()), s.here(), rand.Text()
	limit := memberLimit
	if verb == "PAUSE" {
		limit = pauseLimit + returnLimit
	}
	if _, err := (statement{text: s.text, tokens: s.tokens[:len(s.tokens)-1]}).argument(); err != nil {
		return err // the same everywhere
	}
	if len(without) > 0 && verb != "PAUSE" {
		return pgerr.ConsoleSyntax(s.text)
	}
	if verb == "PAUSE" {
		r, err := x.callRoll()
		if err := firstError(err, r.checkNames(without), r.complete(without)); err != nil {
			return err
		}
	}
	if x.ops.Fleet() == nil {
		x.notice("no fleet is configured: " + verb + " applies to this process only")
	}
	answers, err := x.everywhere(limit, statementVerb, text, order)
	failed := 0
	for _, a := range answers {
		if a.Err != "" {
			failed++
		}
	}
	if verb == "PAUSE" && err == nil && failed == 0 {
		err = x.stillWhole(answers, without)
	}
	undone := true
	if verb == "PAUSE" && (err != nil || failed > 0) {
		undone = x.undo(order)
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		e := pgerr.ConsoleError(fmt.Sprintf("%s failed on %d of %d members", verb, failed, len(answers))).WithDetail(inLines(answers))
		switch {
		case verb != "PAUSE":
		case undone:
			return e.WithHint("It was undone: the members have resumed what this command paused.")
		default:
			return e.WithHint(stillPaused)
		}
		return e.WithHint("Members that answered ok have carried it out.")
	}
	t := &table{columns: "sss", names: []string{"member", "address", "result"}}
	for _, a := range answers {
		t.row(orNull(a.Member), orNull(a.Address), "ok")
	}
	x.out = t.encode(x.out, verb)
	return nil
}

// inLines tells what each member answered, in the detail of an error.
func inLines(answers []cluster.Answer) string {
	var lines []string
	for _, a := range answers {
		result := a.Err
		if result == "" {
			result = "ok"
		}
		lines = append(lines, strings.TrimSpace(a.Member+" "+a.Address)+": "+result)
	}
	return strings.Join(lines, "\n")
}

const stillPaused = "It could not be undone at every member: check SHOW STATE on each, and give RESUME."

// undo ends what a PAUSE FLEET has begun at any member, and reports whether each confirmed it. The session may be gone by then, so
// undo has its own context.
func (x *execution) undo(order string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), undoLimit)
	defer cancel()
	answers, err := x.c.everywhere(ctx, undoLimit, undoVerb, order)
	if err != nil || slices.ContainsFunc(answers, func(a cluster.Answer) bool { return a.Err != "" }) {
		x.c.log.Error().Err(err).Str("answers", inLines(answers)).Msg("PAUSE FLEET could not be undone at every member: check SHOW STATE on each, and give RESUME")
		return false
	}
	return true
}

var errSilentFleet = pgerr.ConsoleError("no answer in time from the fleet's actor")

// everywhere has every member do something, or this process where there is no fleet. Without an error each has answered
// or is said not to have.
func (c *Console) everywhere(ctx context.Context, limit time.Duration, verb string, args ...string) ([]cluster.Answer, error) {
	fleet := c.ops.Fleet()
	if fleet == nil {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		rows, err := c.perform(ctx, "", verb, args)
		a := cluster.Answer{Rows: rows}
		if err != nil {
			a.Err = inOneLine(asError(err))
		}
		return []cluster.Answer{a}, nil
	}
	reply := make(chan cluster.OperationResult, 1)
	c.ops.System().Root.Send(fleet, &cluster.Operate{Verb: verb, Args: args, Timeout: limit, Reply: reply})
	ctx, cancel := context.WithTimeoutCause(ctx, limit+returnLimit, errSilentFleet)
	defer cancel()
	result, ok := receive(ctx, reply)
	switch {
	case !ok:
		return nil, context.Cause(ctx)
	case len(result.Answers) == 0:
		return nil, pgerr.ConsoleError("no live member of the fleet can carry it out")
	}
	return result.Answers, nil
}

// everywhere is Console.everywhere for as long as the session is there.
func (x *execution) everywhere(limit time.Duration, verb string, args ...string) ([]cluster.Answer, error) {
	answers, err := x.c.everywhere(x.ctx, limit, verb, args...)
	if x.ctx.Err() != nil { // what is missing then is nobody's silence
		return answers, context.Cause(x.ctx)
	}
	return answers, err
}

// inOneLine is an error as the rows of other members have it.
func inOneLine(e *pgerr.Error) string {
	if e.Detail == "" {
		return e.Message
	}
	return e.Message + ": " + strings.ReplaceAll(e.Detail, "\n", "; ")
}
