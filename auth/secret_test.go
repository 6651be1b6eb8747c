package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// fromPostgreSQL are verifiers that PostgreSQL 15 made (CREATE ROLE … PASSWORD,
// database in UTF-8). Those that SASLprep changes are field cases.
var fromPostgreSQL = []struct{ name, password, verifier string }{
	{"plain", "pencil", "SCRAM-SHA-256$4096:NTzp78Lj2ZafcyC3VNdffw==$xbz0KyRJLP+RH1kb4f5bcWx5LrWSphFWmaZ4DtYYZh0=:zdPtfNG3Re3IMFCBNbLIHlbr6jGvtSb9fiTxpcz45BE="},
	{"punctuation", `p$:,=\"'`, "SCRAM-SHA-256$4096:MgdBwycs9shsOMBep31F/A==$f70iQ5brvUYgEWP7FxsBKSm4bkV5a4onzL+j31W6Mck=:M9nj/0kOwgLIgYxQ6atFBA/fY8QQpns0c5KwIkXSEXU="},
	{"no-break space", "pass\u00a0word", "SCRAM-SHA-256$4096:z60xBKIUEUB254u1BRucEQ==$o6fzdL/E38ypD6x/0PXLXLvDpM2WcVJEkn3RqpDZq38=:aSN781Hni8UH7AXomMz4Gi9Uo8AjwXvkgJB9/kF2gh8="},
	{"soft hyphen", "I\u00adX", "SCRAM-SHA-256$4096:oyDPHZ45syUSz/7g3TCMvA==$jH3nPHQoc77BrG19kPYmFvhhC/BGshCD2wU5DuN1PJQ=:WRfISAHjubeot5GtGA2hs53qn+0PXviwfK6COIkKya0="},
	{"nothing but a soft hyphen", "\u00ad", "SCRAM-SHA-256$4096:oR4ntpTn2ppQ2u0HZ12Qog==$cr9L4mdoTsFUmLZbsm+qM7q7DIQsLr9YLZZG2aM2QN0=:8udCZGnOcWsZuGrKS35gToVxpS+26KWfiAX/yUp0NII="},
	{"feminine ordinal", "\u00aa", "SCRAM-SHA-256$4096:E9Jub0OtiCwIFseV9Z+m1Q==$30k75cUMrYLFqdi52B6OtV4O96THINYrrbl3nWn08WE=:MMuZVC9ohg5m55XneFF4FEoZIjctrG6Z+JkVVoJWOQ0="},
	{"decomposed accent", "cafe\u0301", "SCRAM-SHA-256$4096:JYMANTvp1gjYaJYEsW4TDw==$QT9JdL1DwfZWMgG/IxQe+G3R6WhGsr7FPNogeYuoQ4g=:KEu0+9ydIXsYlmaObb5mNNxcl2/c8M9GlS0tKLWjCTQ="},
	{"roman and full width", "\u2168 \uff21", "SCRAM-SHA-256$4096:JSGx3ig/MOJ1C8lXSs5itg==$KsELKHwYBzszaUAcpVAPPPRcXDGEhynpuqX5fU4+HqE=:XYhQZxX0xZg9B99aoWmIXBSv7zDGSj+yDf++1DFiFqY="},
	{"zero width space", "a\u200bb", "SCRAM-SHA-256$4096:B577xDz2bzRUM84FySXhUw==$C7R3EPdZr+G+W4QF4Ic674Ak7JAvsuyzKSnbj1f8d7A=:IxQYFMf/Vbsns4mks7nJ1AUJ/OnQtj4lOAXZ7cvG75g="},
	{"mongolian soft hyphen", "a\u1806b", "SCRAM-SHA-256$4096:WmPiYweq8835fPxi+iy5Ug==$zSlTN9+cJUKQXTo01qgkB9d5CO06ffzxpukaaVQRL2o=:VyNd/XTYdCPyfdUTA6TucSr8EYnTHp0XuUj0aCO9t4o="},
	{"prohibited until normalised", "\u0340x", "SCRAM-SHA-256$4096:Wm82NtmpoWOuGBxa2jCogQ==$AaukrvKOyFO8YWPMJe1yfTOd6kys2fMPLDFqAsx36PE=:+XjG6CDndvIhsTubLHkBgs+XyebacBUgQT05T88RdRc="},
	{"unassigned", "\U0001F511 key", "SCRAM-SHA-256$4096:Y8ElmxYwmR/VyYItzofVAQ==$SFgtP/lmCvK/O3pch71c4eEh8nJvkn6BHzTC8XHZalc=:31OM1PbTxoMktUTpQCPP+6ZLBmgyESSMnrKtLZGjkhs="},
	{"right to left", "\u0627\u0031", "SCRAM-SHA-256$4096:Tyzrw5ext5cPdOgRtaEVSA==$NCVWIPXBX2G3FpUvE1wDrSNpysQ+XDAiMLwueoJboC4=:Ud9UcP44MCWkUdXrpeRNnfemWff7W1CjO92h/YVaaM8="},
}

