package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"fencepost/pgerr"
)

func TestInitialResponseWithoutData(t *testing.T) {
	e := NewExchange(SCRAM, "u", mustParse(t, "u", "right"))
	e.Start(nil)
	noData := binary.BigEndian.AppendUint32([]byte(mechanism+"\x00"), 0xffffffff)
	out, done, err := e.Step(nil, noData)
	if r := parseRequest(t, out); err != nil || done || r.code != 11 || len(r.data) != 0 {
		t.Fatalf("want an empty challenge, got %q, %v, %v", out, done, err)
	}
	conv := newConversation(t, "right")
	out, _, err = e.Step(nil, []byte(scramStep(t, conv, "")))
	if err != nil {
		t.Fatal(err)
	}
	_, done, err = e.Step(nil, []byte(scramStep(t, conv, string(parseRequest(t, out).data))))
	if !done || err != nil {
		t.Errorf("done = %v, %v", done, err)
	}
}

// TestClientNames promises: the user name inside SCRAM is ignored, and a client
// that could bind channels but was not offered it is welcome.
func TestClientNames(t *testing.T) {
	for _, first := range []string{"n,,n=,r=abc", "n,,n=*,r=abc", "n,,n=somebody=2Celse,r=abc", "y,,n=,r=abc", "n,,n=,r=abc,x=extension"} {
		e := NewExchange(SCRAM, "u", mustParse(t, "u", fromPostgreSQL[0].verifier))
		e.Start(nil)
		out, done, err := e.Step([]byte("kept"), saslInitial(mechanism, first))
		if err != nil || done || !bytes.HasPrefix(out, []byte("kept")) {
			t.Fatalf("%s: %v", first, err)
		}
		if r := parseRequest(t, out[4:]); !bytes.HasPrefix(r.data, []byte("r=abc")) {
			t.Errorf("%s: answer %q", first, r.data)
		}
	}
}

