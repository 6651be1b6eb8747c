package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/program"
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

	mu   sync.Mutex       // guards proc
	proc *program.Process // the present run; nil before the first
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
	argv := m.lab.Net.Command(m.Name, m.lab.config.Program, "serve", "-c", m.file())
	p, err := program.Start(program.Command{Name: m.Name, Argv: argv, Log: m.LogFile()})
	if err != nil {
		return err
	}
	m.lab.Net.Runs(m.Name, p.PID())
	go func() { // ends with the process
		<-p.Done()
		m.lab.Net.Ran(p.PID())
	}()
	m.mu.Lock()
	m.proc = p
	m.mu.Unlock()
	return p.Listening(ctx, startLimit, m.Addr)
}

func (m *Member) process() *program.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// Running reports whether the process is there.
func (m *Member) Running() bool {
	p := m.process()
	return p != nil && p.Running()
}

// Kill ends the process without a word.
func (m *Member) Kill() error {
	if !m.Running() {
		return nil
	}
	return m.process().Kill()
}

// Signal sends a signal to the process.
func (m *Member) Signal(s syscall.Signal) error { return m.process().Signal(s) }

// Stop ends the process as an operator would.
func (m *Member) Stop() error {
	if !m.Running() {
		return nil
	}
	p := m.process()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-time.After(stopLimit / 2):
	}
	return p.Stop(syscall.SIGTERM, stopLimit/2) // a second one overtakes a drain
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
