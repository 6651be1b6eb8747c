package admin

import (
	"strings"

	"fencepost/pgerr"
)

// maxStatements bounds the statements of one query: the answer of each is held in memory until all are done.
const maxStatements = 32

// token is a word of a statement.
type token struct {
	kind byte // 'w' word, 'i' quoted identifier, 's' string; else the character itself
	text string
}

// is reports whether t is the unquoted word w, which is lower case.
func (t token) is(w string) bool { return t.kind == 'w' && strings.EqualFold(t.text, w) }

// name reports whether t can be the name of something.
func (t token) name() bool { return t.kind == 'w' || t.kind == 'i' || t.kind == 's' }

// statement is one command of the console; at least one token.
type statement struct {
	text   string // as it was written, without the semicolon
	tokens []token
}

// parse cuts a query into statements at its semicolons and these into tokens. Comments are left out, and so are
// statements without tokens. The syntax of words is PgBouncer's; dots and dashes are let into words, so that names of
// databases rarely need quotes.
func parse(query string) ([]statement, *pgerr.Error) {
	var all []statement
	l := lexer{rest: query}
	for {
		s := statement{}
		start := l.at
		for {
			t, ok := l.next()
			if !ok {
				return nil, pgerr.ConsoleSyntax(strings.TrimSpace(query))
			}
			if t.kind == 0 || t.kind == ';' {
				end := l.at
				if t.kind == ';' {
					end--
				}
				s.text = strings.TrimSpace(query[start:end])
				if len(s.tokens) > 0 {
					all = append(all, s)
				}
				if len(all) > maxStatements {
					return nil, pgerr.ConsoleError("too many statements in one query")
				}
				if t.kind == 0 {
					return all, nil
				}
				break
			}
			s.tokens = append(s.tokens, t)
		}
	}
}

// lexer takes tokens from the front of rest; at is how far it has come.
type lexer struct {
	rest string
	at   int
}

func (l *lexer) skip(n int) string {
	s := l.rest[:n]
	l.rest, l.at = l.rest[n:], l.at+n
	return s
}

// next takes a token; kind 0 is the end. It reports false for a quote or comment without an end.
func (l *lexer) next() (token, bool) {
	if !l.space() {
		return token{}, false
	}
	if l.rest == "" {
		return token{}, true
	}
	switch c := l.rest[0]; {
	case c == '\'':
		text, ok := l.quoted('\'')
		return token{'s', text}, ok
	case c == '"':
		text, ok := l.quoted('"')
		return token{'i', text}, ok
	case wordByte(c):
		n := 1
		for n < len(l.rest) && wordByte(l.rest[n]) && !strings.HasPrefix(l.rest[n:], "--") {
			n++
		}
		return token{'w', l.skip(n)}, true
	default:
		return token{c, l.skip(1)}, true
	}
}

func wordByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c >= 0x80:
		return true
	}
	return c == '_' || c == '.' || c == '-' || c == '$'
}

// space leaves white space and comments out.
func (l *lexer) space() bool {
	for {
		l.skip(len(l.rest) - len(strings.TrimLeft(l.rest, " \t\n\r\f\v")))
		switch {
		case strings.HasPrefix(l.rest, "--"):
			if n := strings.IndexByte(l.rest, '\n'); n >= 0 {
				l.skip(n)
			} else {
				l.skip(len(l.rest))
			}
		case strings.HasPrefix(l.rest, "/*"):
			if !l.comment() {
				return false
			}
		default:
			return true
		}
	}
}

// comment leaves a comment out; comments nest as in PostgreSQL.
func (l *lexer) comment() bool {
	depth := 0
	for l.rest != "" {
		switch {
		case strings.HasPrefix(l.rest, "/*"):
			depth++
			l.skip(2)
		case strings.HasPrefix(l.rest, "*/"):
			depth--
			l.skip(2)
			if depth == 0 {
				return true
			}
		default:
			l.skip(1)
		}
	}
	return false
}

// quoted takes what stands between quotes; a doubled quote is one inside.
func (l *lexer) quoted(q byte) (string, bool) {
	l.skip(1)
	var b strings.Builder
	for {
		n := strings.IndexByte(l.rest, q)
		if n < 0 {
			return "", false
		}
		b.WriteString(l.skip(n))
		l.skip(1)
		if l.rest == "" || l.rest[0] != q {
			return b.String(), true
		}
		b.WriteByte(q)
		l.skip(1)
	}
}
