package backend

import (
	"slices"
	"testing"
)

func TestParamsKeepValuesApart(t *testing.T) {
	names := Names{"client_encoding", "DateStyle", "application_name"}
	for _, v := range [][]string{
		{"UTF8", "ISO, MDY", ""}, {"UTF8", Unknown, "a\x01b"}, {Unknown, Unknown, Unknown}, {"", "", ""}, {"?", "=", "=?"},
	} {
		if got := MakeParams(v).Values(); !slices.Equal(got, v) {
			t.Errorf("got %q, want %q", got, v)
		}
	}
	a := MakeParams([]string{"UTF8", "ISO, MDY", "x"})
	if b := a.With(2, "y").With(2, "x"); a != b {
		t.Error("equal values are not the same Params")
	}
	want := a.Overlay([]string{Unknown, "German", ""})
	if got := names.SetStatements(a, want); got != "SET DateStyle='German';SET application_name=''" {
		t.Errorf("got %s", got)
	}
	if got := names.SetStatements(a.With(1, Unknown), want); got != "SET application_name=''" {
		t.Errorf("a parameter the server does not report was set: %s", got)
	}
	if got := names.SetStatements(a, a.With(2, `o'b\r`)); got != `SET application_name= E'o''b\\r'` {
		t.Errorf("quoting: %s", got)
	}
}