func TestVerifiersOfPostgreSQL(t *testing.T) {
	for _, c := range fromPostgreSQL {
		t.Run(c.name, func(t *testing.T) {
			s := mustParse(t, "u", c.verifier)
			f := s.verifier.Load().creds.KeyFactors
			if got := verifierOf(t, c.password, []byte(f.Salt), f.Iters); got != c.verifier {
				t.Errorf("derived %s\nwant    %s", got, c.verifier)
			}
			for _, m := range []Method{Password, MD5, SCRAM} {
				if o := attempt(t, NewExchange(m, "u", s), "u", c.password); !o.done {
					t.Errorf("%v: %v", m, o.err)
				}
				if o := attempt(t, NewExchange(m, "u", s), "u", c.password+"x"); o.done {
					t.Errorf("%v: a wrong password was let in", m)
				}
			}
		})
	}
}

// TestMD5OfPostgreSQL has what PostgreSQL 15 stores for role tester5, password
// pencil, with password_encryption = md5.
func TestMD5OfPostgreSQL(t *testing.T) {
	s := mustParse(t, "tester5", "md54883a1a99583efc28948f7a454511b40")
	for _, m := range []Method{Password, MD5} {
		if o := attempt(t, NewExchange(m, "tester5", s), "tester5", "pencil"); !o.done {
			t.Errorf("%v: %v", m, o.err)
		}
	}
}

func TestSASLprep(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"user\x7f\x01":       "user\x7f\x01", // all ASCII: taken as it is
		"I\u00adX":           "IX",
		"\u00aa":             "a",
		"a\u00a0b\u3000c":    "a b c",
		"cafe\u0301":         "caf\u00e9",
		"a\u200bb":           "a b",
		"a\u1806\u200db":     "ab",
		"\u00ad":             "\u00ad", // nothing left
		"\u00aa\x01":         "\u00aa\x01",
		"\u0340":             "\u0340",
		"\u00aa\U0001F511":   "\u00aa\U0001F511", // unassigned in Unicode 3.2
		"\u0627\u00aa\u0031": "\u0627\u00aa\u0031",
		"\u0627\u0661\u0628": "\u0627\u0661\u0628",
		"\u00aa\xff":         "\u00aa\xff",
	} {
		if got := saslprep(in); got != want {
			t.Errorf("saslprep(%+q) = %+q, want %+q", in, got, want)
		}
	}
}

