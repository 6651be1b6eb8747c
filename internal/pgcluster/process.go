package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"fencepost/internal/program"
)

// account is the operating system user that servers run as: PostgreSQL refuses to run as root.
type account struct{ credential *syscall.Credential } // nil: as we are

func serverAccount() (account, error) {
	as, err := program.ServerAccount()
	return account{as}, err
}

// command prepares a program that runs as the account, in a process group of its own (a Ctrl-C at the terminal is ours to
// handle), without any PG* variable of ours.
func (a account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential, Setpgid: true}
	cmd.Dir = "/"
	cmd.Env = append(program.Environ("PG", "LC_", "LANG"), "LC_ALL=C")
	return cmd
}

func (a account) own(path string) error { return program.Give(path, a.credential) }

// pollEvery is how often what is waited for is asked for.
const pollEvery = 5 * time.Millisecond

// Ports are taken below the range that the kernel takes clients' ports from: a server that is stopped for a while must
// find its port free when it comes back.
const firstPort, ports = 14000, 18000

// ReservePort finds a port of the loopback interface that nobody listens on and that no server of this package, in this
// process or another, is given until held is closed. The caller closes it.
func ReservePort() (port int, held io.Closer, err error) { return reservePort() }

// FreeAddr is an address of the loopback interface with such a port that is not kept for anybody, for a program that is
// started at once and not again.
func FreeAddr() (addr string, port int, err error) {
	port, held, err := reservePort()
	if err != nil {
		return "", 0, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port, held.Close()
}

// Processes are the ids of the postmaster and of the processes below it, none when the server is not running.
func (n *Node) Processes() []int {
	pid := n.PID()
	if pid == 0 {
		return nil
	}
	return append(descendants(pid), pid)
}

// Alive returns those of the processes that have not ended.
func Alive(pids []int) []int {
	var alive []int
	for _, pid := range pids {
		if exists(pid) {
			alive = append(alive, pid)
		}
	}
	return alive
}

// reservePort finds a port nobody listens on and keeps it from other users of this package, in this process or another,
// until held is closed: each port is one byte of a shared file, and the reservation is a lock on that byte.
func reservePort() (port int, held *os.File, err error) {
	cache, err := cacheDir()
	if err != nil {
		return 0, nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return 0, nil, err
	}
	held, err = os.OpenFile(filepath.Join(cache, "ports.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return 0, nil, err
	}
	for range 200 {
		port = firstPort + rand.IntN(ports)
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(port), Len: 1}
		if unix.FcntlFlock(held.Fd(), unix.F_OFD_SETLK, &lock) != nil {
			continue
		}
		if l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, held, l.Close()
		}
		lock.Type = unix.F_UNLCK
		if err := unix.FcntlFlock(held.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			return 0, nil, errors.Join(err, held.Close())
		}
	}
	return 0, nil, errors.Join(fmt.Errorf("no free port between %d and %d", firstPort, firstPort+ports), held.Close())
}

// descendants lists the children of a process and theirs. Every process of a PostgreSQL server makes itself the leader
// of a process group, so that a signal to the postmaster's group would reach the postmaster alone.
func descendants(pid int) []int {
	if pid <= 1 {
		return nil // never everybody
	}
	children := make(map[int][]int)
	procs, _ := procfs.AllProcs()
	for _, p := range procs {
		if s, err := p.Stat(); err == nil { // else it has ended
			children[s.PPID] = append(children[s.PPID], p.PID)
		}
	}
	all := children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// sentinel is a small shell that outlives us when we are killed, sees its standard input end, and then stops the servers
// that run in the cluster's folder and removes the folder. It asks for the working folder before it believes a pid file.
const sentinel = `
dir=$1
alive() { # a dead one that init has not reaped yet does not count
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
	case ${stat##*) } in [ZX]*) return 1 ;; esac
}
cat >/dev/null
pids=
for pidfile in "$dir"/*/postmaster.pid; do
	[ -f "$pidfile" ] || continue
	read -r pid <"$pidfile"
	[ "$(readlink "/proc/$pid/cwd")" = "${pidfile%/postmaster.pid}" ] || continue
	for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null); do kill -CONT "$child" 2>/dev/null; done
	kill -CONT "$pid"
	kill -QUIT "$pid"
	pids="$pids $pid"
done
for pid in $pids; do
	n=0
	while alive "$pid" && [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done
	alive "$pid" && kill -KILL "$pid"
done
rm -rf "$dir"
`

// startSentinel starts the sentinel of a folder. The returned function ends it: the sentinel then finds nothing to stop
// and removes what is left of the folder.
func startSentinel(dir string) (end func() error, err error) {
	cmd := exec.Command("/bin/sh", "-c", sentinel, "fencepost-pgcluster-sentinel", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the sentinel: %w", err)
	}
	return func() error { return errors.Join(in.Close(), cmd.Wait()) }, nil
}

// kill sends a signal to a process that may have ended.
func kill(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s to process %d: %w", sig, pid, err)
	}
	return nil
}

// exists reports whether a process runs; a dead one that nobody has reaped does not count.
func exists(pid int) bool { return !strings.Contains("ZX", processState(pid)) }

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool { return strings.EqualFold(processState(pid), "T") } // "t" under a debugger

// processState is the state letter of a process, "X" when there is none.
func processState(pid int) string {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "X"
	}
	s, err := p.Stat()
	if err != nil {
		return "X"
	}
	return s.State
}
