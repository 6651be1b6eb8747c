package auth

import (
	"math"
	"slices"
	"testing"
)

// refuse runs one login with a wrong password to its end.
func refuse(tb testing.TB, e *Exchange) {
	var buf [1024]byte
	out := e.Start(buf[:0])
	answer := []byte("wrong\x00")
	if e.method == SCRAM {
		challenge, _, err := e.Step(buf[:0], saslInitial(mechanism, "n,,n=,r=abc"))
		if err != nil {
			tb.Fatal(err)
		}
		nonce := parseRequest(tb, challenge).data[len("r="):][:len("abc")+32]
		answer = slices.Concat([]byte("c=biws,r="), nonce, []byte(",p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
	}
	if _, _, err := e.Step(out, answer); err == nil {
		tb.Fatal("let in")
	}
}

// TestUnknownUserCostsTheSame promises: refusing an unknown user is the same
// work as refusing a wrong password. Allocations stand for work, as they can be
// counted; a few may differ where the race detector empties sync.Pools.
func TestUnknownUserCostsTheSame(t *testing.T) {
	for _, text := range []string{"right", md5Of("u", "right"), verifierOf(t, "right", []byte("sixteen bytes it"), 4)} {
		known := mustParse(t, "u", text)
		for _, m := range []Method{Password, MD5, SCRAM} {
			known.Derive(m)
			p := ProfileOf(m, slices.Values([]*Secret{known}))
			cost := func(s *Secret) float64 {
				return testing.AllocsPerRun(20, func() { refuse(t, p.NewExchange(m, "u", s)) })
			}
			if wrong, unknown := cost(known), cost(nil); math.Abs(wrong-unknown) > 3 {
				t.Errorf("%v, secret %.6s…: %v allocations for a wrong password, %v for an unknown user", m, text, wrong, unknown)
			}
		}
	}
}

// BenchmarkSCRAM is the server's share of one refused SCRAM login, for a known
// and an unknown user: they should not differ.
func BenchmarkSCRAM(b *testing.B) {
	known := mustParse(b, "u", "right")
	known.Derive(SCRAM)
	for _, c := range []struct {
		name   string
		secret *Secret
	}{{"known", known}, {"unknown", nil}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				refuse(b, NewExchange(SCRAM, "u", c.secret))
			}
		})
	}
}
