package program

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Command says what to start.
type Command struct {
	Name string              // for errors
	Argv []string            // the file and its arguments
	Env  []string            // nil: ours
	Dir  string              // where it runs; "": where we do
	Log  string              // file that what it prints is appended to
	Line func(string)        // takes each line it prints, instead of Log; nil: the file does
	As   *syscall.Credential // the account it runs as; nil: ours
}

// Process is a program that was started. Stop or Kill ends it. All methods may be called from any goroutine.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed once the process has been waited for, and its lines read
	err       error         // of Wait, once done is closed
	tail      tail          // of the lines
}

// tail is the end of what was printed.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(append(t.text, line...), '\n')
	t.text = t.text[max(0, len(t.text)-tailBytes):]
}

func (t *tail) get() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.text), nil
}

// Start starts a program.
func Start(c Command) (*Process, error) {
	if c.Line != nil {
		c.Log = ""
	}
	log, lines, err := c.output()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{name: c.Name, log: c.Log, cmd: exec.Command(c.Argv[0], c.Argv[1:]...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.Env, c.Dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: c.As}
	if err := p.cmd.Start(); err != nil {
		lines.Close() //nolint:errcheck // nil, or nobody writes
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() { // ends with the process
		p.read(lines, c.Line)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// output is where the process prints to and, if its lines are taken, where they are read.
func (c *Command) output() (to, lines *os.File, err error) {
	if c.Line != nil {
		lines, to, err = os.Pipe()
		return to, lines, err
	}
	to, err = os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return to, nil, err
}

// read passes lines on until all who may print have ended.
func (p *Process) read(lines *os.File, take func(string)) {
	if lines == nil {
		return
	}
	defer lines.Close()
	s := bufio.NewScanner(lines)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		p.tail.add(s.Text())
		take(s.Text())
	}
	io.Copy(io.Discard, lines) //nolint:errcheck // what is no line any more
}

// PID is the id of the process, or the one it had.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the file with what it printed.
func (p *Process) Log() string { return p.log }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process is there.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// errExited stands for an exit code of 0.
var errExited = errors.New("exit status 0")

// Alive is nil while the process is there. After that it says how it ended, with the end of its output: nobody who asks
// has ended it.
func (p *Process) Alive() error {
	if p.Running() {
		return nil
	}
	return p.Failed(fmt.Errorf("ended by itself: %w", cmp.Or(p.err, errExited)))
}

// tailBytes is how much of the output errors show.
const tailBytes = 2000

// Failed describes why the process is not what it should be, with the end of its output.
func (p *Process) Failed(why error) error {
	read := p.tail.get
	if p.log != "" {
		read = func() ([]byte, error) { return os.ReadFile(p.log) }
	}
	b, err := read()
	if err != nil {
		b = []byte(err.Error())
	}
	return fmt.Errorf("%s: %w; its output ends with:\n%s", p.name, why, b[max(0, len(b)-tailBytes):])
}

// Signal sends a signal to the process alone. One that is gone is left in peace.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Stop asks with sig, waits up to grace, and then kills the process with its group, which is an error. Else the result is
// how the process ended, as exec.Cmd's Wait has it, also if it was gone before.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error {
	if !p.Running() {
		return p.err
	}
	if err := p.Signal(sig); err != nil {
		return errors.Join(err, p.Kill())
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.done:
		return p.err
	case <-late.C:
		return errors.Join(fmt.Errorf("%s did not end within %v of %s", p.name, grace, sig), p.Kill())
	}
}

// Kill kills the process, unless it is gone, with its group, and waits for its end. It fails if the kernel does not let us.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Await calls ready every 20 ms until it returns nil. It fails when the process ends, after limit, or with ctx; what was
// started goes on.
func (p *Process) Await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
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
		case <-p.done:
			return p.Alive()
		case <-ctx.Done():
			return p.Failed(fmt.Errorf("not ready: %w", last))
		case <-tick.C:
		}
	}
}

// Listening waits, as Await does, until the program accepts TCP connections at addr.
func (p *Process) Listening(ctx context.Context, limit time.Duration, addr string) error {
	return p.Await(ctx, limit, func(ctx context.Context) error {
		d := net.Dialer{Timeout: time.Second} // a full queue is no end of the program
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
}
