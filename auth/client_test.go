package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"fencepost/pgerr"
	"fencepost/wire"

	"github.com/xdg-go/scram"
)

// outcome is one login as the client saw it and as the server knows it.
type outcome struct {
	wire []byte // all that the server sent, the error included
	done bool
	err  error
}

// request is one Authentication message.
type request struct {
	code uint32
	data []byte
}

func parseRequest(t testing.TB, b []byte) request {
	t.Helper()
	if len(b) < 9 || b[0] != wire.MsgAuthentication || int(binary.BigEndian.Uint32(b[1:])) != len(b)-1 {
		t.Fatalf("not one Authentication message: %q", b)
	}
	return request{binary.BigEndian.Uint32(b[5:]), b[9:]}
}

// attempt logs in like libpq: it answers whatever is asked with password.
func attempt(t testing.TB, e *Exchange, user, password string) outcome {
	t.Helper()
	sent := e.Start(nil)
	all := bytes.Clone(sent)
	var conv *scram.ClientConversation
	for !e.Done() && e.Err() == nil {
		var body []byte
		switch r := parseRequest(t, sent); r.code {
		case 3:
			body = append([]byte(password), 0)
		case 5:
			inner := md5Hex(password + user)
			digits := md5Hex(string(inner[:]) + string(r.data))
			body = fmt.Appendf(nil, "md5%s\x00", digits[:])
		case 10:
			if want := mechanism + "\x00\x00"; string(r.data) != want {
				t.Fatalf("mechanisms %q, want %q", r.data, want)
			}
			conv = newConversation(t, password)
			body = saslInitial(mechanism, scramStep(t, conv, ""))
		case 11:
			body = []byte(scramStep(t, conv, string(r.data)))
		default:
			t.Fatalf("unexpected Authentication message %d", r.code)
		}
		out, done, err := e.Step(nil, body)
		if done != e.Done() || (err == nil) != (e.Err() == nil) {
			t.Fatalf("Step said %v, %v; Done and Err say %v, %v", done, err, e.Done(), e.Err())
		}
		sent = out
		all = append(all, out...)
	}
	if e.Done() && conv != nil {
		scramStep(t, conv, string(parseRequest(t, sent).data))
		if !conv.Valid() {
			t.Fatal("the client does not accept the server's signature")
		}
	}
	if err := e.Err(); err != nil {
		all = wire.AppendError(all, pgerr.As(err))
	}
	return outcome{all, e.Done(), e.Err()}
}

func newConversation(t testing.TB, password string) *scram.ClientConversation {
	t.Helper()
	// libpq sends an empty user name.
	c, err := scram.SHA256.NewClientUnprepped("", saslprep(password), "")
	if err != nil {
		t.Fatal(err)
	}
	return c.WithMinIterations(1).NewConversation()
}

func scramStep(t testing.TB, c *scram.ClientConversation, challenge string) string {
	t.Helper()
	s, err := c.Step(challenge)
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	return s
}

func saslInitial(mechanism, data string) []byte {
	b := append([]byte(mechanism), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// shape replaces what is random in a transcript (nonces, MD5 salts) by its
// length, and leaves the SCRAM salt and iterations.
func shape(t testing.TB, transcript []byte) string {
	t.Helper()
	var s strings.Builder
	for len(transcript) > 0 {
		n := 1 + int(binary.BigEndian.Uint32(transcript[1:]))
		msg := transcript[:n]
		transcript = transcript[n:]
		if msg[0] != wire.MsgAuthentication {
			fmt.Fprintf(&s, "%q\n", msg)
			continue
		}
		switch r := parseRequest(t, msg); r.code {
		case 5:
			fmt.Fprintf(&s, "5 salt of %d\n", len(r.data))
		case 11:
			nonce, rest, _ := strings.Cut(string(r.data), ",")
			fmt.Fprintf(&s, "11 nonce of %d,%s\n", len(nonce), rest)
		default:
			fmt.Fprintf(&s, "%d %q\n", r.code, r.data)
		}
	}
	return s.String()
}

// verifierOf makes the verifier that PostgreSQL would store.
func verifierOf(t testing.TB, password string, salt []byte, iterations int) string {
	t.Helper()
	stored, server, err := keys(password, scram.KeyFactors{Salt: string(salt), Iters: iterations})
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, b64(salt), b64(stored), b64(server))
}

func md5Of(user, password string) string {
	digits := md5Hex(password + user)
	return "md5" + string(digits[:])
}

func mustParse(t testing.TB, user, s string) *Secret {
	t.Helper()
	x, err := ParseSecret(user, s)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
