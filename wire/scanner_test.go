package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"fencepost/pgerr"
)

type message struct {
	typ  byte
	body string
}

// split is the reference: it sees the whole stream. rest is the number of bytes of an unfinished message at its end;
// ok is false where a header is no header.
func split(stream []byte) (messages []message, rest int, ok bool) {
	for len(stream) >= HeaderSize {
		size := int64(binary.BigEndian.Uint32(stream[1:]))
		if stream[0] == 0 || size < 4 || size > MaxMessage {
			return messages, 0, false
		}
		if int64(len(stream)) < size+1 {
			break
		}
		messages = append(messages, message{stream[0], string(stream[HeaderSize : size+1])})
		stream = stream[size+1:]
	}
	return messages, len(stream), true
}

// collect feeds chunks to s and puts the fragments together again, checking what Next promises on the way.
func collect(t *testing.T, s *Scanner, chunks ...[]byte) (messages []message, err error) {
	t.Helper()
	var body []byte
	var length int
	inBody := false
	var f Fragment // reused, so that what Scan leaves in it would show
	for _, chunk := range chunks {
		for b := chunk; len(b) > 0; {
			twin := *s
			n, err := s.Scan(b, &f)
			if g, m, errNext := twin.Next(b); !reflect.DeepEqual(f, g) || n != m || (err == nil) != (errNext == nil) || *s != twin {
				t.Fatalf("Scan: %+v, %d, %v; Next: %+v, %d, %v", f, n, err, g, m, errNext)
			}
			if err != nil {
				if _, ok := err.(*pgerr.Error); !ok || n != 0 || s.AtBoundary() {
					t.Fatalf("error %v with n = %d, boundary %v", err, n, s.AtBoundary())
				}
				if _, _, again := s.Next([]byte("Z\x00\x00\x00\x05I")); again == nil {
					t.Fatal("the scanner goes on after an error")
				}
				return messages, err
			}
			if n <= 0 || n > len(b) {
				t.Fatalf("n = %d of %d", n, len(b))
			}
			if f.Type == 0 {
				if n != len(b) || inBody || f.First || f.Last || f.Body != nil || s.AtBoundary() {
					t.Fatalf("partial header: %+v, n = %d of %d", f, n, len(b))
				}
				break
			}
			if f.First == inBody {
				t.Fatalf("First = %v inside a body: %v", f.First, inBody)
			}
			if f.First {
				body, length = nil, f.Len
			}
			if f.Len != length || !bytes.Equal(f.Body, b[n-len(f.Body):n]) {
				t.Fatalf("%+v of %q: length %d before", f, b, length)
			}
			body = append(body, f.Body...)
			inBody = !f.Last
			if f.Last != (len(body) == f.Len) || f.Last != s.AtBoundary() || s.Remaining() != f.Len-len(body) {
				t.Fatalf("%+v after %d bytes of body, boundary %v, remaining %d", f, len(body), s.AtBoundary(), s.Remaining())
			}
			if f.Last {
				messages = append(messages, message{f.Type, string(body)})
			}
			b = b[n:]
		}
	}
	return messages, nil
}

// TestScannerAnySplit: whatever the pieces, the messages are the same.
func TestScannerAnySplit(t *testing.T) {
	all := queryAndAnswer(nil)
	want, rest, ok := split(all)
	if rest != 0 || !ok || len(want) != 7 {
		t.Fatalf("the stream itself: %d messages, %d left, %v", len(want), rest, ok)
	}
	check := func(chunks ...[]byte) {
		t.Helper()
		var s Scanner
		got, err := collect(t, &s, chunks...)
		if err != nil || !slices.Equal(got, want) || !s.AtBoundary() {
			t.Fatalf("%q: got %q, %v", chunks, got, err)
		}
	}
	check(slices.Collect(slices.Chunk(all, 1))...)
	for i := range all {
		for j := i; j <= len(all); j++ {
			check(all[:i], all[i:j], all[j:])
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var chunks [][]byte
		for rest := all; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 20))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		check(chunks...)
	}
}

func TestScannerPieces(t *testing.T) {
	var s Scanner
	if f, n, err := s.Next(nil); n != 0 || err != nil || f.Type != 0 || !s.AtBoundary() {
		t.Errorf("nothing: %+v, %d, %v", f, n, err)
	}
	for _, step := range []struct {
		in   string
		want Fragment
	}{
		{"D\x00", Fragment{}},
		{"\x00\x00", Fragment{}},
		{"\x08", Fragment{Type: 'D', First: true, Len: 4, Body: []byte{}}},
		{"ab", Fragment{Type: 'D', Len: 4, Body: []byte("ab")}},
		{"cdZ", Fragment{Type: 'D', Last: true, Len: 4, Body: []byte("cd")}},
	} {
		f, n, err := s.Next([]byte(step.in))
		if err != nil || f.Type != step.want.Type || f.First != step.want.First || f.Last != step.want.Last ||
			f.Len != step.want.Len || string(f.Body) != string(step.want.Body) || n == 0 {
			t.Errorf("%q: %+v, %d, %v; want %+v", step.in, f, n, err, step.want)
		}
	}
	_, _, _ = s.Next([]byte("D\x00\x00"))
	s.Reset()
	if f, n, err := s.Next([]byte("Z\x00\x00\x00\x05I")); f.Type != 'Z' || n != 6 || err != nil {
		t.Errorf("after Reset: %+v, %d, %v", f, n, err)
	}
}

