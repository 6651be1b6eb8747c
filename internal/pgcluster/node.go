package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fencepost/internal/poll"
)

// Mode is how a server is told to stop (pg_ctl's words).
type Mode syscall.Signal

// The modes.
const (
	Smart     = Mode(syscall.SIGTERM) // waits for the clients to leave
	Fast      = Mode(syscall.SIGINT)  // ends the clients' sessions, writes a checkpoint
	Immediate = Mode(syscall.SIGQUIT) // as after a crash, but every process goes in order
)

// startLimit bounds the wait for a server to take connections, on top of the caller's context.
const startLimit = 60 * time.Second

// signalLimit bounds the wait for the kernel to carry out a signal that cannot be caught.
const signalLimit = 10 * time.Second

// Node is one server of a cluster.
type Node struct {
	Name      string
	Host      string // "127.0.0.1"
	Port      int    // the same over restarts
	SocketDir string // folder of the unix socket .s.PGSQL.Port
	DataDir   string
	BinDir    string // initdb, pg_ctl, postgres; psql and the rest only where the version is the operating system's own

	c         *Cluster
	held      *os.File // the reservation of Port
	upstream  string   // host:port at which others follow it
	following *Node
	cmd       *exec.Cmd
	gone      chan struct{} // closed when the postmaster of cmd has been reaped
	frozen    bool
}

// PID is the postmaster's process id, 0 when the server is not running.
func (n *Node) PID() int {
	if !n.Running() {
		return 0
	}
	return n.cmd.Process.Pid
}

// Running reports whether the postmaster exists, frozen or not.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.gone:
		return false
	default:
		return true
	}
}

// Frozen reports whether the server is stopped by Freeze.
func (n *Node) Frozen() bool { return n.frozen && n.Running() }

