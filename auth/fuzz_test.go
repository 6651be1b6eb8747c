package auth

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"fencepost/pgerr"
)

// FuzzStep hands an Exchange three messages of a stranger. Nobody gets in,
// nothing panics, every end is one of the two errors, and an error appends
// nothing. "%r" in a message stands for the server's nonce.
func FuzzStep(f *testing.F) {
	first := saslInitial(mechanism, "n,,n=,r=abc")
	final := []byte("c=biws,r=%r,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add(uint8(Password), uint8(0), []byte("wrong\x00"), []byte(""), []byte(""))
	f.Add(uint8(Password), uint8(2), []byte("\x00"), []byte("wrong\x00"), []byte(""))
	f.Add(uint8(MD5), uint8(1), []byte("md54883a1a99583efc28948f7a454511b40\x00"), []byte(""), []byte(""))
	f.Add(uint8(MD5), uint8(2), first, final, []byte(""))
	f.Add(uint8(SCRAM), uint8(0), first, final, final)
	f.Add(uint8(SCRAM), uint8(3), []byte(mechanism+"\x00\xff\xff\xff\xff"), []byte("n,,n=,r=abc"), final)
	f.Add(uint8(SCRAM), uint8(0), []byte(mechanism+"\x00\x7f\xff\xff\xffn,,n=,r=abc"), final, final)
	f.Add(uint8(SCRAM), uint8(0), saslInitial(mechanism, "p=tls-unique,,n=,r=abc"), final, final)
	f.Add(uint8(SCRAM), uint8(0), saslInitial(mechanism, "y,a==2C,n==3D,r=abc,ext=1"), final, final)

	const password = "a password that no fuzzer finds 8c1f"
	secrets := []*Secret{
		mustParse(f, "u", password),
		mustParse(f, "u", md5Of("u", password)),
		mustParse(f, "u", verifierOf(f, password, []byte("salt"), 2)),
		nil,
	}
	secrets[0].Derive(SCRAM)
	f.Fuzz(func(t *testing.T, method, secret uint8, one, two, three []byte) {
		m := Method(method % 5)
		if m == Trust {
			m = SCRAM
		}
		e := NewExchange(m, "u", secrets[int(secret)%len(secrets)])
		e.Start(nil)
		var nonce string
		for _, body := range [][]byte{one, two, three} {
			e.Slow()
			body = []byte(strings.ReplaceAll(string(body), "%r", nonce))
			before := bytes.Clone(body)
			out, done, err := e.Step([]byte("kept"), body)
			checkStep(t, e, out, done, err)
			if !bytes.Equal(body, before) {
				t.Fatal("the body was changed")
			}
			if err == nil {
				challenge := string(parseRequest(t, out[4:]).data)
				nonce, _, _ = strings.Cut(strings.TrimPrefix(challenge, "r="), ",")
			}
		}
	})
}

func checkStep(t *testing.T, e *Exchange, out []byte, done bool, err error) {
	t.Helper()
	if done || e.Done() {
		t.Fatal("a stranger got in")
	}
	if err == nil {
		if e.Err() != nil || !bytes.HasPrefix(out, []byte("kept")) {
			t.Fatalf("Err() = %v, appended to %q", e.Err(), out)
		}
		return
	}
	var end *pgerr.Error
	if !errors.As(err, &end) || !slices.Contains([]string{pgerr.InvalidPassword, pgerr.ProtocolViolated, pgerr.FeatureUnsupported}, end.Code) || string(out) != "kept" {
		t.Fatalf("Step = %q, %v", out, err)
	}
}
