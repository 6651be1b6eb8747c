package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"fencepost/internal/debian"
)

// pgbouncerBinary is a PgBouncer that can be started.
type pgbouncerBinary struct {
	argv    []string // the program, behind a dynamic loader of its own where it needs one
	version string   // "PgBouncer 1.25.2 (libevent 2.1.12-stable, OpenSSL 3.0.22)"
	source  string   // where it is from, for the table
}

// findPgBouncer returns the binary at path; without a path the machine's own or Debian's newest. From 1.21 on it is worth
// comparing with: that brought prepared statements in transaction mode.
func findPgBouncer(ctx context.Context, path, dir string) (pgbouncerBinary, error) {
	if path != "" {
		return inspectPgBouncer([]string{path}, path)
	}
	progress("looking for a PgBouncer from 1.21 on: the machine's, or Debian's newest")
	argv, source, err := debian.Find(ctx, dir, debian.Program{Name: "pgbouncer", Path: "usr/sbin/pgbouncer", Version: "-V", Oldest: [2]int{1, 21}})
	if err != nil {
		return pgbouncerBinary{}, fmt.Errorf("%w (or say PGBOUNCER=path)", err)
	}
	return inspectPgBouncer(argv, source)
}

// inspectPgBouncer asks the program what it is.
func inspectPgBouncer(argv []string, source string) (pgbouncerBinary, error) {
	out, err := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], "-V")...).CombinedOutput()
	if err != nil {
		return pgbouncerBinary{}, fmt.Errorf("%s -V: %w: %s", strings.Join(argv, " "), err, out)
	}
	return pgbouncerBinary{argv: argv, version: pgbouncerVersion(string(out)), source: source}, nil
}

// pgbouncerVersion makes one line of what pgbouncer -V prints.
func pgbouncerVersion(out string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(out), "\n")
	var libs []string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "tls: "); ok {
			line = strings.Join(strings.Fields(v)[:min(2, len(strings.Fields(v)))], " ")
		} else if !strings.HasPrefix(line, "libevent") {
			continue
		}
		libs = append(libs, line)
	}
	if len(libs) == 0 {
		return first
	}
	return first + " (" + strings.Join(libs, ", ") + ")"
}

// versionOf is the first line a program prints when asked for its version, or why there is none.
func versionOf(binary string, args ...string) string {
	out, err := exec.Command(binary, args...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil && line == "" {
		return "version unknown: " + err.Error()
	}
	return line
}
