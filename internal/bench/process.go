package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// child is a process that this run started, and stops.
type child struct {
	name string
	log  string // file with what it printed
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been waited for
}

// startChild starts argv with its output in the file log, as the given user unless cred is nil. The process is a
// group of its own, so that a Ctrl-C in the terminal reaches this program alone, which then stops its children in
// order; should this program be killed, the kernel kills them.
func startChild(name string, argv, env []string, log string, cred *syscall.Credential) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: cred}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process
		_ = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks with sig, waits up to grace, then kills the process and whatever is left of its group.
func (c *child) stop(sig syscall.Signal, grace time.Duration) {
	select {
	case <-c.done:
		return
	default:
	}
	_ = c.cmd.Process.Signal(sig)
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = syscall.Kill(-c.pid(), syscall.SIGKILL)
		<-c.done
	}
}

// failed describes why the process is not what it should be, with the end of its output.
func (c *child) failed(why error) error {
	b, _ := os.ReadFile(c.log)
	if len(b) > 1500 {
		b = b[len(b)-1500:]
	}
	return fmt.Errorf("%s: %w; its output ends with:\n%s", c.name, why, b)
}

// await calls ready every 20 ms until it returns nil. It fails when the process ends, after limit, or with ctx.
func (c *child) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // the error of the last try that the end of ctx did not cut short
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-c.done:
			return c.failed(errors.New("ended while it should have started"))
		case <-ctx.Done():
			return c.failed(fmt.Errorf("not ready: %w", last))
		case <-tick.C:
		}
	}
}

// serverAccount is the account for programs that refuse to run as root (PostgreSQL, PgBouncer): the system's
// postgres user. Without root everything runs as the caller, and the result is nil.
func serverAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL and PgBouncer refuse to run as root and there is no user to run them as: %w", err)
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

// own gives path to the account (nil: leaves it).
func own(path string, cred *syscall.Credential) error {
	if cred == nil {
		return nil
	}
	return os.Chown(path, int(cred.Uid), int(cred.Gid))
}