func TestScannerRefuses(t *testing.T) {
	for _, bad := range []string{"Q\x00\x00\x00\x00", "Q\x00\x00\x00\x03", "Q\x80\x00\x00\x00", "Q\xff\xff\xff\xff", "\x00\x00\x00\x00\x04",
		"Q\x80\x00\x00\x03rest"} {
		good := AppendSync(nil)
		all := append(slices.Clone(good), bad...)
		for i := range all {
			var s Scanner
			got, err := collect(t, &s, all[:i], all[i:])
			if err == nil || pgerr.As(err).Code != pgerr.ProtocolViolated || len(got) != 1 {
				t.Fatalf("%q split at %d: %v, %v", bad, i, got, err)
			}
		}
	}
}

// TestScannerLargestMessage: a length near 2^31 is a length, not an error, and keeps nothing.
func TestScannerLargestMessage(t *testing.T) {
	var s Scanner
	f, n, err := s.Next([]byte("d\x7f\xff\xff\xffabc"))
	if err != nil || n != 8 || f.Len != MaxMessage-4 || f.Last || s.Remaining() != MaxMessage-4-3 {
		t.Errorf("%+v, %d, %v", f, n, err)
	}
}

// TestScannerIsSmall: each connection has two.
func TestScannerIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Scanner{}); size > 12 {
		t.Errorf("%d bytes", size)
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	all := queryAndAnswer(nil)
	var s Scanner
	if n := testing.AllocsPerRun(100, func() {
		for b := all; len(b) > 0; {
			_, n, _ := s.Next(b[:min(len(b), 7)])
			b = b[n:]
		}
		for b := all; len(b) > 0; {
			_, n, _ := s.Next(b)
			b = b[n:]
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClientMessageLimit(t *testing.T) {
	for typ := range 256 {
		want := 0
		switch byte(typ) {
		case 'Q', 'P', 'B', 'F', 'd':
			want = 1<<30 - 2 - 4
		case 'C', 'D', 'E', 'H', 'S', 'X', 'c', 'f':
			want = 10000 - 4
		case 'p':
			want = 65535 - 4
		}
		if got := ClientMessageLimit(byte(typ)); got != want {
			t.Errorf("%q: %d, want %d", byte(typ), got, want)
		}
	}
}

// benchmarkScanner reports the time per message.
func benchmarkScanner(b *testing.B, all []byte, messages int) {
	run := func(name string, once func(s *Scanner) bool) {
		b.Run(name, func(b *testing.B) {
			var s Scanner
			b.ReportAllocs()
			for b.Loop() {
				if !once(&s) {
					b.Fatal("no whole messages")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*messages), "ns/message")
		})
	}
	run("Scan", func(s *Scanner) bool {
		var f Fragment
		for rest := all; len(rest) > 0; {
			n, err := s.Scan(rest, &f)
			if err != nil || !f.Last {
				return false
			}
			rest = rest[n:]
		}
		return true
	})
	run("Next", func(s *Scanner) bool {
		for rest := all; len(rest) > 0; {
			f, n, err := s.Next(rest)
			if err != nil || !f.Last {
				return false
			}
			rest = rest[n:]
		}
		return true
	})
}

// BenchmarkScannerAnswer is the answer to a query of pgbench -S.
func BenchmarkScannerAnswer(b *testing.B) {
	all := AppendRowDescription(nil, []Column{{"abalance", OIDInt4}})
	all = AppendDataRow(all, []string{"-4711"})
	all = AppendCommandComplete(all, "SELECT 1")
	benchmarkScanner(b, AppendReadyForQuery(all, 'I'), 4)
}

// BenchmarkScannerQuery is the query of pgbench -S.
func BenchmarkScannerQuery(b *testing.B) {
	benchmarkScanner(b, AppendQuery(nil, "SELECT abalance FROM pgbench_accounts WHERE aid = 123456;"), 1)
}

// BenchmarkScannerRows is a long result: a buffer full of short rows.
func BenchmarkScannerRows(b *testing.B) {
	var all []byte
	for range 1000 {
		all = AppendDataRow(all, []string{"12345", "some text"})
	}
	benchmarkScanner(b, all, 1000)
}
