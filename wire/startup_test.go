package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fencepost/pgerr"
)

// packet is a startup-phase packet: the length word, a code and the rest.
func packet(code uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(minStartup+len(rest)))
	return append(binary.BigEndian.AppendUint32(b, code), rest...)
}

// startup is a StartupMessage of names and values.
func startup(version uint32, namesAndValues ...string) []byte {
	return packet(version, strings.Join(namesAndValues, "\x00")+"\x00\x00")
}

func TestParseStartup(t *testing.T) {
	version32 := Startup{Kind: StartupMessage, Version: Version32, User: "u", Database: "d", ApplicationName: "psql",
		Params:          []Param{{"client_encoding", "UTF8"}, {"Weird Name", ""}},
		ProtocolOptions: []Param{{"_pq_.fence", "1"}}, Options: "-c a=b", Replication: "database"}
	for _, c := range []struct {
		name string
		in   []byte
		want Startup
	}{
		{"SSLRequest", packet(codeSSL, ""), Startup{Kind: SSLRequest}},
		{"GSSENCRequest", packet(codeGSSENC, ""), Startup{Kind: GSSENCRequest}},
		{"cancel of 3.0", packet(codeCancel, "\x00\x00\x01\x02abcd"),
			Startup{Kind: CancelRequest, CancelKey: CancelKey{PID: 0x102, Secret: []byte("abcd")}}},
		{"cancel of 3.2", packet(codeCancel, "\xff\x00\x01\x02"+strings.Repeat("k", 32)),
			Startup{Kind: CancelRequest, CancelKey: CancelKey{PID: 0xff000102, Secret: []byte(strings.Repeat("k", 32))}}},
		{"longest cancel key", packet(codeCancel, "\x00\x00\x00\x01"+strings.Repeat("k", 256)),
			Startup{Kind: CancelRequest, CancelKey: CancelKey{PID: 1, Secret: []byte(strings.Repeat("k", 256))}}},
		{"user only", startup(Version30, "user", "u"), Startup{Kind: StartupMessage, Version: Version30, User: "u"}},
		{"everything", startup(Version32, "user", "u", "database", "d", "client_encoding", "UTF8", "application_name", "psql",
			"_pq_.fence", "1", "options", "-c a=b", "Weird Name", "", "replication", "database"), version32},
		{"the last of equal names wins", startup(Version30, "user", "a", "TimeZone", "UTC", "user", "b", "x", "1", "timezone", "CET",
			"database", "d", "database", ""), Startup{Kind: StartupMessage, Version: Version30, User: "b",
			Params: []Param{{"timezone", "CET"}, {"x", "1"}}}},
		{"minor versions", startup(3<<16|9999, "user", "u"), Startup{Kind: StartupMessage, Version: 3<<16 | 9999, User: "u"}},
		{"6 kB application name", startup(Version30, "user", "u", "application_name", strings.Repeat("x", 6000)),
			Startup{Kind: StartupMessage, Version: Version30, User: "u", ApplicationName: strings.Repeat("x", 6000)}},
		{"longest packet, of which the name is cut", startup(Version30, "user", strings.Repeat("u", MaxStartup-15)),
			Startup{Kind: StartupMessage, Version: Version30, User: strings.Repeat("u", 63)}},
		{"names are cut in the middle of a character", startup(Version30, "user", strings.Repeat("u", 62)+"é", "database", strings.Repeat("d", 62)+"é"),
			Startup{Kind: StartupMessage, Version: Version30, User: strings.Repeat("u", 62) + "\xc3", Database: strings.Repeat("d", 62) + "\xc3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, n, err := ParseStartup(c.in)
			if err != nil || n != len(c.in) || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %+v, %d, %v; want %+v, %d", got, n, err, c.want, len(c.in))
			}
			// In pieces of one byte, each byte but the last asks for more.
			for i := range c.in {
				if s, n, err := ParseStartup(c.in[:i]); n != 0 || err != nil || s.Kind != NoKind {
					t.Fatalf("after %d bytes: %+v, %d, %v", i, s, n, err)
				}
			}
			// What is behind the packet is not part of it (a stray byte behind a CancelRequest: node-postgres#963).
			for _, behind := range []string{"\x00", "Q\x00\x00\x00\x04", string(c.in)} {
				got, n, err := ParseStartup(append(slices.Clone(c.in), behind...))
				if err != nil || n != len(c.in) || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("with %q behind: %+v, %d, %v", behind, got, n, err)
				}
			}
		})
	}
}

func TestParseStartupOwnsWhatItReturns(t *testing.T) {
	for _, in := range [][]byte{
		startup(Version30, "user", "u", "database", "d", "Other", "v"),
		packet(codeCancel, "\x00\x00\x01\x02abcd"),
	} {
		got, _, _ := ParseStartup(in)
		want, _, _ := ParseStartup(slices.Clone(in))
		clear(in)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("changed with the input: %+v, was %+v", got, want)
		}
	}
}

