package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fencepost/internal/poll"
)

// counterCells are the loads under which syscalls and allocations are counted.
var counterCells = []cell{{Mode: "simple", Clients: 16}, {Mode: "simple", Clients: 64}, {Mode: "extended", Clients: 64}}

// countResult is what one transaction costs in steady state. Fields are -1 where they could not be counted.
type countResult struct {
	cell
	Arm         string             `json:"arm"`
	Syscalls    float64            `json:"syscalls_per_tx"`
	ByName      map[string]float64 `json:"syscalls_by_name,omitempty"`
	Allocations float64            `json:"allocations_per_tx"` // Fencepost's heap objects, net of what Background names
	Background  float64            `json:"allocations_per_second_idle"`
	Why         string             `json:"not_counted,omitempty"`
}

// count runs a load of its own, since counting costs the pooler time, and looks at the middle of it: all clients are
// logged in, and none has left.
func (l *lab) count(ctx context.Context, p *pooler, c cell, window time.Duration) (countResult, error) {
	const settle = time.Second
	r := countResult{cell: c, Arm: p.arm, Syscalls: -1, Allocations: -1}
	var idle mallocs
	if p.fencepost != nil {
		var err error
		if idle, err = p.idleMallocs(ctx); err != nil {
			return r, err
		}
		r.Background = idle.perSecond
	}
	type loaded struct {
		res loadResult
		err error
	}
	done := make(chan loaded, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with pgbench, at the latest when ctx ends
		ld := load{cell: c, addr: p.addr, seconds: int((window + 2*settle).Seconds()), threads: l.opts.threads, sampling: 1}
		res, err := l.runPgbench(ctx, ld)
		done <- loaded{res, err}
	}()
	if err := poll.For(ctx, settle); err != nil {
		return r, err
	}
	w, err := p.watch(ctx, window)
	if err != nil {
		return r, err
	}
	ld := <-done
	if ld.err != nil {
		return r, ld.err
	}
	tx := float64(ld.res.endedBetween(w.from, w.to))
	if tx == 0 || ld.res.first.After(w.from) || ld.res.last.Before(w.to) {
		return r, errors.New("the load did not run all through the time of counting")
	}
	if w.traceErr != nil {
		r.Why = w.traceErr.Error()
	} else {
		r.Syscalls, r.ByName = float64(w.all)/tx, map[string]float64{}
		for name, n := range w.byName {
			if share := float64(n) / tx; share >= 0.05 {
				r.ByName[name] = share
			}
		}
	}
	if p.fencepost != nil {
		n := w.mallocs - idle.perFetch - idle.perSecond*w.to.Sub(w.from).Seconds()
		r.Allocations = max(0, n/tx)
	}
	return r, nil
}

// watched is what a pooler did between two moments.
type watched struct {
	from, to time.Time
	all      uint64
	byName   map[string]uint64
	traceErr error // why no syscalls were counted
	mallocs  float64
}

func (p *pooler) watch(ctx context.Context, window time.Duration) (watched, error) {
	var w watched
	var m0 float64
	var err error
	if p.fencepost != nil {
		if m0, err = p.mallocs(ctx); err != nil {
			return w, err
		}
	}
	tr, err := traceSyscalls(p.pid())
	if err != nil {
		w.traceErr = err
	} else {
		defer tr.close()
	}
	w.from = time.Now()
	if err := poll.For(ctx, window); err != nil {
		return w, err
	}
	w.to = time.Now()
	if tr != nil {
		w.all, w.byName = tr.read()
	}
	if p.fencepost != nil {
		m1, err := p.mallocs(ctx)
		if err != nil {
			return w, err
		}
		w.mallocs = m1 - m0
	}
	return w, nil
}

// mallocs of a process without load: what asking for the number costs, and what the process does by itself.
type mallocs struct{ perFetch, perSecond float64 }

