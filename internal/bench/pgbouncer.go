package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"fencepost/internal/debian"
)

// pgbouncerBinary is a PgBouncer that can be started.
type pgbouncerBinary struct {
	argv    []string // the program, behind a dynamic loader of its own where it needs one
	version string   // "PgBouncer 1.25.2 (libevent 2.1.12-stable, OpenSSL 3.0.22)"
	source  string   // where it is from, for the table
}

// oldestPgBouncer is the first version worth comparing with: 1.21 brought prepared statements in transaction mode.
var oldestPgBouncer = [2]int{1, 21}

// findPgBouncer returns the binary at path; without a path the machine's own if it is recent enough, else Debian's
// newest, fetched once with apt into the user's cache folder and copied to dir, where the server account can read it.
func findPgBouncer(ctx context.Context, path, dir string) (pgbouncerBinary, error) {
	if path != "" {
		return inspectPgBouncer([]string{path}, path)
	}
	var old error
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		p, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		b, err := inspectPgBouncer([]string{p}, "installed")
		if err == nil && recentEnough(b.version) {
			return b, nil
		}
		old = errors.Join(old, err)
	}
	progress("no PgBouncer from %d.%d on is installed: taking Debian's newest", oldestPgBouncer[0], oldestPgBouncer[1])
	argv, suite, err := debian.Fetch(ctx, debian.Program{Name: "pgbouncer", Path: "usr/sbin/pgbouncer", Version: "-V"}, dir)
	if err != nil {
		return pgbouncerBinary{}, fmt.Errorf("get Debian's newest PgBouncer (or say PGBOUNCER=path): %w", errors.Join(old, err))
	}
	return inspectPgBouncer(argv, "Debian "+suite)
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

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)`)

func recentEnough(version string) bool {
	m := versionNumber.FindStringSubmatch(version)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > oldestPgBouncer[0] || major == oldestPgBouncer[0] && minor >= oldestPgBouncer[1]
}

// buildFencepost compiles the product of the tree this program runs in.
func buildFencepost(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "fencepost")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/fencepost")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fencepost (run bench in the root of the repository): %w\n%s", err, out)
	}
	return binary, os.Chmod(binary, 0o755)
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