func TestParseStartupRefuses(t *testing.T) {
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	const layout = "invalid startup packet layout: "
	for _, c := range []struct {
		name, code, message string
		in                  []byte
	}{
		{"length 0", "08P01", "invalid length of startup packet", length(0)},
		{"length 4", "08P01", "invalid length of startup packet", length(4)},
		{"length 7", "08P01", "invalid length of startup packet", length(7)},
		{"length above the limit", "08P01", "invalid length of startup packet", length(MaxStartup + 1)},
		{"length near 2^31", "08P01", "invalid length of startup packet", length(0x7fffffff)},
		{"length near 2^32", "08P01", "invalid length of startup packet", length(0xffffffff)},
		{"HTTP", "08P01", "invalid length of startup packet", []byte("GET / HTTP/1.1\r\n")},
		{"direct TLS", "0A000", "direct TLS connections are not supported", []byte{0x16, 0x03, 0x01, 0x02}},
		{"direct TLS, two bytes", "0A000", "direct TLS connections are not supported", []byte{0x16, 0x03}},
		{"protocol 2.0", "0A000", "unsupported frontend protocol 2.0", packet(2<<16, strings.Repeat("\x00", 288))},
		{"protocol 0.0", "0A000", "unsupported frontend protocol 0.0", packet(0, "")},
		{"protocol 4.7", "0A000", "unsupported frontend protocol 4.7", packet(4<<16|7, "user\x00u\x00\x00")},
		{"unknown request", "0A000", "unsupported frontend protocol 1234.5681", packet(1234<<16|5681, "")},
		{"SSLRequest too long", "08P01", "invalid length of SSLRequest", packet(codeSSL, "x")},
		{"GSSENCRequest too long", "08P01", "invalid length of GSSENCRequest", packet(codeGSSENC, "\x00")},
		{"cancel without key", "08P01", "invalid length of CancelRequest", packet(codeCancel, "")},
		{"cancel without secret", "08P01", "invalid length of CancelRequest", packet(codeCancel, "\x00\x00\x00\x01")},
		{"cancel, secret of 3", "08P01", "invalid length of CancelRequest", packet(codeCancel, "\x00\x00\x00\x01abc")},
		{"cancel, secret of 257", "08P01", "invalid length of CancelRequest", packet(codeCancel, strings.Repeat("k", 261))},
		{"nothing", "08P01", layout + "expected terminator as last byte", packet(Version30, "")},
		{"no terminator", "08P01", layout + "expected terminator as last byte", packet(Version30, "user\x00u\x00")},
		{"unterminated name", "08P01", layout + "expected terminator as last byte", packet(Version30, "user")},
		{"unterminated value", "08P01", layout + "a parameter has no value", packet(Version30, "user\x00u")},
		{"name without value", "08P01", layout + "a parameter has no value", packet(Version30, "user\x00u\x00database\x00")},
		{"terminator too early", "08P01", layout + "expected terminator as last byte", packet(Version30, "user\x00u\x00\x00\x00")},
		{"parameters behind the terminator", "08P01", layout + "expected terminator as last byte",
			packet(Version30, "user\x00u\x00\x00database\x00d\x00\x00")},
		{"no user", "28000", "no username supplied", startup(Version30, "database", "d")},
		{"empty user", "28000", "no username supplied", startup(Version30, "user", "", "database", "d")},
		{"no parameters", "28000", "no username supplied", packet(Version30, "\x00")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, n, err := ParseStartup(c.in)
			e, ok := err.(*pgerr.Error)
			if !ok || n != 0 {
				t.Fatalf("got %d, %v", n, err)
			}
			if e.Code != c.code || e.Message != c.message || e.Disposition() != pgerr.End {
				t.Errorf("got %s %q, want %s %q", e.Code, e.Message, c.code, c.message)
			}
		})
	}
	if s, _, _ := ParseStartup([]byte{0x16, 0x03, 0x01}); s.Kind != DirectTLS {
		t.Errorf("kind of a ClientHello: %v", s.Kind)
	}
}

// TestBadLengthAllocatesNothing: a length is judged before anything is allocated for it.
func TestBadLengthAllocatesNothing(t *testing.T) {
	in := []byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0}
	partial := startup(Version30, "user", "u", "database", "d")[:20]
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseStartup(partial) }); n != 0 {
		t.Errorf("a partial packet: %v allocations", n)
	}
	// Only the error itself.
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseStartup(in) }); n > 1 {
		t.Errorf("a huge length: %v allocations", n)
	}
}

func TestNegotiation(t *testing.T) {
	for _, c := range []struct {
		version, want uint32
		options       []Param
		needs         bool
	}{
		{Version30, Version30, nil, false},
		{Version32, Version32, nil, false},
		{3<<16 | 1, Version30, nil, true}, // there is no 3.1
		{3<<16 | 3, Version32, nil, true},
		{3<<16 | 9999, Version32, nil, true},
		{3<<16 | 0xffff, Version32, nil, true},
		{Version30, Version30, []Param{{"_pq_.fence", "1"}}, true},
		{Version32, Version32, []Param{{"_pq_.fence", "1"}, {"_pq_.b", ""}}, true},
	} {
		s := Startup{Kind: StartupMessage, Version: c.version, ProtocolOptions: c.options}
		if s.NegotiatedVersion() != c.want || s.NeedsNegotiation() != c.needs {
			t.Errorf("%x with %v: speaks %x, negotiation %v; want %x, %v", c.version, c.options, s.NegotiatedVersion(),
				s.NeedsNegotiation(), c.want, c.needs)
		}
		if names := s.UnknownOptions(); len(names) != len(c.options) || (len(names) > 0 && names[0] != "_pq_.fence") {
			t.Errorf("unknown options %v of %v", names, c.options)
		}
	}
}

