package arm

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"fencepost/internal/debian"
	"fencepost/internal/program"
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
		p.Fencepost = filepath.Join(dir, "fencepost")
		if err := program.Build(ctx, p.Fencepost, "fencepost/cmd/fencepost"); err != nil {
			return err
		}
	}
	if needs(Control) {
		p.Control = filepath.Join(dir, "control")
		if err := program.Build(ctx, p.Control, "fencepost/internal/control"); err != nil {
			return err
		}
	}
	if needs(Fixed, Balanced) {
		p.PgBouncer, _, err = debian.Find(ctx, dir, debian.Program{Name: "pgbouncer", Path: "usr/sbin/pgbouncer", Version: "-V", Oldest: [2]int{1, 21}})
		if err != nil {
			return err
		}
	}
	if needs(Balanced) {
		p.HAProxy, _, err = debian.Find(ctx, dir, debian.Program{Name: "haproxy", Path: "usr/sbin/haproxy", Version: "-v", Oldest: [2]int{2, 4}})
	}
	return err
}

// version is the first line that a program prints when asked for its version.
func version(path string, args ...string) string {
	out, _ := exec.Command(path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

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
