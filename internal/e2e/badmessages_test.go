package e2e

import (
	"encoding/binary"
	"strings"
	"testing"
)

func word(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// badMessages end a session.
var badMessages = map[string]string{
	"length 0":                     "Q" + word(0) + "xxxx",
	"length 3":                     "Q" + word(3) + "xxxx",
	"length 2^31-1":                "Q" + word(0x7fffffff) + "SELECT 1",
	"length 2^31":                  "Q" + word(0x80000000) + "SELECT 1",
	"length 2^32-1":                "Q" + word(0xffffffff) + "SELECT 1",
	"Sync too long":                "S" + word(20000) + "xxxx",
	"Execute of 2^31-1":            "E" + word(0x7fffffff) + "xxxx",
	"Bind of 2^31-1":               "B" + word(0x7fffffff) + "xxxx",
	"CopyFail too long":            "f" + word(0x7fffffff) + "xxxx",
	"unknown type":                 "z" + word(4),
	"type 0":                       "\x00" + word(4),
	"type 255":                     "\xff" + word(8) + "xxxx",
	"a server's message":           "Z" + word(5) + "I",
	"a password":                   "p" + word(5) + "\x00",
	"another startup packet":       string(startupPacket(version30, "user", anyUser)),
	"HTTP":                         "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"CopyData of length 1":         "d" + word(1),
	"Terminate of 2^31-1":          "X" + word(0x7fffffff),
	"FunctionCall of 2^30 and one": "F" + word(0x40000001),
}

// Messages whose length is wrong, or whose type does not exist, in a session. Each ends it with 08P01.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2")
	for _, at := range []place{l.session(), l.transaction()} {
		for name, p := range badMessages {
			for before, want := range map[string]string{"": "", "idle": "", "BEGIN": "C[BEGIN] Z[T] ", "SELECT 1; BEGIN; SELECT 2": "T D[1] C[SELECT 1] C[BEGIN] T D[2] C[SELECT 1] Z[T] "} {
				c := mustLogin(t, at)
				var send []byte
				if want != "" {
					send, _ = encode(query(before))
				}
				if err := c.write(append(send, p...)); err != nil {
					t.Fatal(err)
				}
				got, err := c.first("")
				if name == "Terminate of 2^31-1" && strings.HasSuffix(got, "EOF") {
					continue // goodbye, whatever its length
				}
				if cut := strings.TrimPrefix(got, want); err != nil || cut != "E[08P01] EOF" && !(want != "" && got == "E[08P01] EOF") {
					t.Errorf("%s after %q in %s: %s, %v", name, before, at.name, got, err)
				}
			}
		}
	}
	l.atRest()
	l.whole(l.transaction(), 2)
	healthy(t, l)
}
