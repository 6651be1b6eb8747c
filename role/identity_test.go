package role

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// rowOf makes a row of text; "-" is NULL.
func rowOf(text string) [][]byte {
	var row [][]byte
	for _, v := range strings.Split(text, "|") {
		if v == "-" {
			row = append(row, nil)
		} else {
			row = append(row, []byte(v))
		}
	}
	return row
}

func TestParseIdentity(t *testing.T) {
	begun := time.UnixMicro(1796011435617858)
	for name, c := range map[string]struct {
		row  string
		want Identity
	}{
		"primary": {"postgres|f|off|-|6519739359121094549|0000000A0000000000000001|-|16/3550|0|-|17475|1796011435617858",
			Identity{SystemID: 6519739359121094549, Timeline: 10, LSN: 0x16_0000_3550, LagKnown: true, BackendPID: 17475, Started: begun}},
		"standby": {"postgres|t|off|-|77|-|3|0/200|1500000|0/100|7|1796011435617858", Identity{InRecovery: true, SystemID: 77, Timeline: 3,
			LSN: 0x200, Replayed: 0x100, Lag: 1500 * time.Millisecond, LagKnown: true, BackendPID: 7, Started: begun}},
		"standby that nobody may ask more of": {"postgres|t|off|-|-|-|-|-|-|-|7|1796011435617858", Identity{InRecovery: true, BackendPID: 7, Started: begun}},
		"clocks apart": {"postgres|t|off|-|-|-|-|0/2|-250000|0/1|7|1796011435617858",
			Identity{InRecovery: true, LSN: 2, Replayed: 1, LagKnown: true, BackendPID: 7, Started: begun}},
		"lag without end": {"postgres|t|off|-|-|-|-|0/2|9223372036854775807|0/1|7|1796011435617858",
			Identity{InRecovery: true, LSN: 2, Replayed: 1, Lag: 1 << 52 * time.Microsecond, LagKnown: true, BackendPID: 7, Started: begun}},
		"identifier made after 2038": {"postgres|f|off|-|-9223372036854775807|000000010000000000000001|-|0/1|0|-|7|1796011435617858",
			Identity{SystemID: 1<<63 + 1, Timeline: 1, LSN: 1, LagKnown: true, BackendPID: 7, Started: begun}},
		"aurora": {"aurora|f|off|-|-|-|-|-|-|-|7|1796011435617858", Identity{NoTimelines: true, BackendPID: 7, Started: begun}},
		"aurora reader": {"aurora|t|off|-|-|-|-|-|21500|-|7|1796011435617858",
			Identity{NoTimelines: true, InRecovery: true, Lag: 21500 * time.Microsecond, LagKnown: true, BackendPID: 7, Started: begun}},
	} {
		got, err := ParseIdentity(rowOf(c.row))
		if err != nil || got != c.want {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, c.want)
		}
	}
}

// Read-only counts if it is the server's own setting, whatever pg_settings calls the other places.
func TestReadOnlySources(t *testing.T) {
	for source, own := range map[string]bool{
		"configuration file": true, "command line": true, "default": false, "environment variable": false, "global": false, "database": false,
		"user": false, "database user": false, "client": false, "override": false, "session": false, "something new": false,
	} {
		id, err := ParseIdentity(rowOf("postgres|f|on|" + source + "|1|000000010000000000000001|-|0/1|0|-|7|1"))
		if err != nil || id.ReadOnly != own || id.ReadOnlySource != source {
			t.Errorf("%s: %+v, %v", source, id, err)
		}
	}
}

// Nothing is made up: what every server says must be there and make sense.
func TestIdentityWithoutSense(t *testing.T) {
	const good = "postgres|f|off|-|77|000000010000000000000001|-|0/1|0|-|7|1"
	if _, err := ParseIdentity(rowOf(good)); err != nil {
		t.Fatal(err)
	}
	for col, values := range map[int][]string{
		colKind: {"-", "", "oracle", "POSTGRES"}, colInRecovery: {"-", "", "true", "T", "1"}, colReadOnly: {"-", "", "true", "ON"},
		colSystemID: {"0", "x", "99999999999999999999"}, colWALFile: {"-", "", "0", "00000000000000000000000g", "00000000000000000000000100", "000000000000000000000001", "xxxxxxxx0000000000000001"},
		colLSN: {"-", "", "1", "/", "0/", "/0", "0/100000000", "g/0", "-1/0"}, colLag: {"x", "1.5"}, colReplayed: {"x"},
		colBackendPID: {"-", "", "0", "-1", "4294967296"}, colStarted: {"-", "", "0", "-5", "2026-01-01"},
	} {
		for _, v := range values {
			row := strings.Split(good, "|")
			row[col] = v
			if id, err := ParseIdentity(rowOf(strings.Join(row, "|"))); err == nil || id != (Identity{}) {
				t.Errorf("column %d is %q: %+v, %v", col, v, id, err)
			}
		}
	}
	for _, row := range [][][]byte{nil, {}, rowOf(good)[:columns-1], append(rowOf(good), nil)} {
		if id, err := ParseIdentity(row); err == nil {
			t.Errorf("%d columns: %+v", len(row), id)
		}
	}
	if _, err := ParseIdentity(rowOf("postgres|f|on|-|77|000000010000000000000001|-|0/1|0|-|7|1")); err == nil {
		t.Error("read-only from nowhere")
	}
	_, err := ParseIdentity(rowOf(strings.Replace(good, "off", strings.Repeat("x", 5000), 1)))
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func TestParseLSN(t *testing.T) {
	for s, want := range map[string]uint64{"0/0": 0, "16/B374D848": 0x16B374D848, "ffffffff/ffffffff": math.MaxUint64} {
		if got, err := ParseLSN(s); err != nil || got != want {
			t.Errorf("%s: %x, %v", s, got, err)
		}
	}
}

// The queries go out as one statement in the simple protocol, where a second one would be run as well.
func TestQueriesAreOneStatement(t *testing.T) {
	for _, q := range []string{IdentityQuery, IdentityQueryNoControl, AuroraQuery, AuroraCheck} {
		if strings.Contains(q, ";") || strings.Contains(q, "\x00") || len(q) > 4096 {
			t.Errorf("%q", q)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("postgres|f|off|-|77|0000000A0000000000000001|-|0/1|0|-|7|1")
	f.Add("postgres|t|on|configuration file|-|-|3|0/200|-5|0/100|7|1")
	f.Add("aurora|t|off|-|-|-|-|-|21500|-|7|1")
	f.Add("||||||||")
	f.Fuzz(func(t *testing.T, text string) {
		row := rowOf(text)
		before := slices.Clone(row)
		id, err := ParseIdentity(row)
		if err != nil {
			if id != (Identity{}) {
				t.Errorf("%v, but %+v", err, id)
			}
			return
		}
		if !id.NoTimelines && !id.InRecovery && (id.Timeline == 0 || id.BackendPID == 0) || id.Lag < 0 {
			t.Errorf("%q: %+v", text, id)
		}
		if !slices.EqualFunc(row, before, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Error("the row was changed")
		}
	})
}