func TestManyParameters(t *testing.T) {
	var in []string
	var want []Param
	for i := range 1500 {
		name := fmt.Sprintf("%c%02x", 'a'+i%26, i/26)
		want = append(want, Param{name, ""})
		in = append(in, name, "")
	}
	in = append(in, "A00", "1", "user", "u", "z38", "2") // "a00" and "z38" again
	want[0] = Param{"A00", "1"}
	want[slices.IndexFunc(want, func(p Param) bool { return p.Name == "z38" })].Value = "2"
	got, _, err := ParseStartup(startup(Version30, in...))
	if err != nil || !slices.Equal(got.Params, want) {
		t.Errorf("%d parameters, want %d (%v)", len(got.Params), len(want), err)
	}
}

// TestLongParameterListsAreIndexed: thousands of names before the login must not cost their square.
func TestLongParameterListsAreIndexed(t *testing.T) {
	var l paramList
	for i := range 2 * indexFrom {
		l.set(fmt.Sprint(i), "")
		if indexed := i+1 >= indexFrom; (l.index != nil) != indexed || indexed && len(l.index) != i+1 {
			t.Fatalf("after %d parameters: %d in the index", i+1, len(l.index))
		}
	}
}

// TestParameterNamesFoldAsInPostgreSQL: only ASCII letters do, in a short list as in a long one; bytes that are no UTF-8
// are bytes.
func TestParameterNamesFoldAsInPostgreSQL(t *testing.T) {
	for _, others := range []int{0, 2 * indexFrom} {
		in := []string{"user", "u"}
		for i := range others {
			in = append(in, fmt.Sprintf("p%d", i), "")
		}
		in = append(in, "\xff", "1", "\xfe", "2", "k", "3", "\u212a", "4", "Ä", "5", "ä", "6", "K", "7", "Zz", "8", "zZ", "9")
		s, _, err := ParseStartup(startup(Version30, in...))
		want := []Param{{"\xff", "1"}, {"\xfe", "2"}, {"K", "7"}, {"\u212a", "4"}, {"Ä", "5"}, {"ä", "6"}, {"zZ", "9"}}
		if err != nil || !slices.Equal(s.Params[others:], want) {
			t.Errorf("behind %d others: %q, %v", others, s.Params[others:], err)
		}
	}
}

func TestWantsReplication(t *testing.T) {
	for value, want := range map[string]bool{"": false, "database": true, "true": true, "on": true, "YES": true, "1": true, "t": true,
		"0": false, "off": false, "of": false, "no": false, "f": false, "n": false} {
		if got, err := (&Startup{Replication: value}).WantsReplication(); err != nil || got != want {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
	for _, value := range []string{"o", "2", "maybe", "truely", "Database", " 1"} {
		if _, err := (&Startup{Replication: value}).WantsReplication(); err == nil || pgerr.As(err).Code != pgerr.InvalidParameterValue {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "hush"
	s := Startup{Kind: CancelRequest, CancelKey: CancelKey{PID: 77, Secret: []byte(secret)}}
	leaks := []string{secret, fmt.Sprint([]byte(secret)), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
		fmt.Sprintf("%#v", []byte(secret)), "aHVzaA", "104", "0x68"}
	texts := []string{s.CancelKey.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		for _, value := range []any{s, &s, s.CancelKey, &s.CancelKey, []CancelKey{s.CancelKey}} {
			texts = append(texts, fmt.Sprintf(verb, value))
		}
	}
	js, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(texts, string(js)) {
		for _, leak := range leaks {
			if strings.Contains(text, leak) {
				t.Errorf("%q is in %q", leak, text)
			}
		}
	}
	if !strings.Contains(string(js), "pid 77") {
		t.Errorf("the pid is not in %s", js)
	}
}

func TestKindString(t *testing.T) {
	for k, want := range map[Kind]string{NoKind: "NoKind", SSLRequest: "SSLRequest", GSSENCRequest: "GSSENCRequest",
		CancelRequest: "CancelRequest", StartupMessage: "StartupMessage", DirectTLS: "DirectTLS", 99: "NoKind"} {
		if k.String() != want {
			t.Errorf("%d: %s", k, k)
		}
	}
}

func BenchmarkParseStartup(b *testing.B) {
	in := startup(Version30, "user", "app", "database", "app", "application_name", "pgbench", "client_encoding", "UTF8")
	b.ReportAllocs()
	for b.Loop() {
		if _, n, err := ParseStartup(in); n == 0 || err != nil {
			b.Fatal(err)
		}
	}
}
