package arm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program of an arm.
type process struct {
	name string
	log  string         // file with what it printed
	quit syscall.Signal // has it end at once
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
	err  error         // of Wait, once done is closed
}

// launch starts a program with its output in dir. It is a group of its own, so that a Ctrl-C at the terminal is ours to
// handle; should we be killed the kernel ends it.
func launch(name, dir string, argv []string, quit syscall.Signal, as *syscall.Credential) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{name: name, log: log.Name(), quit: quit, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	for _, kv := range os.Environ() { // none of what libpq would take from it
		if !strings.HasPrefix(kv, "PG") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// startLimit bounds the start of a program, stopLimit its end.
const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// listening waits until the program accepts connections at addr.
func (p *process) listening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%w):\n%s", p.name, p.how(), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen: %w\n%s", p.name, err, p.tail())
		case <-tick.C:
		}
	}
}

// how is how the process ended. Only after done is closed.
func (p *process) how() error { return cmp.Or(p.err, errEnded) }

// errEnded stands for an exit code of 0.
var errEnded = errors.New("exit status 0")

// running is nil while the process is there.
func (p *process) running() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %w\n%s", p.name, p.how(), p.tail())
	default:
		return nil
	}
}

// stop ends the process in order, or after stopLimit by force.
func (p *process) stop() {
	if p.running() != nil {
		return
	}
	p.cmd.Process.Signal(p.quit) //nolint:errcheck // it is gone then
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // likewise
		<-p.done
	}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// account is whom programs run as that refuse to be root: the system's postgres user. nil: as we do.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PgBouncer and HAProxy are not run as root: %w", err)
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

// folder makes one that the account may use.
func folder(parent, name string, as *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return "", err
	}
	if as == nil {
		return dir, nil
	}
	return dir, errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(as.Uid), int(as.Gid)))
}

// freeAddr is a loopback address with a port that nobody uses now.
func freeAddr() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	addr = l.Addr().String()
	_, port, err = net.SplitHostPort(addr)
	return addr, port, err
}
