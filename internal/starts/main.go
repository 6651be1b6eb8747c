// Command starts starts and stops Fencepost many times under contention, each setting in turn, and watches from outside for
// a start that stands still. For each it prints what the kernel and the program said; the exit status is 1 if there was one.
//
//	go build -o fencepost ./cmd/fencepost
//	nice -n 19 go run ./internal/starts -fencepost ./fencepost -rounds 5000
//
// A start that waits for a CPU is slow too. What tells the two apart is that it goes on: a slow start is given until
// -patience, and its run and wait times of /proc/PID/task/*/schedstat are printed; one that does not go on is ended by
// SIGABRT, and the goroutines it prints then are kept. On a machine that leaves it next to nothing even that can be a lack
// of CPU: then its first thread waited for most of the time, and no goroutine is "stopping the world".
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// setting is one way to start the program.
type setting struct {
	name  string
	cores string // a list for taskset
	fifo  bool   // the settings come from a FIFO
	loops int
	env   []string
}

var settings = []setting{
	{"file, 1 core, GOMAXPROCS=1", "0", false, 1, []string{"GOMAXPROCS=1"}},
	{"fifo, 1 core, GOMAXPROCS=2", "0", true, 1, []string{"GOMAXPROCS=2"}},
	{"fifo, 2 cores, GOMAXPROCS=4", "0,1", true, 1, []string{"GOMAXPROCS=4"}},
	{"file, 2 cores, asyncpreemptoff", "0,1", false, 1, []string{"GODEBUG=asyncpreemptoff=1"}},
	{"fifo, 2 cores, GOGC=5", "0,1", true, 1, []string{"GOGC=5"}},
	{"fifo, 1 core, 2 loops", "0", true, 2, nil},
}

const text = `[fencepost]
listen_addr = ""
unix_socket_dir = "@fencepost-starts-%d-%d"
admin_http = ""
event_loops = %d
[shards.main]
hosts = ["127.0.0.1:1"]
monitor_user = "m"
monitor_password = "m"
[databases."*"]
shard = "main"
[users.app]
password = "secret"
`

// tally is what became of a setting's starts.
type tally struct {
	starts, late, still, gaps int
	worst, sum                time.Duration
}

type run struct {
	fencepost, out  string
	limit, patience time.Duration

	mu  sync.Mutex // guards all
	all []tally
}

func main() {
	r := run{all: make([]tally, len(settings))}
	flag.StringVar(&r.fencepost, "fencepost", "./fencepost", "the program")
	flag.StringVar(&r.out, "out", "out/starts", "folder for what starts that stood still printed")
	flag.DurationVar(&r.limit, "limit", 2*time.Second, "a start that takes longer is late")
	flag.DurationVar(&r.patience, "patience", 40*time.Second, "a start that takes longer stands still")
	rounds := flag.Int("rounds", 5000, "starts in each setting")
	jobs := flag.Int("jobs", 2, "starts at a time")
	flag.Parse()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		fail(err)
	}
	var w sync.WaitGroup
	for job := range *jobs {
		w.Go(func() {
			for round := job; round < *rounds; round += *jobs {
				for i := range settings {
					r.start(job, i)
				}
				if round%100 < *jobs {
					r.report()
				}
			}
		})
	}
	w.Wait()
	r.report()
	for _, t := range r.all {
		if t.still > 0 {
			os.Exit(1)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "starts:", err)
	os.Exit(1)
}

func (r *run) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%s\n%-32s %7s %8s %8s %6s %6s %6s\n", time.Now().Format(time.TimeOnly), "setting", "starts", "mean ms", "worst ms", "late", "still", "gaps")
	for i, t := range r.all {
		fmt.Printf("%-32s %7d %8d %8d %6d %6d %6d\n", settings[i].name, t.starts, t.sum.Milliseconds()/int64(max(t.starts, 1)), t.worst.Milliseconds(), t.late, t.still, t.gaps)
	}
}

