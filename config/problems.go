package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

// Problem is one thing wrong with a settings file.
type Problem struct {
	// Key is the full key, such as fencepost.listen_port or databases."*".shard. Empty when the file is not TOML.
	Key string
	// Value as it was written. Empty when there is none or when it might be a secret.
	Value string
	// Rule is what the value breaks, as half a sentence.
	Rule string
	// Line in the file, from 1; 0 when unknown.
	Line int

	path []string
}

// Problems is everything wrong with a settings file, in the order of its lines.
type Problems struct {
	Path string
	List []Problem
}

// Error returns one line per problem: path:line: key = value: rule.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		var b strings.Builder
		b.WriteString(p.Path)
		if problem.Line > 0 {
			fmt.Fprintf(&b, ":%d", problem.Line)
		}
		b.WriteString(": " + problem.String())
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// String is key = value: rule.
func (p Problem) String() string {
	var b strings.Builder
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(" = " + p.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Rule)
	return b.String()
}

// inOrder gives problems their lines, and the order of these.
func (r *reader) inOrder(all []Problem) []Problem {
	locate(r.data, all)
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule, b.Rule))
	})
	// Two hosts of a list may break the same rule.
	return slices.CompactFunc(all, func(a, b Problem) bool { return a.Key == b.Key && a.Value == b.Value && a.Rule == b.Rule })
}

// locate fills in the lines of problems. The library tells a key's position only in errors, so a decode that always fails
// is made for each; a problem of a key that is missing gets the line of the section it should be in.
func locate(data []byte, problems []Problem) {
	var top map[string]toml.Primitive
	md, err := toml.Decode(string(data), &top)
	if err != nil {
		return // not TOML: its only problem has a line already
	}
	for i := range problems {
		if problems[i].Line == 0 {
			problems[i].Line = lineOf(&md, top, problems[i].path)
		}
	}
}

func lineOf(md *toml.MetaData, table map[string]toml.Primitive, path []string) int {
	line := 0
	for _, key := range path {
		value, ok := table[key]
		if !ok {
			return line
		}
		var failed toml.ParseError
		if errors.As(md.PrimitiveDecode(value, &nowhere{}), &failed) && failed.Position.Line > 0 {
			line = failed.Position.Line
		}
		table = nil
		if md.PrimitiveDecode(value, &table) != nil {
			return line
		}
	}
	if line > 0 || len(path) == 0 {
		return line
	}
	for key := range table { // a section that is there only by sections below it: the first of them
		if below := lineOf(md, table, []string{key}); line == 0 || below > 0 && below < line {
			line = below
		}
	}
	return line
}

// nowhere is a destination no value can be decoded into.
type nowhere struct{}

var errNowhere = errors.New("nowhere")

// UnmarshalTOML implements toml.Unmarshaler.
func (*nowhere) UnmarshalTOML(any) error { return errNowhere }

// secretWords mark lines whose text must not get into a message.
var secretWords = []string{"pass", "pwd", "secret", "scram", "md5"}

// syntaxProblem turns the library's error for something that is not TOML into a Problem. Its message may quote what
// stands in the file, so it is left out when the key before it or a line around it looks as if it held a secret.
func syntaxProblem(data []byte, err error) Problem {
	var failed toml.ParseError
	if !errors.As(err, &failed) {
		return Problem{Rule: "not valid TOML"}
	}
	line := failed.Position.Line
	text := failed.LastKey
	lines := strings.Split(string(data), "\n")
	for i := max(line-3, 0); i < min(line+1, len(lines)); i++ {
		text += lines[i]
	}
	text = strings.ToLower(text)
	for _, word := range secretWords {
		if strings.Contains(text, word) {
			return Problem{Rule: "not valid TOML (details are left out, they might show a secret)", Line: line}
		}
	}
	printable := strings.Map(func(r rune) rune { // a message may hold bytes of the file, line ends too
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, failed.Message)
	return Problem{Rule: "not valid TOML: " + printable, Line: line}
}
