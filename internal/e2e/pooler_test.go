package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/internal/pgcluster"
)

// pooler is a running Fencepost process.
type pooler struct {
	addr   string
	config string // its settings file
	cmd    *exec.Cmd
	log    *record
	gone   chan struct{} // closed when it has ended
	noisy  []string      // texts of error lines that the test brings about
}

// record keeps what a process prints.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// settings are a settings file without what differs in each run. Lines go into [fencepost], Sections behind everything.
type settings struct {
	host     string // of the only shard, with the role any
	shard    string // instead of host: the lines of [shards.main]
	dbname   string // of the databases session, transaction and statement, which have the pool mode of their name
	lines    []string
	sections string
	files    int // limit of open files; 0 for ours
}

func (s settings) text(port int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[fencepost]\nlisten_addr = \"127.0.0.1\"\nlisten_port = %d\nunix_socket_dir = \"\"\nadmin_users = [\"ops\"]\n", port)
	for _, d := range []struct{ key, value string }{{"auth_type", `"trust"`}, {"admin_http", `""`}, {"log_connections", "false"}, {"log_disconnections", "false"}} {
		if !strings.Contains(strings.Join(s.lines, "\n"), d.key+" =") {
			fmt.Fprintf(&b, "%s = %s\n", d.key, d.value)
		}
	}
	for _, l := range s.lines {
		b.WriteString(l + "\n")
	}
	if s.shard == "" {
		s.shard = fmt.Sprintf("hosts = [{ addr = %q, role = \"any\" }]", s.host)
	}
	fmt.Fprintf(&b, "[shards.main]\n%s\n", s.shard)
	for _, mode := range []string{"session", "transaction", "statement"} {
		fmt.Fprintf(&b, "[databases.%s]\nshard = \"main\"\ndbname = %q\npool_mode = %q\n", mode, s.dbname, mode)
	}
	fmt.Fprintf(&b, "[databases.missing]\nshard = \"main\"\ndbname = \"this database does not exist\"\n")
	fmt.Fprintf(&b, "[users.%s]\npassword = %q\n", appUser, appPassword)
	fmt.Fprintf(&b, "[users.%s]\npassword = \"any\"\n[users.ops]\npassword = \"ops\"\n", anyUser)
	return b.String() + s.sections
}

// startPooler starts Fencepost, and ends it and looks at its log when the test ends. An error line in the log fails the
// test, unless the test has said with tolerate that it brings it about.
func startPooler(t testing.TB, s settings) *pooler {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p, err := launch(t, path, s)
		if err == nil {
			t.Cleanup(func() { p.end(t) })
			return p
		}
		if !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
	t.Fatal("no free port for Fencepost")
	return nil
}

// freeAddr is an address for a listener that is opened at once.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, _, err := pgcluster.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func launch(t testing.TB, path string, s settings) (*pooler, error) {
	addr, port, err := pgcluster.FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(workDir, "pooler-")
	if err != nil {
		return nil, err
	}
	p := &pooler{addr: addr, config: filepath.Join(dir, "fencepost.toml"),
		log: &record{}, gone: make(chan struct{})}
	if err := os.WriteFile(p.config, []byte(s.text(port)), 0o600); err != nil {
		return nil, err
	}
	args := []string{path, "serve", "-c", p.config}
	if s.files > 0 {
		args = append([]string{"prlimit", fmt.Sprintf("--nofile=%d", s.files)}, args...)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		p.cmd.Wait() //nolint:errcheck // end looks at the state
		close(p.gone)
	}()
	err = poll(patience, func() (bool, error) {
		select {
		case <-p.gone:
			return false, errors.New(p.log.String())
		default:
		}
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		p.cmd.Process.Kill() //nolint:errcheck // it may be gone already
		<-p.gone
		return nil, fmt.Errorf("start fencepost: %w", err)
	}
	return p, nil
}

// tolerate says that error lines with this text are what the test brings about.
func (p *pooler) tolerate(text ...string) { p.noisy = append(p.noisy, text...) }

// end stops the process as an operator would, with SIGTERM and at last a second one.
func (p *pooler) end(t testing.TB) {
	t.Helper()
	for i := 0; ; i++ {
		p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		select {
		case <-p.gone:
		case <-time.After(5 * time.Second):
			if i < 2 {
				continue
			}
			t.Error("Fencepost does not end")
			p.cmd.Process.Signal(syscall.SIGABRT) //nolint:errcheck // prints all goroutines
			<-p.gone
		}
		break
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("Fencepost ended with %s", p.cmd.ProcessState)
	}
	checkLog(t, p.log.String(), p.noisy)
}

func checkLog(t testing.TB, log string, tolerated []string) {
	t.Helper()
	bad := false
line:
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"level":"error"`) && !strings.Contains(line, `"level":"fatal"`) && strings.HasPrefix(line, "{") {
			continue
		}
		for _, text := range tolerated {
			if strings.Contains(line, text) {
				continue line
			}
		}
		t.Errorf("in Fencepost's log: %.2000s", line)
		bad = true
	}
	if bad || t.Failed() {
		lines := strings.SplitAfter(log, "\n")
		t.Logf("end of Fencepost's log:\n%s", strings.Join(lines[max(0, len(lines)-40):], ""))
	}
}

// running reports whether the process lives.
func (p *pooler) running() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// residentKiB is the process's resident memory.
func (p *pooler) residentKiB(t testing.TB) int { return p.status(t, "VmRSS:") }

func (p *pooler) status(t testing.TB, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of process %d", key, p.cmd.Process.Pid)
	return 0
}

// busy is the processor time the process has used.
func (p *pooler) busy(t testing.TB) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')'):])) // what follows the name: state is f[1]
	user, err1 := strconv.Atoi(f[12])
	system, err2 := strconv.Atoi(f[13])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	const ticksPerSecond = 100
	return time.Duration(user+system) * time.Second / ticksPerSecond
}

// poll calls ready every few milliseconds until it reports true or an error, or limit is over.
func poll(limit time.Duration, ready func() (bool, error)) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("not within %s", limit)
		case <-tick.C:
		}
	}
}

// rewrite changes the settings file.
func (p *pooler) rewrite(t testing.TB, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, []byte(change(string(b))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replaceLine replaces the line of a key.
func replaceLine(text, key, line string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, key+" =") {
			lines[i] = line
		}
	}
	return strings.Join(lines, "\n")
}
