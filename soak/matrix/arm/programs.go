package arm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"fencepost/internal/debian"
)

// Programs are what the arms run.
type Programs struct {
	Fencepost, Control string   // files
	PgBouncer, HAProxy []string // command lines
}

// Find builds or fetches what the named arms need, into dir, unless it is there. fencepost is a file to take instead of
// building one; "" builds it. It blocks on the compiler and on Debian's mirror until ctx ends.
func (p *Programs) Find(ctx context.Context, dir, fencepost string, arms []string) (err error) {
	p.Fencepost = fencepost
	needs := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(arms, n) })
	}
	if needs(Fencepost, Control) && p.Fencepost == "" {
		if p.Fencepost, err = build(ctx, dir, "fencepost", "fencepost/cmd/fencepost"); err != nil {
			return err
		}
	}
	if needs(Control) {
		if p.Control, err = build(ctx, dir, "control", "fencepost/internal/control"); err != nil {
			return err
		}
	}
	if needs(Fixed, Balanced) {
		p.PgBouncer, err = find(ctx, dir, debian.Program{Name: "pgbouncer", Path: "usr/sbin/pgbouncer", Version: "-V"}, 1, 21)
		if err != nil {
			return err
		}
	}
	if needs(Balanced) {
		p.HAProxy, err = find(ctx, dir, debian.Program{Name: "haproxy", Path: "usr/sbin/haproxy", Version: "-v"}, 2, 4)
	}
	return err
}

func build(ctx context.Context, dir, name, pkg string) (string, error) {
	path := filepath.Join(dir, name)
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, os.Chmod(path, 0o755)
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)[.\d]*`)

// find takes the machine's own program if it is recent enough, else Debian's newest.
func find(ctx context.Context, dir string, p debian.Program, major, minor int) ([]string, error) {
	for _, file := range []string{p.Name, "/" + p.Path} {
		path, err := exec.LookPath(file)
		if err != nil {
			continue
		}
		if m := versionNumber.FindStringSubmatch(version(path, p.Version)); m != nil {
			a, _ := strconv.Atoi(m[1])
			b, _ := strconv.Atoi(m[2])
			if a > major || a == major && b >= minor {
				return []string{path}, nil
			}
		}
	}
	argv, _, err := debian.Fetch(ctx, p, dir)
	if err != nil {
		return nil, fmt.Errorf("get Debian's newest %s: %w", p.Name, err)
	}
	return argv, nil
}

// version is the first line that a program prints when asked for its version.
func version(path string, args ...string) string {
	out, _ := exec.Command(path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// number is the version's number alone.
func number(argv []string, arg string) string {
	return versionNumber.FindString(version(argv[0], append(slices.Clone(argv[1:]), arg)...))
}

func pgxVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if strings.HasPrefix(m.Path, "github.com/jackc/pgx") {
			return m.Version
		}
	}
	return ""
}
