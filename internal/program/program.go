// Package program builds this module's programs, and starts and ends programs of any kind, for soak runs and benchmarks,
// which look at them from outside.
//
//	p, err := program.Start(program.Command{Name: "pooler", Argv: argv, Log: file})
//	defer p.Kill() // whatever happens
//	err = p.Listening(ctx, 30*time.Second, addr)
//	…
//	err = p.Stop(syscall.SIGTERM, 20*time.Second)
//
// Each is a process group of its own, so that a Ctrl-C at the terminal reaches this process alone, which then ends what it
// started in order; should this process be killed, the kernel kills them.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Build compiles a command of this module, by its import path, into the file to, which every account may then run. The
// arguments are further ones of go build. It blocks on the compiler until ctx ends.
func Build(ctx context.Context, to, pkg string, args ...string) error {
	args = append(append([]string{"build", "-o", to}, args...), pkg)
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return os.Chmod(to, 0o755)
}

// ServerAccount is the account for programs that refuse to run as root (PostgreSQL, PgBouncer): the system's postgres
// user. Without root everything runs as the caller, and the result is nil.
func ServerAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("servers do not run as root and there is no user postgres (Debian: apt-get install postgresql): %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// Give gives a file or folder to an account; nil leaves it.
func Give(path string, to *syscall.Credential) error {
	if to == nil {
		return nil
	}
	return os.Chown(path, int(to.Uid), int(to.Gid))
}

// Folder makes a folder in parent that the account, which may not be ours, works in and everybody may read. Its name
// begins with name.
func Folder(parent, name string, as *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	return dir, Give(dir, as)
}

// Environ is our environment without the variables whose names begin with any of these.
func Environ(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return slices.ContainsFunc(without, func(start string) bool { return strings.HasPrefix(kv, start) })
	})
}
