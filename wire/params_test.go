package wire

import (
	"slices"
	"strings"
	"testing"

	"fencepost/pgerr"
)

func TestParseOptions(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []Param
	}{
		{"", nil},
		{" \t\n\v\f\r", nil},
		{"-c search_path=s1 --work_mem=5MB -c application_name=a\\ b",
			[]Param{{"search_path", "s1"}, {"work_mem", "5MB"}, {"application_name", "a b"}}},
		{"-cgeqo=off", []Param{{"geqo", "off"}}},
		{"  -c   geqo=off  ", []Param{{"geqo", "off"}}},
		{"-c\tgeqo=off\n--a=1", []Param{{"geqo", "off"}, {"a", "1"}}},
		{"--statement-timeout=5s -clock-timeout=1s -c idle-in-transaction-session-timeout=0",
			[]Param{{"statement_timeout", "5s"}, {"lock_timeout", "1s"}, {"idle_in_transaction_session_timeout", "0"}}},
		{"--a=", []Param{{"a", ""}}},
		{"--a=b=c", []Param{{"a", "b=c"}}},
		{"--a=x-y", []Param{{"a", "x-y"}}},
		{"-c fencepost.target=standby", []Param{{"fencepost.target", "standby"}}},
		{`--a=\\`, []Param{{"a", `\`}}},
		{`--a=\`, []Param{{"a", ""}}},
		{`--a=x\ `, []Param{{"a", "x "}}},
		{`\-\c a=1`, []Param{{"a", "1"}}},
		{`--a=\n`, []Param{{"a", "n"}}},
		{"-c -c=1", []Param{{"_c", "1"}}},
		{"--A=1 --b=2 --a=3", []Param{{"a", "3"}, {"b", "2"}}},
		{"--a=ü€", []Param{{"a", "ü€"}}},
		{"--" + strings.Repeat("n", 1000) + "=" + strings.Repeat("v", 5000), []Param{{strings.Repeat("n", 1000), strings.Repeat("v", 5000)}}},
	} {
		if got, err := ParseOptions(c.in); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for in, shown := range map[string]string{
		"-c":                             `"-c"`,
		"--a=1 -c":                       `"-c"`,
		"-c a":                           `"a"`,
		"--a":                            `"a"`,
		"--":                             `""`,
		"--=1":                           `"=..."`,
		"-c =1":                          `"=..."`,
		"-ca":                            `"a"`,
		"-e":                             `"-e"`,
		"-B 100":                         `"-B"`,
		"a=1":                            `"a=..."`,
		"--a=1 b":                        `"b"`,
		"-":                              `"-"`,
		"hush=secret":                    `"hush=..."`,
		strings.Repeat("é", 500):         `"` + strings.Repeat("é", 32) + `..."`,
		`\`:                              `""`,
		`\ --a=1`:                        `" --a=..."`,
		"--password-like=x -secret=hush": `"-secret=..."`,
	} {
		_, err := ParseOptions(in)
		e, ok := err.(*pgerr.Error)
		if !ok {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if !strings.Contains(e.Message, "only '-c config=val' and '--config=val' are allowed") || e.Disposition() != pgerr.End {
			t.Errorf("%q: %v", in, e)
		}
		if e.Detail != shown+" does not fit." {
			t.Errorf("%q: detail %q, want %s", in, e.Detail, shown)
		}
	}
}