// start starts the program once, waits for its listener, and ends it.
func (r *run) start(job, i int) {
	s := settings[i]
	dir, err := os.MkdirTemp("", "starts-")
	if err != nil {
		fail(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "fencepost.toml")
	content := fmt.Sprintf(text, os.Getpid(), job, s.loops)
	if s.fifo {
		err = syscall.Mkfifo(file, 0o600)
		go os.WriteFile(file, []byte(content), 0o600) // ends when the program reads, or with us
	} else {
		err = os.WriteFile(file, []byte(content), 0o600)
	}
	if err != nil {
		fail(err)
	}
	c := exec.Command("taskset", "-c", s.cores, r.fencepost, "serve", "-c", file)
	c.Env = append(append(os.Environ(), "GOTRACEBACK=all"), s.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := c.StderrPipe()
	if err != nil {
		fail(err)
	}
	began := time.Now()
	if err := c.Start(); err != nil {
		fail(err)
	}
	o := &output{listening: make(chan struct{})}
	read := make(chan struct{})
	go func() { o.read(bufio.NewScanner(stderr)); close(read) }() // ends with the program
	late, still := r.watch(c.Process.Pid, o, read, began, s)
	took := time.Since(began)
	if !still {
		err = c.Process.Signal(syscall.SIGQUIT)
	}
	<-read
	if err = errors.Join(err, c.Wait()); still || err != nil {
		name := filepath.Join(r.out, fmt.Sprintf("%d.txt", c.Process.Pid))
		fmt.Printf("%s: %v; what it printed is in %s\n", s.name, err, name)
		if err := os.WriteFile(name, []byte(strings.Join(o.lines, "\n")), 0o644); err != nil {
			fail(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.all[i]
	t.starts, t.sum, t.worst, t.gaps = t.starts+1, t.sum+took, max(t.worst, took), t.gaps+o.gaps
	if still {
		t.still++
	} else if late {
		t.late++
	}
}

// watch waits for the listener. A program that ends without one ends all: its path or its settings are wrong.
func (r *run) watch(pid int, o *output, read <-chan struct{}, began time.Time, s setting) (late, still bool) {
	ended := func() {
		fail(fmt.Errorf("%s: the program ended before it listened:\n%s", s.name, strings.Join(o.lines, "\n")))
	}
	select {
	case <-o.listening:
		return false, false
	case <-read:
		ended()
	case <-time.After(r.limit):
	}
	first := threads(pid)
	select {
	case <-read:
		ended()
	case <-o.listening:
		fmt.Printf("%s: late, %v; threads at %v: %s; now: %s\n", s.name, time.Since(began).Round(time.Millisecond), r.limit, first, threads(pid))
		return true, false
	case <-time.After(r.patience - r.limit):
	}
	fmt.Printf("%s: STANDS STILL; threads at %v: %s; at %v: %s\n", s.name, r.limit, first, r.patience, threads(pid))
	if err := syscall.Kill(pid, syscall.SIGABRT); err != nil {
		fail(err)
	}
	return true, true
}

// threads tells of each thread of a process how long it ran, how long it waited for a CPU, and where it is in the kernel.
func threads(pid int) string {
	var all []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, t := range tasks {
		stat, _ := os.ReadFile(t + "/schedstat")
		wchan, _ := os.ReadFile(t + "/wchan")
		f := strings.Fields(string(stat))
		if len(f) < 2 {
			continue // it has ended
		}
		ran, _ := strconv.ParseInt(f[0], 10, 64)
		waited, _ := strconv.ParseInt(f[1], 10, 64)
		all = append(all, fmt.Sprintf("ran %d waited %d ms %s", ran/1e6, waited/1e6, wchan))
	}
	return strings.Join(all, "; ")
}

// output is what the program prints.
type output struct {
	listening chan struct{}
	lines     []string
	gaps      int // lines that tell of a standstill it noticed itself
}

func (o *output) read(s *bufio.Scanner) {
	heard := false
	for s.Scan() {
		o.lines = append(o.lines, s.Text())
		if strings.Contains(s.Text(), `"message":"the process stood still"`) {
			o.gaps++
		}
		if !heard && strings.Contains(s.Text(), `"message":"listening"`) {
			heard = true
			close(o.listening)
		}
	}
}