// TestBadMessages promises: false lengths and malformed messages are protocol
// violations, whether the user exists or not, and end the login.
func TestBadMessages(t *testing.T) {
	lengths := func(n uint32, data string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte(mechanism+"\x00"), n), data...)
	}
	first := "n,,n=,r=abc"
	cbind := base64.StdEncoding.EncodeToString([]byte("n,,"))
	proof := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, c := range []struct {
		name   string
		m      Method
		bodies []string // "%r" is the server's nonce
	}{
		{"empty", Password, []string{""}},
		{"no NUL", Password, []string{"right"}},
		{"NUL inside", Password, []string{"ri\x00ght\x00"}},
		{"two NULs", Password, []string{"right\x00\x00"}},
		{"too long", Password, []string{strings.Repeat("x", MaxMessage) + "\x00"}},
		{"md5 empty", MD5, []string{""}},
		{"md5 without NUL", MD5, []string{"md5" + strings.Repeat("0", 32)}},
		{"sasl empty", SCRAM, []string{""}},
		{"sasl without NUL", SCRAM, []string{mechanism}},
		{"sasl without length", SCRAM, []string{mechanism + "\x00"}},
		{"sasl half a length", SCRAM, []string{mechanism + "\x00\x00\x00"}},
		{"three quarters of a length", SCRAM, []string{mechanism + "\x00\x00\x00\x00"}},
		{"length too long", SCRAM, []string{string(lengths(uint32(len(first)+1), first))}},
		{"length too short", SCRAM, []string{string(lengths(uint32(len(first)-1), first))}},
		{"length 0 with data", SCRAM, []string{string(lengths(0, first))}},
		{"length -1 with data", SCRAM, []string{string(lengths(0xffffffff, first))}},
		{"length -2", SCRAM, []string{string(lengths(0xfffffffe, first))}},
		{"length near 2^31", SCRAM, []string{string(lengths(0x7fffffff, first))}},
		{"length -2^31", SCRAM, []string{string(lengths(0x80000000, first))}},
		{"length 0", SCRAM, []string{string(lengths(0, ""))}},
		{"a password", SCRAM, []string{"right\x00"}},
		{"no mechanism", SCRAM, []string{string(saslInitial("", first))}},
		{"unknown mechanism", SCRAM, []string{string(saslInitial("SCRAM-SHA-1", first))}},
		{"PLUS was not offered", SCRAM, []string{string(saslInitial(mechanism+"-PLUS", first))}},
		{"mechanism in lower case", SCRAM, []string{string(saslInitial("scram-sha-256", first))}},
		{"channel binding", SCRAM, []string{string(saslInitial(mechanism, "p=tls-server-end-point,,n=,r=abc"))}},
		{"unknown channel binding", SCRAM, []string{string(saslInitial(mechanism, "p=x,,n=,r=abc"))}},
		{"unknown flag", SCRAM, []string{string(saslInitial(mechanism, "z,,n=,r=abc"))}},
		{"mandatory extension", SCRAM, []string{string(saslInitial(mechanism, "n,,m=x,n=,r=abc"))}},
		{"no nonce", SCRAM, []string{string(saslInitial(mechanism, "n,,n="))}},
		{"NUL in SCRAM", SCRAM, []string{string(saslInitial(mechanism, "n,,n=,r=a\x00c"))}},
		{"final empty", SCRAM, []string{string(saslInitial(mechanism, first)), ""}},
		{"final is no SCRAM", SCRAM, []string{string(saslInitial(mechanism, first)), "right"}},
		{"initial again", SCRAM, []string{string(saslInitial(mechanism, first)), string(saslInitial(mechanism, first))}},
		{"other nonce", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=abcdef,p=" + proof}},
		{"client's nonce alone", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=abc,p=" + proof}},
		{"other gs2 header", SCRAM, []string{string(saslInitial(mechanism, first)), "c=eSws,r=%r,p=" + proof}},
		{"no proof", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r"}},
		{"short proof", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r,p=AAAA"}},
		{"empty proof", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r,p="}},
		{"proof is not base64", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r,p=!"}},
		{"NUL in the final", SCRAM, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r,p=" + proof + "\x00"}},
	} {
		var answers []string
		for _, s := range []*Secret{mustParse(t, "u", "right"), nil} {
			answers = append(answers, checkViolation(t, c.name, NewExchange(c.m, "u", s), c.bodies))
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: %q for a user, %q for nobody", c.name, answers[0], answers[1])
		}
	}
	// The control: with the same parts put together rightly the proof is looked at.
	e := NewExchange(SCRAM, "u", mustParse(t, "u", "right"))
	_, err := feed(t, e, []string{string(saslInitial(mechanism, first)), "c=" + cbind + ",r=%r,p=" + proof})
	checkRefused(t, "control", "u", outcome{done: e.Done(), err: err})
}

// feed hands the bodies to e and returns the last answer.
func feed(t *testing.T, e *Exchange, bodies []string) (out []byte, err error) {
	t.Helper()
	e.Start(nil)
	var nonce string
	for i, body := range bodies {
		out, _, err = e.Step([]byte("kept"), []byte(strings.ReplaceAll(body, "%r", nonce)))
		if i == len(bodies)-1 {
			return out, err
		}
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		nonce, _, _ = strings.Cut(strings.TrimPrefix(string(parseRequest(t, out[4:]).data), "r="), ",")
	}
	return out, err
}

func checkViolation(t *testing.T, name string, e *Exchange, bodies []string) string {
	t.Helper()
	out, err := feed(t, e, bodies)
	var violation *pgerr.Error
	if !errors.As(err, &violation) || violation.Code != pgerr.ProtocolViolated || violation.Disposition() != pgerr.End {
		t.Errorf("%s: want a protocol violation, got %v", name, err)
		return ""
	}
	if string(out) != "kept" || e.Done() {
		t.Errorf("%s: appended %q, done %v", name, out, e.Done())
	}
	_, done, again := e.Step(nil, []byte("right\x00"))
	if done || again != err {
		t.Errorf("%s: after the violation Step gives %v, %v", name, done, again)
	}
	return violation.Error()
}

// PostgreSQL's answer to an authorization identity (read_client_first_message in auth-scram.c).
func TestAuthorizationIdentity(t *testing.T) {
	e := NewExchange(SCRAM, "u", mustParse(t, "u", "right"))
	e.Start(nil)
	_, _, err := e.Step(nil, saslInitial(mechanism, "n,a=root,n=,r=abc"))
	var fault *pgerr.Error
	if !errors.As(err, &fault) || fault.Code != "0A000" || fault.Severity != pgerr.SeverityFatal {
		t.Errorf("got %v", err)
	}
}