func (p *pooler) mallocs(ctx context.Context) (float64, error) {
	m, err := p.fencepost.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	v := m.Sum(metricMallocs)
	if !m.Has(metricMallocs) {
		return 0, fmt.Errorf("/metrics of %s has no %s", p.arm, metricMallocs)
	}
	return v, nil
}

func (p *pooler) idleMallocs(ctx context.Context) (mallocs, error) {
	var at [4]float64
	for i := range at {
		if i == len(at)-1 {
			if err := poll.For(ctx, time.Second); err != nil {
				return mallocs{}, err
			}
		}
		var err error
		if at[i], err = p.mallocs(ctx); err != nil {
			return mallocs{}, err
		}
	}
	perFetch := at[2] - at[1] // the first fetch may still set things up
	return mallocs{perFetch: perFetch, perSecond: max(0, at[3]-at[2]-perFetch)}, nil
}

// tracer counts a process's system calls with the kernel's own counters, which cost the process little.
type tracer struct {
	all    []int // descriptors of perf events, one per thread
	byName map[string][]int
}

// tracedSyscalls are those a pooler may use on its way; the rest only shows in the sum.
var tracedSyscalls = []string{"sendto", "recvfrom", "read", "write", "writev", "epoll_wait", "epoll_pwait", "epoll_ctl",
	"futex", "nanosleep", "io_uring_enter"}

// traceSyscalls starts counting for all threads of a process, and those they start. It needs root and tracefs.
func traceSyscalls(pid int) (*tracer, error) {
	t := &tracer{byName: map[string][]int{}}
	all, err := tracepoint("raw_syscalls/sys_enter")
	if err != nil {
		return nil, err
	}
	for _, tid := range threads(pid) {
		fd, err := openCounter(all, tid)
		if err != nil {
			t.close()
			return nil, err
		}
		t.all = append(t.all, fd)
		for _, name := range tracedSyscalls {
			id, err := tracepoint("syscalls/sys_enter_" + name)
			if err != nil {
				continue // this kernel does not have it
			}
			if fd, err := openCounter(id, tid); err == nil {
				t.byName[name] = append(t.byName[name], fd)
			}
		}
	}
	return t, nil
}

// tracepoint is the kernel's number for an event.
func tracepoint(name string) (uint64, error) {
	const tracefs = "/sys/kernel/tracing"
	read := func() ([]byte, error) { return os.ReadFile(filepath.Join(tracefs, "events", name, "id")) }
	b, err := read()
	if errors.Is(err, fs.ErrNotExist) {
		// Not mounted, perhaps. perf mounts it in the same way.
		if entries, _ := os.ReadDir(tracefs); len(entries) == 0 && unix.Mount("tracefs", tracefs, "tracefs", 0, "") == nil {
			b, err = read()
		}
	}
	if err != nil {
		return 0, fmt.Errorf("count system calls: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

func openCounter(id uint64, tid int) (int, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("count system calls of thread %d: %w", tid, err)
	}
	return fd, nil
}

func (t *tracer) read() (all uint64, byName map[string]uint64) {
	sum := func(fds []int) (n uint64) {
		for _, fd := range fds {
			var b [8]byte
			if k, err := unix.Read(fd, b[:]); err == nil && k == len(b) {
				n += binary.NativeEndian.Uint64(b[:])
			}
		}
		return n
	}
	byName = map[string]uint64{}
	for name, fds := range t.byName {
		byName[name] = sum(fds)
	}
	return sum(t.all), byName
}

func (t *tracer) close() {
	for _, fd := range t.all {
		_ = unix.Close(fd)
	}
	for _, fds := range t.byName {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// composition lists the system calls of a result, the most frequent first.
func (r countResult) composition() string {
	names := make([]string, 0, len(r.ByName))
	for name := range r.ByName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(r.ByName[b], r.ByName[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%.1f %s", r.ByName[name], name))
	}
	return strings.Join(parts, ", ")
}
