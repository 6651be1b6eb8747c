package wire

import (
	"reflect"
	"testing"
)

func TestErrorFields(t *testing.T) {
	for _, c := range []struct {
		body string
		want Fields
		ok   bool
	}{
		{"SERROR\x00VERROR\x00C42601\x00Mno\x00Dd\x00Hh\x00P1\x00\x00",
			Fields{[]byte("ERROR"), []byte("42601"), []byte("no"), []byte("d"), []byte("h")}, true},
		{"VFATAL\x00SFATAL in another language\x00C57P01\x00Mno\x00\x00",
			Fields{Severity: []byte("FATAL"), Code: []byte("57P01"), Message: []byte("no")}, true},
		{"SFATAL\x00Mno\x00\x00", Fields{Severity: []byte("FATAL"), Message: []byte("no")}, true}, // before 9.6, and without a code
		{"\x00", Fields{}, true},
		{"", Fields{}, false},
		{"SERROR\x00", Fields{Severity: []byte("ERROR")}, false},
		{"SERROR\x00C42601", Fields{Severity: []byte("ERROR")}, false},
		{"M\x00\x00", Fields{Message: []byte("")}, true},
		{"SERROR\x00\x00Mbehind\x00\x00", Fields{Severity: []byte("ERROR")}, false},
		{"S", Fields{}, false},
	} {
		got, ok := ErrorFields([]byte(c.body))
		if ok != c.ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, %v; want %q, %v", c.body, got, ok, c.want, c.ok)
		}
	}
}

func TestParseError(t *testing.T) {
	body := []byte("SFATAL\x00VFATAL\x00C28P01\x00Mno\x00\x00")
	e := ParseError(body)
	clear(body)
	if e.Severity != "FATAL" || e.Code != "28P01" || e.Message != "no" || e.Detail != "" || e.Hint != "" {
		t.Errorf("got %+v", e)
	}
	// A server that answers nonsense, and one without SQLSTATE (CVE-2026-6666), still give a whole error.
	for _, body := range []string{"", "\x00", "garbage", "SFATAL\x00Mno\x00\x00", "C\x00\x00"} {
		if e := ParseError([]byte(body)); e.Severity == "" || e.Code != "XX000" || e.Message == "" {
			t.Errorf("%q: %+v", body, e)
		}
	}
}

func TestParameterStatus(t *testing.T) {
	for _, c := range []struct {
		body, name, value string
		ok                bool
	}{
		{"TimeZone\x00CET\x00", "TimeZone", "CET", true},
		{"search_path\x00\x00", "search_path", "", true},
		{"", "", "", false},
		{"a", "", "", false},
		{"a\x00", "", "", false},
		{"a\x00b", "", "", false},
		{"a\x00b\x00c", "", "", false},
		{"a\x00b\x00\x00", "", "", false},
		{"\x00b\x00", "", "", false},
	} {
		name, value, ok := ParameterStatus([]byte(c.body))
		if string(name) != c.name || string(value) != c.value || ok != c.ok {
			t.Errorf("%q: %q, %q, %v", c.body, name, value, ok)
		}
	}
}

func TestStringsOfBodies(t *testing.T) {
	for body, want := range map[string]string{"SELECT 1\x00": "SELECT 1", "\x00": ""} {
		if sql, ok := QueryText([]byte(body)); !ok || string(sql) != want {
			t.Errorf("%q: %q, %v", body, sql, ok)
		}
	}
	for _, body := range []string{"", "SELECT 1", "SELECT 1\x00x", "a\x00\x00"} {
		if sql, ok := QueryText([]byte(body)); ok {
			t.Errorf("%q: %q", body, sql)
		}
	}
}

func TestReadersAllocateNothing(t *testing.T) {
	report := []byte("SERROR\x00VERROR\x00C42601\x00Mno\x00\x00")
	parameter := []byte("TimeZone\x00CET\x00")
	query := []byte("SELECT 1\x00")
	if n := testing.AllocsPerRun(100, func() {
		_, _ = ErrorFields(report)
		_, _, _ = ParameterStatus(parameter)
		_, _ = QueryText(query)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
