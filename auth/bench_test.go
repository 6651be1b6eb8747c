package auth

import "testing"

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
			first := saslInitial(mechanism, "n,,n=,r=abc")
			final := []byte("c=biws,r=,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
			var dst [1024]byte
			b.ReportAllocs()
			for b.Loop() {
				e := NewExchange(SCRAM, "u", c.secret)
				e.Start(dst[:0])
				out, _, err := e.Step(dst[:0], first)
				if err != nil {
					b.Fatal(err)
				}
				nonce := parseRequest(b, out).data[len("r="):]
				nonce = nonce[:len("abc")+32]
				answer := append(append(append([]byte(nil), final[:len("c=biws,r=")]...), nonce...), final[len("c=biws,r="):]...)
				if _, _, err := e.Step(dst[:0], answer); err == nil {
					b.Fatal("let in")
				}
			}
		})
	}
}
