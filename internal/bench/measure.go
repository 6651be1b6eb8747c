package main

import (
	"context"
	"fmt"
	"time"
)

// sample is one measurement: one arm, one cell, one round.
type sample struct {
	cell
	Arm          string  `json:"arm"`
	Round        int     `json:"round"`    // from 0
	Position     int     `json:"position"` // in the order of its round, from 0
	Transactions int64   `json:"transactions"`
	TPS          float64 `json:"tps"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	CPU          float64 `json:"cpu_us_per_tx"` // of the pooler; 0 for direct
	User         float64 `json:"user_us_per_tx"`
	System       float64 `json:"system_us_per_tx"`
	Switches     float64 `json:"context_switches_per_tx"`
	EndedThreads int     `json:"ended_threads,omitempty"` // then Switches is a lower bound
	Busy         float64 `json:"machine_busy"`            // share of the machine's CPU time in use
	Steal        float64 `json:"machine_steal"`           // share that the hypervisor gave to others
	Error        string  `json:"error,omitempty"`         // then the figures are void
}

// measure runs one load against p.
func (l *lab) measure(ctx context.Context, p *pooler, c cell) (sample, error) {
	s := sample{cell: c, Arm: p.arm}
	ld := load{cell: c, addr: p.addr, seconds: l.opts.seconds, threads: l.opts.threads, sampling: l.opts.sampling}
	machine := readMachineTime()
	var before, after usage
	var line *cpuLine
	var err error
	if p.proc != nil {
		if before, err = readUsage(p.pid()); err != nil {
			return s, p.proc.Failed(err)
		}
		line = followCPU(p.pid())
	}
	res, loadErr := l.runPgbench(ctx, ld)
	if line != nil {
		line.finish()
		if after, err = readUsage(p.pid()); err != nil {
			return s, p.proc.Failed(err)
		}
	}
	if loadErr != nil {
		return s, loadErr
	}
	now := readMachineTime()
	if total := now.total - machine.total; total > 0 {
		s.Busy, s.Steal = (now.busy-machine.busy)/total, (now.steal-machine.steal)/total
	}
	s.Transactions, s.TPS = res.transactions, res.tps
	s.P50 = milliseconds(quantile(res.latencies, 0.5))
	s.P99 = milliseconds(quantile(res.latencies, 0.99))
	if line == nil {
		return s, nil
	}
	// The clients' logins lie before the first transaction and are not part of its price: the cell that reconnects
	// for every transaction tells theirs.
	tx := float64(res.transactions)
	s.CPU = microseconds(line.between(res.first, res.last)) / tx
	if s.CPU <= 0 {
		return s, fmt.Errorf("%s used no CPU time while %d transactions ran", p.arm, res.transactions)
	}
	user, system := float64(after.user-before.user), float64(after.system-before.system)
	if user+system > 0 {
		s.User = s.CPU * user / (user + system)
		s.System = s.CPU - s.User
	}
	switches, ended := after.switchesSince(before)
	s.Switches, s.EndedThreads = float64(switches)/tx, ended
	return s, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