func TestParseSecret(t *testing.T) {
	good := fromPostgreSQL[0].verifier
	stored := "xbz0KyRJLP+RH1kb4f5bcWx5LrWSphFWmaZ4DtYYZh0="
	for _, c := range []struct {
		s    string
		kind kind
		bad  bool
	}{
		{s: "", kind: kindNone},
		{s: "hunter2", kind: kindPlain},
		{s: "md5", kind: kindPlain},
		{s: "md5isnotmypassword", kind: kindPlain},
		{s: "md54883a1a99583efc28948f7a454511b40", kind: kindMD5},
		{s: "md54883a1a99583efc28948f7a454511b4", kind: kindPlain},
		{s: "md54883A1A99583EFC28948F7A454511B40", kind: kindPlain},
		{s: "MD54883a1a99583efc28948f7a454511b40", kind: kindPlain},
		{s: "md54883a1a99583efc28948f7a454511bxy", kind: kindPlain},
		{s: "SCRAM-SHA-256", kind: kindPlain},
		{s: "scram-sha-256$4096:AAAA$AAAA:AAAA", kind: kindPlain},
		{s: good, kind: kindSCRAM},
		{s: strings.Replace(good, "$4096:", "$1:", 1), kind: kindSCRAM},
		{s: strings.Replace(good, "$4096:", "$2147483647:", 1), kind: kindSCRAM},
		{s: "nul\x00inside", bad: true},
		{s: "SCRAM-SHA-256$", bad: true},
		{s: "SCRAM-SHA-256$4096", bad: true},
		{s: "SCRAM-SHA-256$4096:AAAA", bad: true},
		{s: "SCRAM-SHA-256$4096:AAAA$", bad: true},
		{s: "SCRAM-SHA-256$4096:AAAA$" + stored, bad: true},
		{s: "SCRAM-SHA-256$4096:AAAA$" + stored + ":AAAA", bad: true},
		{s: "SCRAM-SHA-256$4096:AAAA$AAAA:" + stored, bad: true},
		{s: "SCRAM-SHA-256$4096:$" + stored + ":" + stored, bad: true},
		{s: "SCRAM-SHA-256$4096:A$" + stored + ":" + stored, bad: true},
		{s: strings.Replace(good, "$4096:", "$0:", 1), bad: true},
		{s: strings.Replace(good, "$4096:", "$-1:", 1), bad: true},
		{s: strings.Replace(good, "$4096:", "$:", 1), bad: true},
		{s: strings.Replace(good, "$4096:", "$2147483648:", 1), bad: true},
		{s: strings.Replace(good, "$4096:", "$4096x:", 1), bad: true},
		{s: good + "=", bad: true},
		{s: good + "\n", bad: true},
	} {
		s, err := ParseSecret("u", c.s)
		switch {
		case c.bad && err == nil:
			t.Errorf("%q: no error", c.s)
		case c.bad:
			if len(c.s) > len(verifierPrefix) && strings.Contains(err.Error(), c.s[len(verifierPrefix):]) {
				t.Errorf("%q: the error shows the value: %v", c.s, err)
			}
		case err != nil:
			t.Errorf("%q: %v", c.s, err)
		case s.kind != c.kind:
			t.Errorf("%q: kind %d, want %d", c.s, s.kind, c.kind)
		}
	}
}

func TestReadyUsableSlow(t *testing.T) {
	none, plain := mustParse(t, "u", ""), mustParse(t, "u", "secret")
	hash, scram := mustParse(t, "u", md5Of("u", "secret")), mustParse(t, "u", fromPostgreSQL[0].verifier)
	mock, slowMock := Mock("u"), Profile{kind: kindSCRAM}.Mock("u")
	methods := []Method{0, Trust, Password, MD5, SCRAM}
	for _, c := range []struct {
		name                string
		s                   *Secret
		usable, ready, slow string // one character per method
	}{
		{"nil", nil, "-----", "yyyyy", "-----"},
		{"zero", &Secret{}, "-----", "yyyyy", "-----"},
		{"none", none, "-y---", "yyyyy", "-----"},
		{"plain", plain, "-yyyy", "yyyy-", "-----"},
		{"md5", hash, "-yyy-", "yyyyy", "-----"},
		{"scram", scram, "-yyyy", "yyyyy", "--y--"},
		{"mock", mock, "-----", "yyyyy", "-----"},
		{"mock like scram", slowMock, "-----", "yyyyy", "--y--"},
	} {
		for i, m := range methods {
			if got := c.s.Usable(m); got != (c.usable[i] == 'y') {
				t.Errorf("%s: Usable(%v) = %v", c.name, m, got)
			}
			if got := c.s.Ready(m); got != (c.ready[i] == 'y') {
				t.Errorf("%s: Ready(%v) = %v", c.name, m, got)
			}
			if got := c.s.Slow(m); got != (c.slow[i] == 'y') {
				t.Errorf("%s: Slow(%v) = %v", c.name, m, got)
			}
		}
		c.s.Derive(SCRAM)
		if !c.s.Ready(SCRAM) {
			t.Errorf("%s: not Ready after Derive", c.name)
		}
	}
	if p, ok := plain.Plaintext(); p != "secret" || !ok {
		t.Errorf("Plaintext() = %q, %v", p, ok)
	}
	for _, s := range []*Secret{nil, {}, none, hash, scram, mock, slowMock} {
		if p, ok := s.Plaintext(); p != "" || ok {
			t.Errorf("Plaintext() = %q, %v", p, ok)
		}
	}
}

