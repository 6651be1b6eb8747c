package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time all threads of a process have used, in nanoseconds. It is the process's CPU clock: the
// sum of what the threads' schedstat files show (the same counter in the kernel), plus that of the threads that
// have ended, which no file keeps.
func cpuTime(pid int) (time.Duration, error) {
	const cpuclockSched = 2 // linux/posix-timers.h: (~pid << 3) | CPUCLOCK_SCHED is the clock of a process
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuclockSched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// usage is a process's account at one moment.
type usage struct {
	user, system time.Duration // in ticks of 10 ms, ended threads included: good for the share, not for the sum
	switches     map[int]int64 // context switches by thread
}

func readUsage(pid int) (usage, error) {
	u := usage{switches: map[int]int64{}}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	stat, err := p.Stat()
	if err != nil {
		return u, err
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture Go runs on
	u.user, u.system = time.Duration(stat.UTime)*tick, time.Duration(stat.STime)*tick
	all, err := procfs.AllThreads(pid)
	for _, t := range all {
		if s, err := t.NewStatus(); err == nil { // else it has ended
			u.switches[t.PID] = int64(s.TotalCtxtSwitches())
		}
	}
	return u, err
}

// switchesSince counts context switches since earlier. Those a thread made between its last appearance and its
// end are lost, so the number of threads that ended says whether the count is a lower bound.
func (u usage) switchesSince(earlier usage) (n int64, ended int) {
	for tid, s := range u.switches {
		n += s - earlier.switches[tid]
	}
	for tid := range earlier.switches {
		if _, alive := u.switches[tid]; !alive {
			ended++
		}
	}
	return n, ended
}

func threads(pid int) (tids []int) {
	all, _ := procfs.AllThreads(pid) // of a process that has ended there are none
	for _, t := range all {
		tids = append(tids, t.PID)
	}
	return tids
}

// cpuLine records a process's CPU time along a measurement, so that the time of any moment in it can be told
// afterwards: only then is it known when pgbench's clients were connected and the transactions began.
type cpuLine struct {
	pid  int
	stop chan struct{}
	wg   sync.WaitGroup
	at   []time.Time
	used []time.Duration
}

// followCPU samples every 20 ms (one system call each) until finish.
func followCPU(pid int) *cpuLine {
	l := &cpuLine{pid: pid, stop: make(chan struct{})}
	l.sample()
	l.wg.Go(func() {
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-t.C:
				l.sample()
			}
		}
	})
	return l
}

func (l *cpuLine) sample() {
	if used, err := cpuTime(l.pid); err == nil {
		l.at, l.used = append(l.at, time.Now()), append(l.used, used)
	}
}

// finish takes the last sample. The line must not be read before.
func (l *cpuLine) finish() {
	close(l.stop)
	l.wg.Wait()
	l.sample()
}

// between is the CPU time used from one moment to another, interpolated between samples.
func (l *cpuLine) between(from, to time.Time) time.Duration {
	return l.usedAt(to) - l.usedAt(from)
}

func (l *cpuLine) usedAt(t time.Time) time.Duration {
	if len(l.at) == 0 {
		return 0
	}
	for i, at := range l.at {
		if at.Before(t) {
			continue
		}
		if i == 0 {
			return l.used[0]
		}
		span := at.Sub(l.at[i-1])
		part := float64(t.Sub(l.at[i-1])) / float64(span)
		return l.used[i-1] + time.Duration(part*float64(l.used[i]-l.used[i-1]))
	}
	return l.used[len(l.used)-1]
}

// rss is the resident memory of a process in bytes, counted page by page (VmRSS is kept per thread and may lag).
func rss(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	all, err := p.ProcSMapsRollup()
	return int64(all.Rss), err
}

// machineTime is the machine's CPU time by use, in seconds.
type machineTime struct{ busy, steal, total float64 }

func readMachineTime() machineTime {
	all, _ := proc.Stat()
	c := all.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ // guest time is part of user time
	return machineTime{busy, c.Steal, busy + c.Steal + c.Idle + c.Iowait}
}

// proc is /proc. Where there is none it says so when it is read.
var proc, _ = procfs.NewDefaultFS()

// realtime puts every thread of a process under SCHED_FIFO; threads it creates later inherit that.
func realtime(pid int) error {
	for _, tid := range threads(pid) {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
			return fmt.Errorf("SCHED_FIFO for process %d: %w", pid, err)
		}
	}
	return nil
}
