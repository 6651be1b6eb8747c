package standstill

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A machine that slept is noticed although Go's clock stood still.
func TestMachineSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := 10 * time.Second // before the start, not ours
		var gaps []Gap
		beats := 0
		w := Start(Options{Asleep: func() time.Duration { return slept }, Noticed: func(g Gap) { gaps = append(gaps, g) },
			Beat: func(time.Time) { beats++ }})
		time.Sleep(10*Interval + 1)
		synctest.Wait()
		if len(gaps) > 0 || beats != 10 {
			t.Fatalf("%d beats, gaps %v", beats, gaps)
		}
		slept += 3 * time.Second
		time.Sleep(3 * Interval)
		w.Stop()
		if want := []Gap{{3 * time.Second, 3 * time.Second}}; !slices.Equal(gaps, want) {
			t.Fatalf("gaps %v, not %v", gaps, want)
		}
		if n, length := w.Gaps(); n != 1 || length != 3*time.Second {
			t.Fatalf("counted %d, %v", n, length)
		}
		if beats != 12 {
			t.Fatalf("%d beats: the end of a gap is none", beats)
		}
	})
}

// What a gap sets off takes its time: it is not a gap of its own, and until it is over the process has not been seen to run.
func TestSilenceLastsUntilNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		noticed := 0
		w := Start(Options{Asleep: func() time.Duration { return slept }, Noticed: func(Gap) { noticed++; time.Sleep(5 * time.Second) }})
		time.Sleep(Interval + 1)
		synctest.Wait()
		if s := w.Silence(time.Now()); s != 1 {
			t.Fatalf("silent for %v after a beat", s)
		}
		slept = 4 * time.Second
		time.Sleep(Interval + 4*time.Second)
		synctest.Wait()
		if s := w.Silence(time.Now()); noticed != 1 || s != Interval+4*time.Second+1 {
			t.Fatalf("silent for %v while the gap is told of", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := w.Silence(time.Now()); s >= Interval {
			t.Fatalf("silent for %v afterwards", s)
		}
		time.Sleep(10 * Interval)
		synctest.Wait()
		w.Stop()
		if noticed != 1 {
			t.Fatalf("noticed %d gaps", noticed)
		}
	})
}

// A process frozen by SIGSTOP notices it at once when it goes on. The frozen one is this test, run again.
func TestFrozenProcess(t *testing.T) {
	if os.Getenv("STANDSTILL_FROZEN") != "" {
		frozen()
	}
	c := exec.Command(os.Args[0], "-test.run=^TestFrozenProcess$")
	c.Env = append(os.Environ(), "STANDSTILL_FROZEN=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill() //nolint:errcheck // it has ended if all is well
	line := make([]byte, 64)
	if _, err := out.Read(line); err != nil { // it beats
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * time.Second)
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n, err := out.Read(line)
	length, parseErr := time.ParseDuration(string(line[:n]))
	if err != nil || parseErr != nil || length < 2*time.Second || length > 10*time.Second {
		t.Fatalf("it noticed %q: %v", line[:n], err)
	}
}

// frozen says that it beats, and then each gap it notices.
func frozen() {
	first := make(chan struct{}, 1)
	gaps := make(chan Gap)
	Start(Options{Noticed: func(g Gap) { gaps <- g }, Beat: func(time.Time) {
		select {
		case first <- struct{}{}:
		default:
		}
	}})
	<-first
	os.Stdout.WriteString("beats")
	g := <-gaps
	os.Stdout.WriteString(g.Length.String())
	os.Exit(0)
}
