package auth

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fencepost/pgerr"
)

func randomText(r *rand.Rand, longest int) string {
	alphabet := []rune("abcXYZ019 ,=$:'\"\\\u00a0\u00ad\u00aa\u0301\u200b\u0340\u0627\u00e4\u4e2d\U0001F511")
	out := make([]rune, 1+r.IntN(longest))
	for i := range out {
		out[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(out)
}

// TestRightPasswordIn promises: the right password logs in by every method that
// the secret allows, a wrong one never does, and every refusal looks the same.
func TestRightPasswordIn(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range 60 {
		user, password, wrong := randomText(r, 20), randomText(r, 30), randomText(r, 30)
		salt := make([]byte, 1+r.IntN(40))
		for i := range salt {
			salt[i] = byte(r.IntN(256))
		}
		verifier := verifierOf(t, password, salt, 1+r.IntN(50))
		for _, text := range []string{"", password, md5Of(user, password), verifier} {
			s := mustParse(t, user, text)
			for _, m := range []Method{Password, MD5, SCRAM} {
				name := fmt.Sprintf("round %d (seed %d): %v, user %+q, password %+q, secret %+q", i, seed, m, user, password, text)
				o := attempt(t, NewExchange(m, user, s), user, password)
				if o.done != s.Usable(m) {
					t.Fatalf("%s: done = %v, %v", name, o.done, o.err)
				}
				if saslprep(wrong) == saslprep(password) {
					continue
				}
				refused := attempt(t, NewExchange(m, user, s), user, wrong)
				checkRefused(t, name, user, refused)
				if o.done {
					continue
				}
				if shape(t, o.wire) != shape(t, refused.wire) {
					t.Fatalf("%s: the right password is refused in another way:\n%s%s", name, shape(t, o.wire), shape(t, refused.wire))
				}
			}
		}
	}
}

func checkRefused(t *testing.T, name, user string, o outcome) {
	t.Helper()
	var refused *pgerr.Error
	if o.done || !errors.As(o.err, &refused) || refused.Code != pgerr.InvalidPassword || refused.Disposition() != pgerr.End {
		t.Fatalf("%s: want LoginFailed, got %v, %v", name, o.done, o.err)
	}
	if want := pgerr.LoginFailed(user).Message; refused.Message != want {
		t.Fatalf("%s: message %q, want %q", name, refused.Message, want)
	}
}

// TestUnknownUserLooksLikeWrongPassword promises: wrong user and wrong password
// look the same, also on repeated attempts.
func TestUnknownUserLooksLikeWrongPassword(t *testing.T) {
	verifier := mustParse(t, "u", verifierOf(t, "right", []byte("twelve bytes"), 5000))
	plain, hash := mustParse(t, "u", "right"), mustParse(t, "u", md5Of("u", "right"))
	for _, known := range []*Secret{verifier, plain, hash} {
		for _, m := range []Method{Password, MD5, SCRAM} {
			p := ProfileOf(m, slices.Values([]*Secret{known, plain, known, hash, known}))
			first := shape(t, attempt(t, p.NewExchange(m, "u", nil), "u", "wrong").wire)
			if again := shape(t, attempt(t, p.NewExchange(m, "u", nil), "u", "wrong").wire); again != first {
				t.Errorf("%v: an unknown user shows at the second attempt:\n%s%s", m, first, again)
			}
			wrong := shape(t, attempt(t, p.NewExchange(m, "u", known), "u", "wrong").wire)
			if known == verifier {
				// The salt is the user's own; all mock salts differ too.
				wrong, first = maskSalt(t, wrong), maskSalt(t, first)
			}
			if wrong != first {
				t.Errorf("%v: unknown user:\n%swrong password:\n%s", m, first, wrong)
			}
		}
	}
	a, b := Mock("a").verifier.Load(), Mock("b").verifier.Load()
	if a.creds.Salt == b.creds.Salt {
		t.Error("two unknown users share a salt")
	}
}

// TestMockMatchesNothing promises: not even what a mock secret holds itself.
func TestMockMatchesNothing(t *testing.T) {
	for _, s := range []*Secret{Mock("u"), Profile{kind: kindSCRAM, iterations: 1}.Mock("u")} {
		for _, password := range []string{"", s.plain, string(s.md5[:]), string(noKey)} {
			if s.matches(password) {
				t.Errorf("%q matches", password)
			}
		}
		digits := md5Hex(string(s.md5[:]) + "salt")
		if s.matchesMD5("md5"+string(digits[:]), [4]byte([]byte("salt"))) {
			t.Error("the right answer to its MD5 challenge matches")
		}
	}
}

func maskSalt(t *testing.T, shape string) string {
	t.Helper()
	before, rest, ok := strings.Cut(shape, ",s=")
	if !ok {
		return shape
	}
	salt, after, _ := strings.Cut(rest, ",")
	return fmt.Sprintf("%s,salt of %d,%s", before, len(salt), after)
}

// TestReloadDoesNotShow promises: a plaintext secret keeps its salt when the
// settings are read again, and had it before the user existed.
func TestReloadDoesNotShow(t *testing.T) {
	one, two := mustParse(t, "u", "secret"), mustParse(t, "u", "changed")
	one.Derive(SCRAM)
	two.Derive(SCRAM)
	want := Mock("u").verifier.Load().creds.KeyFactors
	if one.verifier.Load().creds.KeyFactors != want || two.verifier.Load().creds.KeyFactors != want {
		t.Error("the salt tells that the user was created or changed")
	}
}

func TestProfileOf(t *testing.T) {
	scram := func(iterations int, salt string) *Secret {
		return mustParse(t, "u", verifierOf(t, "x", []byte(salt), iterations))
	}
	plain, hash, none := mustParse(t, "u", "x"), mustParse(t, "u", md5Of("u", "x")), mustParse(t, "u", "")
	a, b := scram(10, "saltsalt"), scram(20, "saltsalt")
	defaults := Profile{kindSCRAM, DefaultIterations, defaultSaltLen}
	for _, c := range []struct {
		name string
		m    Method
		of   []*Secret
		want Profile
	}{
		{"nobody", SCRAM, nil, Profile{}},
		{"nobody usable", SCRAM, []*Secret{nil, hash, none, Mock("x")}, Profile{}},
		{"plaintext", SCRAM, []*Secret{plain, plain, a}, defaults},
		{"verifiers", SCRAM, []*Secret{plain, a, a, hash, hash, hash}, Profile{kindSCRAM, 10, 8}},
		{"a tie", SCRAM, []*Secret{a, b}, Profile{kindSCRAM, 20, 8}},
		{"a tie, turned", SCRAM, []*Secret{b, a}, Profile{kindSCRAM, 20, 8}},
		{"md5", MD5, []*Secret{plain, hash, a}, Profile{}},
		{"md5, mostly verifiers", MD5, []*Secret{plain, a, a}, Profile{kindSCRAM, 10, 8}},
		{"password, mostly verifiers", Password, []*Secret{plain, a, a}, Profile{kindSCRAM, 10, 8}},
	} {
		if got := ProfileOf(c.m, slices.Values(c.of)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	long := Profile{kind: kindSCRAM, iterations: 3, saltLen: 100}.Mock("u").verifier.Load().creds
	if len(long.Salt) != 100 || long.Iters != 3 {
		t.Errorf("mock with %d bytes of salt and %d iterations", len(long.Salt), long.Iters)
	}
}

func TestTrust(t *testing.T) {
	for _, s := range []*Secret{mustParse(t, "u", ""), mustParse(t, "u", "x"), mustParse(t, "u", md5Of("u", "x"))} {
		e := NewExchange(Trust, "u", s)
		if e.Done() {
			t.Error("done before Start")
		}
		if out := e.Start([]byte("x")); string(out) != "x" || !e.Done() || e.Err() != nil {
			t.Errorf("Start = %q, done %v, %v", out, e.Done(), e.Err())
		}
	}
	for _, s := range []*Secret{nil, {}, Mock("u")} {
		e := NewExchange(Trust, "u", s)
		e.Start(nil)
		checkRefused(t, "trust, unknown user", "u", outcome{done: e.Done(), err: e.Err()})
	}
}

// TestNoMethodLetsNobodyIn promises: a method that was forgotten fails closed.
func TestNoMethodLetsNobodyIn(t *testing.T) {
	for _, m := range []Method{0, SCRAM + 1} {
		e := NewExchange(m, "u", mustParse(t, "u", "x"))
		if out := e.Start(nil); len(out) != 0 {
			t.Errorf("Start = %q", out)
		}
		checkRefused(t, m.String(), "u", outcome{done: e.Done(), err: e.Err()})
		if !errors.Is(e.Err(), ErrNoMethod) {
			t.Errorf("cause of %v", e.Err())
		}
	}
}

// TestCauses promises: the log says why, the client does not learn it.
func TestCauses(t *testing.T) {
	plain := mustParse(t, "u", "right")
	for _, c := range []struct {
		m        Method
		s        *Secret
		password string
		want     error
	}{
		{SCRAM, nil, "right", ErrUnknownUser},
		{Password, nil, "", ErrUnknownUser},
		{SCRAM, Mock("u"), "right", ErrUnknownUser},
		{SCRAM, mustParse(t, "u", ""), "right", ErrNoPassword},
		{SCRAM, mustParse(t, "u", md5Of("u", "right")), "right", ErrWrongSecret},
		{SCRAM, plain, "wrong", ErrWrongPassword},
		{MD5, plain, "wrong", ErrWrongPassword},
		{Password, plain, "wrong", ErrWrongPassword},
		{Password, plain, "", ErrEmptyPassword},
		{Password, mustParse(t, "u", verifierOf(t, "", []byte("salt"), 1)), "", ErrEmptyPassword},
		{Password, mustParse(t, "u", md5Of("u", "")), "", ErrEmptyPassword},
	} {
		o := attempt(t, NewExchange(c.m, "u", c.s), "u", c.password)
		checkRefused(t, c.want.Error(), "u", o)
		if !errors.Is(o.err, c.want) {
			t.Errorf("%v, %q: cause of %v, want %v", c.m, c.password, o.err, c.want)
		}
		if bytes.Contains(o.wire, []byte(c.want.Error())) {
			t.Errorf("%v: the client is told %q", c.m, c.want)
		}
	}
}

// TestSlowStepsAreAnnounced promises: what costs a PBKDF2 can be asked before.
func TestSlowStepsAreAnnounced(t *testing.T) {
	plain := mustParse(t, "u", "right")
	verifier := mustParse(t, "u", verifierOf(t, "right", []byte("salt"), 4096))
	like := ProfileOf(Password, slices.Values([]*Secret{verifier}))
	for _, c := range []struct {
		name string
		e    *Exchange
		want bool
	}{
		{"verifier, password", NewExchange(Password, "u", verifier), true},
		{"verifier, md5", NewExchange(MD5, "u", verifier), false},
		{"verifier, scram", NewExchange(SCRAM, "u", verifier), false},
		{"plaintext, password", NewExchange(Password, "u", plain), false},
		{"plaintext, md5", NewExchange(MD5, "u", plain), false},
		{"plaintext, scram, not ready", NewExchange(SCRAM, "u", plain), true},
		{"unknown, password", NewExchange(Password, "u", nil), false},
		{"unknown like verifiers, password", like.NewExchange(Password, "u", nil), true},
		{"unknown, scram", NewExchange(SCRAM, "u", nil), false},
	} {
		c.e.Start(nil)
		if got := c.e.Slow(); got != c.want {
			t.Errorf("%s: Slow() = %v", c.name, got)
		}
	}
	// Without Derive the login works all the same.
	if o := attempt(t, NewExchange(SCRAM, "u", plain), "u", "right"); !o.done || !plain.Ready(SCRAM) {
		t.Errorf("login without Derive: %v", o.err)
	}
	e := NewExchange(SCRAM, "u", plain)
	if e.Start(nil); e.Slow() {
		t.Error("slow although derived")
	}
}

func TestStepOutOfTurn(t *testing.T) {
	plain := mustParse(t, "u", "right")
	e := NewExchange(Password, "u", plain)
	if _, done, err := e.Step(nil, []byte("right\x00")); done || err == nil {
		t.Errorf("Step before Start: %v, %v", done, err)
	}
	e = NewExchange(Password, "u", plain)
	e.Start(nil)
	if out := e.Start(nil); len(out) != 0 {
		t.Errorf("second Start appended %q", out)
	}
	if _, done, err := e.Step(nil, []byte("right\x00")); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if e.Slow() {
		t.Error("slow after the end")
	}
	if _, done, err := e.Step(nil, []byte("right\x00")); done || err == nil || e.Done() {
		t.Errorf("Step after success: %v, %v", done, err)
	}
	e = NewExchange(Password, "u", plain)
	e.Start(nil)
	_, _, first := e.Step(nil, []byte("wrong\x00"))
	if _, done, err := e.Step(nil, []byte("right\x00")); done || err != first {
		t.Errorf("second try after a refusal: %v, %v", done, err)
	}
}

// TestReplay promises: what a client sent once does not log in again.
func TestReplay(t *testing.T) {
	s := mustParse(t, "u", "right")
	e := NewExchange(MD5, "u", s)
	salt := parseRequest(t, e.Start(nil)).data
	digits := md5Hex(md5Of("u", "right")[3:] + string(salt))
	answer := fmt.Appendf(nil, "md5%s\x00", digits[:])
	if _, done, err := e.Step(nil, answer); !done {
		t.Fatal(err)
	}
	e = NewExchange(MD5, "u", s)
	e.Start(nil)
	if _, done, _ := e.Step(nil, answer); done {
		t.Error("an old answer to the MD5 challenge was accepted")
	}
	one, two := NewExchange(SCRAM, "u", s), NewExchange(SCRAM, "u", s)
	var nonces [2]string
	for i, e := range []*Exchange{one, two} {
		e.Start(nil)
		out, _, err := e.Step(nil, saslInitial(mechanism, "n,,n=,r=abc"))
		if err != nil {
			t.Fatal(err)
		}
		nonces[i], _, _ = strings.Cut(string(parseRequest(t, out).data), ",")
	}
	if nonces[0] == nonces[1] {
		t.Error("the server's nonce does not change")
	}
}
