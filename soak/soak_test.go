package soak

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also sees to it that a run leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testWriter prints a run's progress as the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// TestLoad is the soak in short: twenty seconds of mixed load with everything going wrong, and nothing that may not be.
func TestLoad(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Duration, o.Restart, o.Sabotage, o.Seed = 20*time.Second, 8*time.Second, 300*time.Millisecond, uint64(time.Now().UnixNano())
	o.Clients, o.Race, o.OutDir, o.Out = 40, raceDetector, t.TempDir(), testWriter{t}
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Queries < 1000 || rep.Present < 50 || rep.Terminated == 0 || rep.Restarts == 0 || len(rep.Samples) < 10 {
		t.Errorf("too little was done: %d queries, %d transactions committed, %d backends terminated, %d restarts, %d samples",
			rep.Queries, rep.Present, rep.Terminated, rep.Restarts, len(rep.Samples))
	}
	if _, err := os.Stat(filepath.Join(o.OutDir, "soak.json")); err != nil {
		t.Error(err)
	}
}

// TestInterrupted ends a run early, as Ctrl-C does: it comes to its end in order.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Duration, o.Restart, o.Clients, o.OutDir, o.Out = time.Hour, 0, 5, "", testWriter{t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Out = watchFor{testWriter{t}, "fencepost listens", func() { time.AfterFunc(10*time.Second, cancel) }}
	began := time.Now()
	if _, err := Run(ctx, o); !errors.Is(err, ErrInterrupted) || errors.Is(err, ErrViolations) {
		t.Errorf("got %v, wanted %v", err, ErrInterrupted)
	}
	if took := time.Since(began); took > 3*time.Minute {
		t.Errorf("it took %v to end", took)
	}
}

// watchFor calls then when a line begins with a text.
type watchFor struct {
	testWriter
	text string
	then func()
}

func (w watchFor) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), w.text) {
		w.then()
	}
	return w.testWriter.Write(p)
}

func TestOptionsAreChecked(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Duration = time.Second },
		func(o *Options) { o.Clients = 0 },
		func(o *Options) { o.Loops = 0 },
		func(o *Options) { o.Sabotage = -1 },
		func(o *Options) { o.Progress = 0 },
		func(o *Options) { o.Binary, o.Race = "x", true },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("accepted: %+v", o)
		}
	}
}