// Start starts the server and returns when it takes connections (with hot_standby = off: when it replays). It fails with
// the end of the log when the server gives up or is not ready within a minute or ctx.
func (n *Node) Start(ctx context.Context) error {
	if n.Running() {
		return fmt.Errorf("start %s: it is running", n.Name)
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// The server outlives ctx: ctx is about the start.
	cmd := n.c.as.command(context.WithoutCancel(ctx), filepath.Join(n.BinDir, "postgres"), "-D", n.DataDir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	n.cmd, n.gone, n.frozen = cmd, make(chan struct{}), false
	go func(gone chan struct{}) { // ends with the postmaster
		cmd.Wait() //nolint:errcheck // how a postmaster exits says nothing its log does not
		close(gone)
	}(n.gone)

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := poll.Until(ctx, pollEvery, n.ready); err != nil {
		return fmt.Errorf("start PostgreSQL %s on %s: %w\n%s", n.Name, n.Addr(), errors.Join(err, n.Kill()), tail(n.Log(), 15))
	}
	return nil
}

// ready reads the state that the postmaster keeps in the last line of postmaster.pid, as pg_ctl does.
func (n *Node) ready() (bool, error) {
	if !n.Running() {
		return false, errors.New("the server ended")
	}
	lines := n.pidFile()
	if len(lines) < 8 || lines[0] != strconv.Itoa(n.cmd.Process.Pid) {
		return false, nil
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby" && n.c.opts.Conf["hot_standby"] == "off", nil
}

func (n *Node) pidFile() []string {
	b, err := os.ReadFile(filepath.Join(n.DataDir, "postmaster.pid"))
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// Stop stops the server, thawing it first, and waits until it is gone or ctx ends. A server that is not running is left
// alone.
func (n *Node) Stop(ctx context.Context, mode Mode) error {
	if !n.Running() {
		return nil
	}
	if err := errors.Join(n.Thaw(), n.signal(syscall.Signal(mode))); err != nil {
		return err
	}
	select {
	case <-n.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", n.Name, ctx.Err())
	}
}

// Restart is Stop in Fast mode and Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx, Fast); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Kill ends every process of the server with SIGKILL and waits until the postmaster is gone. The clients' sockets close.
func (n *Node) Kill() error {
	if !n.Running() {
		return nil
	}
	children, err := n.halt()
	if err != nil {
		return err
	}
	for _, pid := range children {
		if err := kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if err := n.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-n.gone
	n.frozen = false
	// While one of them is left a restart would find the shared memory in use.
	ctx, cancel := context.WithTimeout(context.Background(), signalLimit)
	defer cancel()
	return poll.Until(ctx, pollEvery, func() (bool, error) { return !slices.ContainsFunc(children, exists), nil })
}

// Freeze stops every process of the server with SIGSTOP. The kernel still completes TCP handshakes for it.
func (n *Node) Freeze() error {
	if !n.Running() {
		return fmt.Errorf("freeze %s: it is not running", n.Name)
	}
	children, err := n.halt()
	if err != nil {
		return err
	}
	n.frozen = true
	for _, pid := range children {
		if err := kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
	}
	return nil
}

// Thaw lets a frozen server go on. One that is not frozen is left alone.
func (n *Node) Thaw() error {
	if !n.Frozen() {
		return nil
	}
	n.frozen = false
	for _, pid := range descendants(n.cmd.Process.Pid) {
		if err := kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return n.signal(syscall.SIGCONT)
}

// halt stops the postmaster, so that no child is born any more, and returns its children.
func (n *Node) halt() ([]int, error) {
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	pid := n.cmd.Process.Pid
	ctx, cancel := context.WithTimeout(context.Background(), signalLimit)
	defer cancel()
	if err := poll.Until(ctx, pollEvery, func() (bool, error) { return stopped(pid) || !n.Running(), nil }); err != nil {
		return nil, fmt.Errorf("stop process %d of %s: %w", pid, n.Name, err)
	}
	return descendants(pid), nil
}

func (n *Node) signal(sig syscall.Signal) error {
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to %s: %w", sig, n.Name, err)
	}
	return nil
}

// Promote makes a standby the primary and waits until it takes writes. The other nodes keep following whom they followed:
// see Follow.
func (n *Node) Promote(ctx context.Context) error {
	var done bool
	if err := n.QueryRow(ctx, "SELECT pg_promote(true, 60)", &done); err != nil {
		return fmt.Errorf("promote %s: %w", n.Name, err)
	}
	if !done {
		return fmt.Errorf("promote %s: not promoted within a minute", n.Name)
	}
	n.following, n.c.primary = nil, n
	return nil
}

// Follow makes the node a standby of another one of its cluster. One that is running is restarted, except a standby of
// PostgreSQL 13 or newer, which is told to turn to the other one and has not done so yet on return. A former primary can
// follow only if it has nothing that the new one lacks, that is, after a clean stop; else use Rebuild.
func (n *Node) Follow(ctx context.Context, primary *Node) error {
	running := n.Running()
	if running && n.following != nil && n.major() >= 13 {
		if err := n.follow(primary); err != nil {
			return err
		}
		return n.signal(syscall.SIGHUP)
	}
	if err := n.Stop(ctx, Fast); err != nil {
		return err
	}
	if err := n.follow(primary); err != nil || !running {
		return err
	}
	return n.Start(ctx)
}

// Log is everything the server has logged so far.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.LogFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(b)
}

// LogFile is the path of the server's log. Stop of the cluster removes it.
func (n *Node) LogFile() string { return filepath.Join(n.c.Dir, n.Name+".log") }

// discard ends the server for good and gives up its port. It may be called again.
func (n *Node) discard(ctx context.Context) error {
	defer n.held.Close()
	err := n.Stop(ctx, Immediate)
	if err != nil {
		err = n.Kill()
	}
	n.removeSharedMemory()
	return err
}

// removeSharedMemory removes the System V segment that a killed postmaster leaves. It is named in the pid file, which such
// a postmaster leaves too.
func (n *Node) removeSharedMemory() {
	lines := n.pidFile()
	if n.Running() || len(lines) < 7 {
		return
	}
	if f := strings.Fields(lines[6]); len(f) == 2 { // key, id
		if id, err := strconv.Atoi(f[1]); err == nil {
			unix.SysvShmCtl(id, unix.IPC_RMID, nil) //nolint:errcheck // it may be gone already
		}
	}
}
