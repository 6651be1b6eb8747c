package fakepg

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"fencepost/role"
)

type kind uint8

const (
	selectRows kind = iota // SELECT 'text' [FROM generate_series(1,n)]
	sleep                  // SELECT pg_sleep(seconds), 'text'
	raise                  // DO $$BEGIN RAISE EXCEPTION 'text'; END$$
	notice                 // DO $$BEGIN RAISE NOTICE 'text'; END$$
	begin                  // BEGIN
	commit                 // COMMIT
	rollback               // ROLLBACK
	copyIn                 // COPY t FROM STDIN
	copyOut                // COPY (SELECT 'text' FROM generate_series(1,n)) TO STDOUT
	set                    // SET name = 'text'
	show                   // SHOW name
	discard                // DISCARD ALL
	identity               // role.IdentityQuery
	insert                 // INSERT INTO w VALUES ('text')
	defer1                 // INSERT INTO d VALUES (1): violates a deferred constraint, so that the commit fails
)

// statement is one parsed statement.
type statement struct {
	kind kind
	text string // the literal, or the value of a SET
	name string // the parameter
	n    int    // rows
	wait time.Duration
}

// returnsRows reports whether the statement has a row description.
func (s *statement) returnsRows() bool {
	return s.kind == selectRows || s.kind == sleep || s.kind == show || s.kind == identity
}

// ends reports whether the statement is allowed in a failed transaction.
func (s *statement) ends() bool { return s.kind == commit || s.kind == rollback }

var patterns = []struct {
	kind kind
	re   *regexp.Regexp
}{
	{selectRows, regexp.MustCompile(`^SELECT '(?P<text>[^']*)'(?: FROM generate_series\(1,(?P<n>\d+)\))?$`)},
	{sleep, regexp.MustCompile(`^SELECT pg_sleep\((?P<wait>[0-9.]+)\), '(?P<text>[^']*)'$`)},
	{raise, regexp.MustCompile(`^DO \$\$BEGIN RAISE EXCEPTION '(?P<text>[^']*)'; END\$\$$`)},
	{notice, regexp.MustCompile(`^DO \$\$BEGIN RAISE NOTICE '(?P<text>[^']*)'; END\$\$$`)},
	{begin, regexp.MustCompile(`^BEGIN$`)},
	{commit, regexp.MustCompile(`^COMMIT$`)},
	{rollback, regexp.MustCompile(`^ROLLBACK$`)},
	{copyIn, regexp.MustCompile(`^COPY t FROM STDIN$`)},
	{copyOut, regexp.MustCompile(`^COPY \(SELECT '(?P<text>[^']*)' FROM generate_series\(1,(?P<n>\d+)\)\) TO STDOUT$`)},
	{set, regexp.MustCompile(`^SET (?P<name>[A-Za-z_.]+) ?= ?E?'(?P<text>[^']*)'$`)},
	{show, regexp.MustCompile(`^SHOW (?P<name>[A-Za-z_.]+)$`)},
	{discard, regexp.MustCompile(`^DISCARD ALL$`)},
	{insert, regexp.MustCompile(`^INSERT INTO w VALUES \('(?P<text>[^']*)'\)$`)},
	{defer1, regexp.MustCompile(`^INSERT INTO d VALUES \(1\)$`)},
}

var comment = regexp.MustCompile(`/\*.*?\*/`)

// parse reads statements separated by semicolons; ok is false for what is none of those above, which is a syntax error.
func parse(sql string) (all []statement, ok bool) {
	for _, text := range split(comment.ReplaceAllString(sql, "")) {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		s, ok := parseOne(text)
		if !ok {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

func parseOne(text string) (s statement, ok bool) {
	if isIdentityQuery(text) {
		return statement{kind: identity, n: 1}, true
	}
	if text == role.AuroraCheck {
		return statement{kind: selectRows, text: "f", n: 1}, true
	}
	for _, p := range patterns {
		m := p.re.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		s = statement{kind: p.kind, n: 1}
		for i, name := range p.re.SubexpNames() {
			switch {
			case name == "text":
				s.text = m[i]
			case name == "name":
				s.name = m[i]
			case name == "n" && m[i] != "":
				s.n, _ = strconv.Atoi(m[i])
			case name == "wait":
				f, _ := strconv.ParseFloat(m[i], 64)
				s.wait = time.Duration(f * float64(time.Second))
			}
		}
		return s, true
	}
	return s, false
}

// split cuts at semicolons outside of quotes.
func split(sql string) (parts []string) {
	start, quoted, dollar := 0, false, false
	for i := 0; i < len(sql); i++ {
		switch {
		case !dollar && sql[i] == '\'':
			quoted = !quoted
		case !quoted && strings.HasPrefix(sql[i:], "$$"):
			dollar = !dollar
			i++
		case sql[i] == ';' && !quoted && !dollar:
			parts = append(parts, sql[start:i])
			start = i + 1
		}
	}
	return append(parts, sql[start:])
}
