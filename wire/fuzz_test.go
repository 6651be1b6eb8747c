package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/pgerr"
)

// The seeds are in testdata/fuzz; make fuzz lets each target search for a while.

// FuzzParseStartup: every prefix of a packet asks for more, what is behind it does not matter, another implementation
// reads the same, and what was read can be written and read again.
func FuzzParseStartup(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		s, n, err := ParseStartup(b)
		if err != nil {
			if _, ok := err.(*pgerr.Error); !ok || n != 0 {
				t.Fatalf("%d, %v", n, err)
			}
			return
		}
		if n == 0 {
			if len(b) >= MaxStartup {
				t.Fatalf("%d bytes are not enough", len(b))
			}
			return
		}
		if n > len(b) || n > MaxStartup || s.Kind == NoKind || s.Kind == DirectTLS {
			t.Fatalf("%d of %d, %v", n, len(b), s.Kind)
		}
		for i := range n {
			if _, m, err := ParseStartup(b[:i]); m != 0 || err != nil {
				t.Fatalf("after %d of %d bytes: %d, %v", i, n, m, err)
			}
		}
		if alone, m, err := ParseStartup(b[:n:n]); err != nil || m != n || !reflect.DeepEqual(alone, s) {
			t.Fatalf("without what is behind: %+v, %d, %v; with it %+v", alone, m, err, s)
		}
		switch s.Kind {
		case StartupMessage:
			checkStartupMessage(t, b[4:n], s)
		case CancelRequest:
			if got := AppendCancelRequest(nil, s.CancelKey); !bytes.Equal(got, b[:n]) {
				t.Fatalf("written again: %q", got)
			}
		default:
			if n != 8 {
				t.Fatalf("%v of %d bytes", s.Kind, n)
			}
		}
	})
}

func checkStartupMessage(t *testing.T, packet []byte, s Startup) {
	t.Helper()
	if s.User == "" || s.Version>>16 != 3 {
		t.Fatalf("%+v", s)
	}
	if v := s.NegotiatedVersion(); v != Version30 && v != Version32 || v > s.Version {
		t.Fatalf("%x becomes %x", s.Version, v)
	}
	// pgproto3 knows no other versions.
	packet = append(binary.BigEndian.AppendUint32(nil, Version30), packet[4:]...)
	var other pgproto3.StartupMessage
	if err := other.Decode(packet); err != nil {
		t.Fatal(err)
	}
	own := map[string]string{"user": s.User, "database": s.Database, "options": s.Options,
		"application_name": s.ApplicationName, "replication": s.Replication}
	for name, value := range own {
		if other.Parameters[name] != value {
			t.Fatalf("%s: %q, want %q", name, value, other.Parameters[name])
		}
		delete(other.Parameters, name)
	}
	again := []string{"user", s.User, "database", s.Database, "options", s.Options,
		"application_name", s.ApplicationName, "replication", s.Replication}
	seen := map[string]bool{}
	for _, p := range slices.Concat(s.Params, s.ProtocolOptions) {
		if folded := lowerASCII(p.Name); seen[folded] || p.Name == "" {
			t.Fatalf("%q comes twice or is empty", p.Name)
		} else {
			seen[folded] = true
		}
		if value, ok := other.Parameters[p.Name]; !ok || value != p.Value {
			t.Fatalf("%s: %q, want %q, %v", p.Name, p.Value, value, ok)
		}
		again = append(again, p.Name, p.Value)
	}
	for name := range other.Parameters {
		if !seen[lowerASCII(name)] {
			t.Fatalf("%q was lost", name)
		}
	}
	written := startup(s.Version, again...)
	if len(written) > MaxStartup {
		return // the five own names were not all there
	}
	if r, _, err := ParseStartup(written); err != nil || !reflect.DeepEqual(r, s) {
		t.Fatalf("written and read again: %+v, %v; was %+v", r, err, s)
	}
}

