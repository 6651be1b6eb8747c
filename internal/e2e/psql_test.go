package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// incidental are numbers that differ from run to run.
var incidental = regexp.MustCompile(`(server process with PID|large object|large object metadata with OID) \d+`)

// runPsql runs the scripts in testdata/psql.
func runPsql(t *testing.T, at place, e extent) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(file, bytes.Repeat([]byte("large object\x00\xff\n"), 20000), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-X", "-a", "-v", "file=" + file, "-f", "testdata/psql/basic.sql"}
	if e.full {
		args = append(args, "-f", "testdata/psql/full.sql")
	}
	if e.session {
		args = append(args, "-f", "testdata/psql/session.sql")
	}
	out, err := at.command(t, []string{"FILE=" + file}, "psql", append(args, "-f", "testdata/psql/end.sql")...)
	if err != nil {
		t.Errorf("psql at %s: %v\n%s", at.name, err, short(out))
	}
	return incidental.ReplaceAllString(out, "$1 n")
}
