package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// load is one start of pgbench.
type load struct {
	cell
	addr     string
	seconds  int
	threads  int
	sampling float64
}

// loadResult is what pgbench counted, and the latencies it logged.
type loadResult struct {
	transactions int64
	tps          float64
	first, last  time.Time       // begin of the first and end of the last transaction that was logged
	latencies    []time.Duration // ascending
	ends         []time.Time     // of the logged transactions, ascending
}

// runPgbench runs select-only transactions until the time is over. It fails when pgbench reports any error.
func (l *lab) runPgbench(ctx context.Context, ld load) (loadResult, error) {
	dir, err := os.MkdirTemp(l.dir, "load-")
	if err != nil {
		return loadResult{}, err
	}
	defer os.RemoveAll(dir)
	host, port, ok := strings.Cut(ld.addr, ":")
	if !ok {
		return loadResult{}, fmt.Errorf("address %q has no port", ld.addr)
	}
	args := []string{"-h", host, "-p", port, "-U", role, "--no-vacuum", "--select-only",
		"--protocol=" + ld.Mode, "--client=" + strconv.Itoa(ld.Clients), "--jobs=" + strconv.Itoa(min(ld.threads, ld.Clients)),
		"--time=" + strconv.Itoa(ld.seconds), "--log", "--log-prefix=" + filepath.Join(dir, "tx")}
	if ld.sampling < 1 {
		args = append(args, fmt.Sprintf("--sampling-rate=%g", ld.sampling))
	}
	if ld.Churn {
		args = append(args, "--connect")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(ld.seconds)*time.Second+answerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.opts.pgbench, append(args, database)...)
	cmd.Env = l.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return loadResult{}, fmt.Errorf("pgbench: %w: %s", errors.Join(err, ctx.Err()), lastLines(stderr.String(), 3))
	}
	res, err := parsePgbench(stdout.String(), stderr.String())
	if err != nil {
		return res, err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "tx.*"))
	if err != nil {
		return res, err
	}
	return res, res.readLogs(logs)
}

var (
	processedLine = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	failedLine    = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
	tpsLine       = regexp.MustCompile(`(?m)^tps = ([\d.]+)`)
	trouble       = regexp.MustCompile(`(?m)^.*(error:|FATAL|aborted|fatal:).*$`)
)

// parsePgbench reads the summary. A run in which one client failed is no measurement.
func parsePgbench(stdout, stderr string) (loadResult, error) {
	var r loadResult
	if line := trouble.FindString(stderr); line != "" {
		return r, errors.New(line)
	}
	processed, tps := processedLine.FindStringSubmatch(stdout), tpsLine.FindStringSubmatch(stdout)
	if processed == nil || tps == nil {
		return r, fmt.Errorf("pgbench printed no result: %s", lastLines(stdout+stderr, 3))
	}
	if f := failedLine.FindStringSubmatch(stdout); f != nil && f[1] != "0" {
		return r, fmt.Errorf("%s transactions failed", f[1])
	}
	r.transactions, _ = strconv.ParseInt(processed[1], 10, 64)
	r.tps, _ = strconv.ParseFloat(tps[1], 64)
	if r.transactions == 0 {
		return r, errors.New("pgbench processed no transaction")
	}
	return r, nil
}

// readLogs takes latencies and times from pgbench's transaction logs, whose lines are
// "client transaction latency_us script epoch_s us".
func (r *loadResult) readLogs(files []string) error {
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		for s.Scan() {
			f := strings.Fields(s.Text())
			if len(f) < 6 {
				return fmt.Errorf("pgbench's log has the line %q", s.Text())
			}
			var n [3]int64
			for i, field := range []string{f[2], f[4], f[5]} {
				if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
					return fmt.Errorf("pgbench's log has the line %q", s.Text())
				}
			}
			latency := time.Duration(n[0]) * time.Microsecond
			end := time.Unix(n[1], n[2]*1000)
			if begin := end.Add(-latency); r.first.IsZero() || begin.Before(r.first) {
				r.first = begin
			}
			if end.After(r.last) {
				r.last = end
			}
			r.latencies, r.ends = append(r.latencies, latency), append(r.ends, end)
		}
	}
	if len(r.latencies) == 0 {
		return errors.New("pgbench logged no transaction: raise -sampling or -seconds")
	}
	slices.Sort(r.latencies)
	slices.SortFunc(r.ends, time.Time.Compare)
	return nil
}

// endedBetween counts logged transactions that ended in [from, to): all of them where sampling is 1.
func (r *loadResult) endedBetween(from, to time.Time) int {
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(r.ends, t, time.Time.Compare)
		return i
	}
	return at(to) - at(from)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
