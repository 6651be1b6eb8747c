package admin

import (
	"fmt"
	"strings"
	"testing"
)

// spell writes statements as their tokens, statements separated by ";".
func spell(all []statement) string {
	var out []string
	for _, s := range all {
		var words []string
		for _, t := range s.tokens {
			switch t.kind {
			case 'w':
				words = append(words, t.text)
			case 'i', 's':
				words = append(words, fmt.Sprintf("%c%q", t.kind, t.text))
			default:
				words = append(words, t.text)
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, " ; ")
}

func TestParse(t *testing.T) {
	for query, want := range map[string]string{
		"":                                 "",
		" \t\r\n":                          "",
		";;;":                              "",
		"SHOW POOLS":                       "SHOW POOLS",
		"  show\npools ; ":                 "show pools",
		"SHOW POOLS;SHOW\tSTATS":           "SHOW POOLS ; SHOW STATS",
		"PAUSE my-app.prod_1":              "PAUSE my-app.prod_1",
		`PAUSE "a ""b"" ;"`:                `PAUSE i"a \"b\" ;"`,
		"SET x = 'a;''b'":                  `SET x = s"a;'b"`,
		"SET x='1'":                        `SET x = s"1"`,
		"-- only a comment":                "",
		"SHOW -- a; comment\nPOOLS":        "SHOW POOLS",
		"SHOW POOLS--x":                    "SHOW POOLS",
		"SHOW/* a /* b */ ; */POOLS":       "SHOW POOLS",
		"/**/;/* */":                       "",
		"PAUSE Прод":                       "PAUSE Прод",
		"SELECT 1+(2)":                     "SELECT 1 + ( 2 )",
		`PAUSE ""`:                         `PAUSE i""`,
		"SHOW 'a' 'b'":                     `SHOW s"a" s"b"`,
		strings.Repeat("SHOW x;", 32):      strings.TrimSuffix(strings.Repeat("SHOW x ; ", 32), " ; "),
		strings.Repeat(";", 1000) + "SHOW": "SHOW",
	} {
		all, err := parse(query)
		if err != nil || spell(all) != want {
			t.Errorf("%q: %s, %v, not %s", query, spell(all), err, want)
		}
	}
	for query, want := range map[string]string{
		"SHOW 'x":                     "invalid command 'SHOW 'x', use SHOW HELP;",
		`PAUSE "x`:                    "invalid command",
		"/* SHOW POOLS":               "invalid command",
		"SHOW x; /* a /* */":          "invalid command",
		strings.Repeat("SHOW x;", 33): "too many statements in one query",
	} {
		all, err := parse(query)
		if err == nil || all != nil || !strings.Contains(err.Message, want) {
			t.Errorf("%q: %s, %v", query, spell(all), err)
		}
	}
}

// FuzzParse: whatever comes, a statement is a part of the query that reads the same on its own, and the number of
// statements is bounded.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, query string) {
		all, err := parse(query)
		if err != nil {
			if all != nil {
				t.Fatalf("statements and %v", err)
			}
			return
		}
		if len(all) > maxStatements {
			t.Fatalf("%d statements", len(all))
		}
		for _, s := range all {
			if len(s.tokens) == 0 || !strings.Contains(query, s.text) {
				t.Fatalf("%q is no statement of %q", s.text, query)
			}
			again, err := parse(s.text + "\n;")
			if err != nil || len(again) != 1 || spell(again) != spell([]statement{s}) {
				t.Fatalf("%q reads %s on its own: %v", s.text, spell(again), err)
			}
		}
	})
}