func TestDeriveOnceFromManyGoroutines(t *testing.T) {
	s := mustParse(t, "u", "secret")
	var wg sync.WaitGroup
	got := make([]*verifier, 8)
	for i := range got {
		wg.Go(func() {
			s.Derive(SCRAM)
			got[i] = s.verifier.Load()
		})
	}
	wg.Wait()
	for _, v := range got {
		if v == nil || v != got[0] {
			t.Fatalf("derived %v", got)
		}
	}
}

// TestSecretsAreNotShown promises: no secret in a log.
func TestSecretsAreNotShown(t *testing.T) {
	const password = "correct-horse"
	verifier := verifierOf(t, password, []byte("sixteen bytes it"), 4096)
	hash := md5Of("u", password)
	leaks := []string{password, fmt.Sprintf("%x", password), fmt.Sprint([]byte(password)), verifier[len(verifier)-44:], hash[3:],
		fmt.Sprintf("%x", hash[3:]), fmt.Sprint([]byte(hash[3:]))}
	for _, text := range []string{password, verifier, hash} {
		s := mustParse(t, "u", text)
		s.Derive(SCRAM)
		exchanges := []*Exchange{NewExchange(Password, "u", s), NewExchange(SCRAM, "u", s)}
		for _, e := range exchanges {
			e.Start(nil)
		}
		_, _, _ = exchanges[1].Step(nil, saslInitial(mechanism, "n,,n=,r=abc"))
		values := []any{s, *s, exchanges[0], exchanges[1], *exchanges[1], struct{ S *Secret }{s}, []Secret{*s}, map[string]*Secret{"a": s}}
		var shown bytes.Buffer
		for _, v := range values {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				fmt.Fprintf(&shown, verb+"\n", v)
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			shown.Write(b)
			slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "v", v)
			slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "v", v)
		}
		for _, leak := range leaks {
			if strings.Contains(shown.String(), leak) {
				t.Errorf("%q is shown", leak)
			}
		}
		if !strings.Contains(shown.String(), redacted) {
			t.Error("nothing is shown at all")
		}
	}
	s := *mustParse(t, "u", password)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, s); got != redacted {
			t.Errorf("%s prints %q", verb, got)
		}
	}
	if b, err := json.Marshal(s); string(b) != `"`+redacted+`"` || err != nil {
		t.Errorf("JSON is %s, %v", b, err)
	}
	if s.String() != redacted {
		t.Errorf("String() = %q", s.String())
	}
	if n := unsafe.Sizeof(Secret{}); n != unsafe.Sizeof(uintptr(0)) {
		t.Errorf("Secret is %d bytes: its content is no longer behind a pointer", n)
	}
}

func TestMethodNames(t *testing.T) {
	for _, m := range []Method{Trust, Password, MD5, SCRAM} {
		if got, err := ParseMethod(m.String()); got != m || err != nil {
			t.Errorf("ParseMethod(%q) = %v, %v", m.String(), got, err)
		}
	}
	if got, err := ParseMethod("plain"); got != Password || err != nil {
		t.Errorf("plain: %v, %v", got, err)
	}
	if _, err := ParseMethod("hba"); err == nil {
		t.Error("hba: no error")
	}
	if got := Method(0).String(); got != "method(0)" {
		t.Errorf("zero Method prints %q", got)
	}
}
