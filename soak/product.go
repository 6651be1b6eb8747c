package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// loginTimeout is client_login_timeout.
const loginTimeout = 6 * time.Second

// product is a running Fencepost: a process of its own.
type product struct {
	addr, admin string
	settings    string // path
	cmd         *exec.Cmd
	done        chan struct{} // closed when the process is gone and its output read
	err         error         // of Wait, once done is closed
	log         *logWatch
}

// settingsText is the settings file. smallPool is the pool size of the scarce database, which reloads change.
func settingsText(o *Options, port int, admin, server string, dbs []database, smallPool int) string {
	var b strings.Builder
	kind := ""
	if o.LoopKind != "" {
		kind = fmt.Sprintf("event_loop = %q\n", o.LoopKind)
	}
	fmt.Fprintf(&b, `[fencepost]
listen_addr = "127.0.0.1"
listen_port = %d
unix_socket_dir = ""
admin_http = %q
admin_users = [%q]
event_loops = %d
%smax_client_conn = 2000
default_pool_size = 4
server_connect_timeout = "10s"
server_login_retry = "1s"
server_idle_timeout = "4s"
server_lifetime = "20s"
client_login_timeout = %q
log_format = "json"

[shards.main]
hosts = [{ addr = %q, role = "any" }]
`, port, admin, opsUser, o.Loops, kind, loginTimeout.String(), server)
	for _, d := range dbs {
		size := d.poolSize
		if d.scarce {
			size = smallPool
		}
		fmt.Fprintf(&b, "\n[databases.%s]\nshard = \"main\"\ndbname = %q\npool_mode = %q\npool_size = %d\nmin_pool_size = %d\nmax_db_connections = %d\nquery_wait_timeout = %q\n",
			d.name, d.server, d.mode, size, d.minPoolSize, d.maxConns, d.wait)
	}
	for _, u := range append([]string{opsUser}, users...) {
		fmt.Fprintf(&b, "\n[users.%s]\npassword = %q\n", u, password(u))
	}
	return b.String()
}

// launch starts the program and waits until it accepts.
func launch(ctx context.Context, path, settings, addr, admin string, log *logWatch) (*product, error) {
	p := &product{addr: addr, admin: admin, settings: settings, done: make(chan struct{}), log: log}
	p.cmd = exec.Command(path, "serve", "-c", settings)
	// A group of its own: a Ctrl-C at the terminal is ours to handle. Should we be killed the kernel ends it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	err = p.cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start fencepost: %w", err)
	}
	go p.wait(out)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		nc, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			nc.Close()
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("fencepost ended: %w\n%s", p.err, log.tail())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("fencepost does not listen: %w", err), p.kill())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wait reads the log to its end and then the exit status. It ends with the process.
func (p *product) wait(out io.ReadCloser) {
	defer close(p.done)
	s := bufio.NewScanner(out)
	s.Buffer(make([]byte, 64<<10), 4<<20)
	for s.Scan() {
		p.log.line(s.Text())
	}
	io.Copy(io.Discard, out) //nolint:errcheck // what is no line any more
	out.Close()
	p.err = p.cmd.Wait()
}

func (p *product) pid() int { return p.cmd.Process.Pid }

// running reports whether the process is there.
func (p *product) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// terminate asks the process to drain and waits for it to end well.
func (p *product) terminate(limit time.Duration) error {
	if !p.running() {
		return errors.Join(errors.New("fencepost ended by itself"), p.err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("fencepost did not end within %v of SIGTERM", limit), p.kill())
	}
}

// kill ends the process whatever it does. It is safe to call again.
func (p *product) kill() error {
	if !p.running() {
		return nil
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}