// FuzzParseOptions: what was read can be written in each of the three forms and read again.
func FuzzParseOptions(f *testing.F) {
	f.Fuzz(func(t *testing.T, options string) {
		params, err := ParseOptions(options)
		if err != nil {
			e, ok := err.(*pgerr.Error)
			if !ok || len(e.Detail) > 600 {
				t.Fatalf("%v", err)
			}
			return
		}
		var escape strings.Builder
		for i, p := range params {
			if p.Name == "" || strings.ContainsAny(p.Name, "=-") {
				t.Fatalf("name %q", p.Name)
			}
			escape.WriteString([...]string{"-c ", "-c", "--"}[i%3])
			for _, c := range []byte(p.Name + "=" + p.Value) {
				escape.Write([]byte{'\\', c})
			}
			escape.WriteByte("\t\n "[i%3])
		}
		if again, err := ParseOptions(escape.String()); err != nil || !slices.Equal(again, params) {
			t.Fatalf("%q: %q, %v; was %q", escape.String(), again, err, params)
		}
	})
}

// FuzzScanner: a stream gives the same messages in whatever pieces it comes. Each byte of cuts is the length of a piece.
func FuzzScanner(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		want, rest, ok := split(stream)
		var chunks [][]byte
		remaining := stream
		for _, cut := range cuts {
			n := min(int(cut), len(remaining))
			chunks, remaining = append(chunks, remaining[:n]), remaining[n:]
		}
		for _, pieces := range [][][]byte{append(chunks, remaining), {stream}, slices.Collect(slices.Chunk(stream, 1))} {
			var s Scanner
			got, err := collect(t, &s, pieces...)
			if !slices.Equal(got, want) || (err == nil) != ok {
				t.Fatalf("%q: %q, %v; want %q, %v", pieces, got, err, want, ok)
			}
			if ok && s.AtBoundary() != (rest == 0) {
				t.Fatalf("%q: boundary %v, %d bytes left", pieces, s.AtBoundary(), rest)
			}
		}
	})
}

// FuzzErrorFields: another implementation reads the same, and an error made of it is whole.
func FuzzErrorFields(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := ErrorFields(body)
		var other pgproto3.ErrorResponse
		// It does not mind bytes behind the terminator.
		if err := other.Decode(body); ok && err != nil {
			t.Fatal(err)
		}
		if ok {
			want := other.SeverityUnlocalized
			if got.Severity != nil && !bytes.Equal(got.Severity, []byte(want)) {
				want = other.Severity
			}
			if string(got.Severity) != want || string(got.Code) != other.Code || string(got.Message) != other.Message ||
				string(got.Detail) != other.Detail || string(got.Hint) != other.Hint {
				t.Fatalf("got %q, want %+v", got, other)
			}
		}
		e := ParseError(body)
		if !pgerr.ValidCode(e.Code) || e.Message == "" || (e.Severity != "ERROR" && e.Severity != "FATAL") {
			t.Fatalf("%+v", e)
		}
		messages, _, _ := split(AppendError(nil, e))
		if again := ParseError([]byte(messages[0].body)); *again != *e {
			t.Fatalf("written and read again: %+v, was %+v", again, e)
		}
	})
}

// FuzzParameterStatus: another implementation reads the same, and it can be written again.
func FuzzParameterStatus(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		name, value, ok := ParameterStatus(body)
		if !ok {
			return
		}
		var other pgproto3.ParameterStatus
		if err := other.Decode(body); err != nil || other.Name != string(name) || other.Value != string(value) {
			t.Fatalf("%q, %q; want %+v, %v", name, value, other, err)
		}
		if built := AppendParameterStatus(nil, other.Name, other.Value); !bytes.Equal(built[HeaderSize:], body) {
			t.Fatalf("written again: %q", built)
		}
	})
}

// FuzzBodies: the small readers take any body.
func FuzzBodies(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		if sql, ok := QueryText(body); ok && !bytes.Equal(AppendQuery(nil, string(sql))[HeaderSize:], body) {
			t.Fatalf("query %q", sql)
		}
	})
}
