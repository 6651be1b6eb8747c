package cancelrace

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The two arms.
const (
	fencepost = "fencepost"
	control   = "control"
)

// build makes the program of an arm.
func build(ctx context.Context, dir, arm string) (string, error) {
	from := map[string]string{fencepost: "fencepost/cmd/fencepost", control: "fencepost/internal/control"}[arm]
	path := filepath.Join(dir, arm)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, from)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", from, err, out)
	}
	return path, nil
}

// The one database and its user.
const (
	database = "race"
	user     = "racer"
)

func settingsText(s setting, loops, port int, admin, server string) string {
	ack := ""
	if s.late {
		ack = fmt.Sprintf("cancel_ack_timeout = %q\n", lateAckTimeout.String())
	}
	return fmt.Sprintf(`[fencepost]
listen_addr = "127.0.0.1"
listen_port = %d
unix_socket_dir = ""
admin_http = %q
auth_type = "trust"
pool_mode = "transaction"
default_pool_size = %d
query_wait_timeout = "5m"
event_loops = %d
log_connections = false
log_disconnections = false
log_format = "json"
%s
[shards.main]
hosts = [{ addr = %q, role = "any" }]

[databases.%s]
shard = "main"

[users.%s]
password = "any"
`, port, admin, s.pool, loops, ack, server, database, user)
}

// product is a running Fencepost or control.
type product struct {
	addr, admin, log string
	cmd              *exec.Cmd
	done             chan struct{} // closed when the process is gone
	err              error         // of Wait, once done is closed
}

// launch starts the program in front of a server and waits until it accepts.
func launch(ctx context.Context, path, arm, dir string, s setting, loops int, server string) (*product, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	addr := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	p := &product{addr: addr(ports[0]), admin: addr(ports[1]), log: filepath.Join(dir, "log"), done: make(chan struct{})}
	settings := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(settings, []byte(settingsText(s, loops, ports[0], p.admin, server)), 0o600); err != nil {
		return nil, err
	}
	args := []string{"serve", "-c", settings}
	if arm == control {
		args = []string{"-c", settings, "-without", "leases"}
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A group of its own: a Ctrl-C at the terminal is ours to handle. Should we be killed the kernel ends it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", arm, err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, p.accepting(ctx)
}

// startLimit bounds the start of the program, stopLimit its end.
const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

func (p *product) accepting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		nc, err := net.DialTimeout("tcp", p.addr, time.Second)
		if err == nil {
			nc.Close()
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.cmd.Path, p.err, p.tail())
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("%s does not listen: %w", p.cmd.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *product) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(b), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// errEnded stands for an exit code of 0.
var errEnded = errors.New("exit status 0")

// running reports whether the process is there.
func (p *product) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end stops the process as an operator would.
func (p *product) end() error {
	if !p.running() {
		return fmt.Errorf("the process ended by itself: %w\n%s", cmp.Or(p.err, errEnded), p.tail())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopLimit):
		p.kill()
		return fmt.Errorf("the process did not end within %v of SIGTERM", stopLimit)
	}
}

// kill ends the process whatever it does. It is safe to call again.
func (p *product) kill() {
	if p.running() {
		p.cmd.Process.Kill() //nolint:errcheck // it is gone then
		<-p.done
	}
}

// errorLines are the lines of the log that say that something is wrong.
func (p *product) errorLines() ([]string, error) {
	f, err := os.Open(p.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var bad []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line := s.Text(); !strings.HasPrefix(line, "{") || strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"level":"fatal"`) {
			bad = append(bad, line)
		}
	}
	return bad, s.Err()
}

// freePorts are loopback ports that nobody uses now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
