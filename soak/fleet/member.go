package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Member is one Fencepost.
type Member struct {
	Name   string
	PeerID int
	Addr   string // for clients
	HTTP   string // admin_http

	lab         *Lab
	bind, front string // for the fleet: where it listens, and where others reach it
	dir         string
	tolerated   []string

	mu   sync.Mutex // guards what follows
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	err  error         // of Wait, once done is closed
}

func (m *Member) file() string { return filepath.Join(m.dir, "fencepost.toml") }

// LogFile is what all its runs have printed.
func (m *Member) LogFile() string { return filepath.Join(m.dir, "log") }

// Front is where other members reach it.
func (m *Member) Front() string { return m.front }

const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

// Start starts the process and returns when it accepts clients.
func (m *Member) Start(ctx context.Context) error {
	if m.Running() {
		return fmt.Errorf("%s is running", m.Name)
	}
	if err := m.launch(); err != nil {
		return err
	}
	return m.accepting(ctx)
}

func (m *Member) launch() error {
	log, err := os.OpenFile(m.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.lab.config.Program, "serve", "-c", m.file())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.lab.Net.Runs(m.Name, cmd.Process.Pid)
	done := make(chan struct{})
	m.mu.Lock()
	m.cmd, m.done = cmd, done
	m.mu.Unlock()
	go func() { // ends with the process
		err := cmd.Wait()
		m.lab.Net.Ran(cmd.Process.Pid)
		m.mu.Lock()
		if m.cmd == cmd {
			m.err = err
		}
		m.mu.Unlock()
		close(done)
	}()
	return nil
}

func (m *Member) accepting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return await(ctx, 20*time.Millisecond, func() (bool, error) {
		if !m.Running() {
			return false, fmt.Errorf("%s ended: %s", m.Name, m.Log())
		}
		c, err := net.DialTimeout("tcp", m.Addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil, nil
	})
}

// process is the present run; done is nil before the first.
func (m *Member) process() (*exec.Cmd, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cmd, m.done
}

// Running reports whether the process is there.
func (m *Member) Running() bool {
	_, done := m.process()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Kill ends the process without a word.
func (m *Member) Kill() error {
	if !m.Running() {
		return nil
	}
	cmd, done := m.process()
	err := cmd.Process.Kill()
	<-done
	return err
}

// Signal sends a signal to the process.
func (m *Member) Signal(s syscall.Signal) error {
	cmd, _ := m.process()
	return cmd.Process.Signal(s)
}

// Stop ends the process as an operator would.
func (m *Member) Stop() error {
	if !m.Running() {
		return nil
	}
	cmd, done := m.process()
	for range 2 { // the second one overtakes a drain
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-done:
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.err
		case <-time.After(stopLimit / 2):
		}
	}
	cmd.Process.Kill() //nolint:errcheck // it is gone then
	<-done
	return fmt.Errorf("%s did not end within %v of SIGTERM", m.Name, stopLimit)
}

// Tolerate says that error lines with this text in the log are what the run brings about.
func (m *Member) Tolerate(text ...string) { m.tolerated = append(m.tolerated, text...) }

// Log is what all its runs have printed.
func (m *Member) Log() string {
	b, err := os.ReadFile(m.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// errors are the lines of the log that say that something is wrong.
func (m *Member) errors() error {
	var bad []error
line:
	for line := range strings.Lines(m.Log()) {
		if strings.HasPrefix(line, "{") && !strings.Contains(line, `"level":"error"`) && !strings.Contains(line, `"level":"fatal"`) {
			continue
		}
		for _, t := range m.tolerated {
			if strings.Contains(line, t) {
				continue line
			}
		}
		bad = append(bad, fmt.Errorf("log of %s: %.1000s", m.Name, strings.TrimSpace(line)))
	}
	return errors.Join(bad...)
}

// Line is one line of a log.
type Line struct {
	At      time.Time
	Level   string
	Message string
	Text    string // the whole line
}

// Lines are those of the log since a time that contain all of the parts.
func (m *Member) Lines(since time.Time, parts ...string) []Line {
	var found []Line
lines:
	for text := range strings.Lines(m.Log()) {
		for _, p := range parts {
			if !strings.Contains(text, p) {
				continue lines
			}
		}
		var l struct {
			Time    time.Time
			Level   string
			Message string
		}
		if json.Unmarshal([]byte(text), &l) == nil && !l.Time.Before(since) {
			found = append(found, Line{l.Time, l.Level, l.Message, strings.TrimSpace(text)})
		}
	}
	return found
}

// Connect logs in to a database of the member, "session" or "transaction". Whatever the environment says of other servers,
// and prepared statements, are left out of it.
func (m *Member) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	return connect(ctx, database, m.Addr)
}

func connect(ctx context.Context, database string, addrs ...string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=10", User, strings.Join(addrs, ","), database))
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, cfg)
}

// Console runs a command of the console and returns its rows, by column.
func (m *Member) Console(ctx context.Context, sql string) ([]map[string]string, error) {
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://%s@%s/fencepost?sslmode=disable&connect_timeout=10", Admin, m.Addr))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it goes in any case
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows []map[string]string
	for _, r := range results {
		for _, values := range r.Rows {
			row := map[string]string{}
			for i, v := range values {
				if row[r.FieldDescriptions[i].Name] = string(v); v == nil {
					row[r.FieldDescriptions[i].Name] = "NULL"
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// Shard is the row of SHOW SHARDS.
func (m *Member) Shard(ctx context.Context) (map[string]string, error) {
	rows, err := m.Console(ctx, "SHOW SHARDS")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	for _, r := range rows {
		if r["name"] == "main" {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%s: SHOW SHARDS has no row for main", m.Name)
}

// Fleet are the rows of SHOW FLEET.
func (m *Member) Fleet(ctx context.Context) ([]map[string]string, error) {
	rows, err := m.Console(ctx, "SHOW FLEET")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return rows, nil
}

// Problems is what SHOW FLEET says that is wrong.
func (m *Member) Problems(ctx context.Context) (string, error) {
	rows, err := m.Fleet(ctx)
	var all []string
	for _, r := range rows {
		if r["problems"] != "NULL" {
			all = append(all, r["member"]+": "+r["problems"])
		}
	}
	return strings.Join(all, "\n"), err
}

// Status is what an HTTP path of the member answers.
func (m *Member) Status(ctx context.Context, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTP+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body) //nolint:errcheck // its status is what is asked for
	return resp.StatusCode, nil
}
