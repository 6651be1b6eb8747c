// Package product runs Fencepost as those who use it do, for soak runs, benchmarks and end-to-end tests: a process with a
// settings file, asked by its console, /metrics and its log.
//
//	f, err := product.Start(ctx, product.Config{Program: path, Dir: dir, Settings: settings})
//	defer f.Kill() // whatever happens
//	rows, err := f.Console(ctx, "SHOW SHARDS")
//	m, err := f.Metrics(ctx)
//	…
//	err = f.End()
package product

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fencepost/internal/program"
)

// Config says what to start.
type Config struct {
	Name     string   // for errors; "": fencepost
	Program  string   // the file
	Args     []string // before the settings file; nil: serve -c
	Settings Settings // the addresses it leaves out are free ones of the loopback interface
	Dir      string   // an existing folder for the settings file and the log
	Env      []string // nil: ours, without what libpq would take from it

	Run     func(argv ...string) []string // how it is run; nil: as it is
	Started func(*program.Process)        // told of each run at its very beginning; nil: nobody is
	Line    func(string)                  // takes each line of the log, which then is in no file; nil: none
}

// Fencepost is a Fencepost with its settings. It can be started again after its end. All methods may be called from any
// goroutine.
type Fencepost struct {
	Name string
	Addr string // host:port for clients
	HTTP string // admin_http, "" for none
	File string // its settings

	config Config
	proc   atomic.Pointer[program.Process] // the present run, nil before the first

	mu        sync.Mutex // guards tolerated
	tolerated []string
}

// How long a start may take, and an end until a second signal overtakes a drain.
const (
	startLimit = 30 * time.Second
	drainLimit = 8 * time.Second
)

// Lay writes the settings.
func Lay(c Config) (*Fencepost, error) {
	if c.Name == "" {
		c.Name = "fencepost"
	}
	if c.Args == nil {
		c.Args = []string{"serve", "-c"}
	}
	if c.Run == nil {
		c.Run = func(argv ...string) []string { return argv }
	}
	if c.Env == nil {
		c.Env = program.Environ("PG")
	}
	addr, http, err := c.Settings.place()
	if err != nil {
		return nil, err
	}
	f := &Fencepost{Name: c.Name, Addr: addr, HTTP: http, File: filepath.Join(c.Dir, "fencepost.toml"), config: c}
	return f, f.Rewrite(c.Settings.Text())
}

// Start lays a Fencepost and starts it.
func Start(ctx context.Context, c Config) (*Fencepost, error) {
	f, err := Lay(c)
	if err != nil {
		return nil, err
	}
	return f, f.Start(ctx)
}

// Rewrite puts another text into the settings file. It has no effect before a reload.
func (f *Fencepost) Rewrite(text string) error { return os.WriteFile(f.File, []byte(text), 0o600) }

// Start starts the process and returns when it accepts clients; if it does not, it is ended.
func (f *Fencepost) Start(ctx context.Context) error {
	if f.Running() {
		return fmt.Errorf("%s is running", f.Name)
	}
	argv := f.config.Run(slices.Concat([]string{f.config.Program}, f.config.Args, []string{f.File})...)
	p, err := program.Start(program.Command{Name: f.Name, Argv: argv, Env: f.config.Env, Log: f.LogFile(), Line: f.config.Line})
	if err != nil {
		return err
	}
	f.proc.Store(p)
	if f.config.Started != nil {
		f.config.Started(p)
	}
	if err := p.Listening(ctx, startLimit, f.Addr); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Process is the present run, or the last one; nil before the first.
func (f *Fencepost) Process() *program.Process { return f.proc.Load() }

// Running reports whether the process is there.
func (f *Fencepost) Running() bool {
	p := f.Process()
	return p != nil && p.Running()
}

// Kill ends the process without a word, if it runs.
func (f *Fencepost) Kill() error {
	if f == nil || f.Process() == nil {
		return nil
	}
	return f.Process().Kill()
}

// Signal sends a signal to the process.
func (f *Fencepost) Signal(s syscall.Signal) error { return f.Process().Signal(s) }

// Stop ends the process, if it runs, as an operator would: by SIGTERM, and by a second one that overtakes a drain. One that
// does not end prints its goroutines. The error says how it ended, if not with exit code 0.
func (f *Fencepost) Stop() error {
	if f.Process() == nil {
		return nil
	}
	p := f.Process()
	for range 2 {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case <-p.Done():
			return p.Stop(syscall.SIGTERM, 0)
		case <-time.After(drainLimit):
		}
	}
	return errors.Join(fmt.Errorf("%s does not end", f.Name), p.Stop(syscall.SIGABRT, drainLimit))
}

// End is Stop and Errors.
func (f *Fencepost) End() error {
	err := f.Stop()
	if err != nil {
		err = f.Process().Failed(err)
	}
	return errors.Join(err, f.Errors())
}

// LogFile is what all its runs have printed.
func (f *Fencepost) LogFile() string { return filepath.Join(f.config.Dir, "log") }

// Log is what all its runs have printed.
func (f *Fencepost) Log() string {
	b, err := os.ReadFile(f.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LogEnd is the end of the log, for the report of a failure.
func (f *Fencepost) LogEnd() string {
	lines := strings.SplitAfter(f.Log(), "\n")
	return fmt.Sprintf("end of the log of %s:\n%s", f.Name, strings.Join(lines[max(0, len(lines)-40):], ""))
}

// Tolerate says that error lines with one of these texts in the log are what the run brings about.
func (f *Fencepost) Tolerate(text ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tolerated = append(f.tolerated, text...)
}

// Errors are the lines of the log at level error and above, and those that are no line of a log, but for the tolerated ones.
func (f *Fencepost) Errors() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Errors(f.Name, f.Log(), f.tolerated...)
}

// Errors are those of a log.
func Errors(name, log string, tolerated ...string) error {
	var bad []error
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "{") && !strings.Contains(line, `"level":"error"`) && !strings.Contains(line, `"level":"fatal"`) {
			continue
		}
		if !slices.ContainsFunc(tolerated, func(t string) bool { return strings.Contains(line, t) }) {
			bad = append(bad, fmt.Errorf("log of %s: %.2000s", name, strings.TrimSpace(line)))
		}
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
func (f *Fencepost) Lines(since time.Time, parts ...string) []Line {
	var found []Line
	for text := range strings.Lines(f.Log()) {
		var l struct {
			Time    time.Time
			Level   string
			Message string
		}
		lacks := func(p string) bool { return !strings.Contains(text, p) }
		if !slices.ContainsFunc(parts, lacks) && json.Unmarshal([]byte(text), &l) == nil && !l.Time.Before(since) {
			found = append(found, Line{l.Time, l.Level, l.Message, strings.TrimSpace(text)})
		}
	}
	return found
}
