package program

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 10 * time.Second

// shell starts a script with a file of its own for what it prints.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Command{Name: "script", Argv: []string{"sh", "-c", script}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func printed(t *testing.T, p *Process) string {
	t.Helper()
	b, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// says waits until the script has printed something.
func says(t *testing.T, p *Process) string {
	t.Helper()
	err := p.Await(t.Context(), patience, func(context.Context) error {
		if printed(t, p) == "" {
			return errors.New("has printed nothing")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return printed(t, p)
}

// A process that ignores the request to stop is killed with all it started.
func TestStopKillsTheGroup(t *testing.T) {
	p := shell(t, "trap '' INT; sleep 1000 & echo $!; wait; wait; sleep 1000")
	child := says(t, p)
	begun := time.Now()
	if err := p.Stop(syscall.SIGINT, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("stopped: %v", err)
	}
	// The grandchild has its signal; init reaps it when the kernel has taken it down.
	for tick := time.Tick(10 * time.Millisecond); ; <-tick {
		state, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Since(begun) > patience {
			t.Fatalf("still running: %s", state)
		}
	}
	if p.Running() {
		t.Error("it is running")
	}
	p.Stop(syscall.SIGINT, time.Hour) //nolint:errcheck // again: nothing to wait for
}

// Stop tells how the process ended, again if it is asked again.
func TestStopTellsTheEnd(t *testing.T) {
	for script, want := range map[string]int{"trap 'exit 0' TERM": 0, "trap 'exit 3' TERM": 3} {
		p := shell(t, script+"; echo ready; while :; do sleep 0.01; done")
		says(t, p)
		if err := p.Alive(); err != nil {
			t.Error(err)
		}
		for range 2 {
			err := p.Stop(syscall.SIGTERM, patience)
			if e := new(exec.ExitError); want == 0 && err != nil || want > 0 && (!errors.As(err, &e) || e.ExitCode() != want) {
				t.Errorf("%s: %v", script, err)
			}
		}
	}
}

func TestAwaitTellsWhatTheProcessSaid(t *testing.T) {
	for _, code := range []string{"0", "1"} {
		p := shell(t, "echo no such setting; exit "+code)
		err := p.Await(t.Context(), patience, func(context.Context) error { return errors.New("connection refused") })
		if err == nil || !strings.Contains(err.Error(), "no such setting") || !strings.Contains(err.Error(), "exit status "+code) {
			t.Errorf("%v does not show the output and the end", err)
		}
		if again := p.Alive(); again == nil || again.Error() != err.Error() {
			t.Errorf("%v, want %v", again, err)
		}
	}
}

// A process that runs and does not listen is not ready, and goes on.
func TestListening(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := shell(t, "echo about to listen; sleep 1000")
	says(t, p)
	if err := p.Listening(t.Context(), patience, ln.Addr().String()); err != nil {
		t.Error(err)
	}
	ln.Close()
	err = p.Listening(t.Context(), 50*time.Millisecond, ln.Addr().String())
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "about to listen") || !p.Running() {
		t.Errorf("%v, running %v", err, p.Running())
	}
}

func TestBuildTellsWhatTheCompilerSaid(t *testing.T) {
	if err := Build(t.Context(), filepath.Join(t.TempDir(), "x"), "fencepost/no/such/program"); err == nil || !strings.Contains(err.Error(), "no/such/program") {
		t.Error(err)
	}
}
