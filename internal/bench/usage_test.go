package main

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fencepost/internal/product"
)

// The process's CPU clock is what the threads' schedstat files add up to, and it keeps the time of threads that ended.
func TestCPUTimeIncludesEndedThreads(t *testing.T) {
	pid := os.Getpid()
	before, err := cpuTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	const work = 60 * time.Millisecond
	ended := make(chan int)
	burn := func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for begin := threadTime(t); threadTime(t)-begin < work; {
		}
		ended <- unix.Gettid()
	}
	go burn()
	want, tid := work, <-ended
	if tid == pid { // the main thread, which Go keeps; a second goroutine gets another one
		go burn()
		want, tid = 2*work, <-ended
	}
	for slices.Contains(threads(pid), tid) {
		runtime.Gosched()
	}
	after, err := cpuTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used < want {
		t.Errorf("the clock advanced by %s, the work alone took %s", used, want)
	}
	var sum time.Duration
	for _, tid := range threads(pid) {
		sum += schedstat(t, tid)
	}
	if total, err := cpuTime(pid); err != nil || total < sum {
		t.Errorf("the clock says %s (%v), the living threads' schedstat %s", total, err, sum)
	}
}

func threadTime(t *testing.T) time.Duration { return schedstat(t, 0) }

// schedstat is the run time of a thread of this process, 0 for the calling one.
func schedstat(t *testing.T, tid int) time.Duration {
	name := "/proc/thread-self/schedstat"
	if tid != 0 {
		name = "/proc/self/task/" + strconv.Itoa(tid) + "/schedstat"
	}
	b, err := os.ReadFile(name)
	if err != nil {
		if tid != 0 {
			return 0 // ended
		}
		t.Error(err)
		return time.Hour
	}
	ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		t.Error(err)
		return time.Hour
	}
	return time.Duration(ns)
}

func TestReadUsage(t *testing.T) {
	u, err := readUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(u.switches) < 2 {
		t.Errorf("switches of %d threads, this process has more", len(u.switches))
	}
	if _, err := readUsage(1 << 30); err == nil {
		t.Error("a process that does not exist has an account")
	}
}

func TestSwitchesSince(t *testing.T) {
	before := usage{switches: map[int]int64{1: 100, 2: 50}}
	after := usage{switches: map[int]int64{1: 130, 3: 7}} // 2 ended, 3 is new
	if n, ended := after.switchesSince(before); n != 37 || ended != 1 {
		t.Errorf("%d switches, %d ended; want 37 and 1", n, ended)
	}
}

func TestCPULineInterpolates(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	l := &cpuLine{at: []time.Time{at(0), at(20), at(40)}, used: []time.Duration{0, 10, 110}}
	for _, tt := range []struct {
		from, to int
		want     time.Duration
	}{{0, 40, 110}, {20, 40, 100}, {10, 30, 55}, {-5, 50, 110}} {
		if got := l.between(at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("between %d and %d ms: %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestProcessFigures(t *testing.T) {
	pid := os.Getpid()
	if n, err := rss(pid); err != nil || n < 1<<20 {
		t.Errorf("resident memory %d, %v", n, err)
	}
	before, err := product.Descriptors(pid)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if after, err := product.Descriptors(pid); err != nil || after != before+1 {
		t.Errorf("%d descriptors after opening one more than %d (%v)", after, before, err)
	}
}
