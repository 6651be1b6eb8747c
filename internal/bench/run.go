package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/program"
)

// errMissed ends a run under -strict of which a figure was missed.
var errMissed = errors.New("a figure was missed")

// bench does a whole run. What it started it has stopped when it returns, also when ctx ends before the run does;
// then it reports what it has and returns the cause.
func bench(ctx context.Context, opts options) error {
	begun := time.Now()
	limit := raiseDescriptorLimit()
	if need := opts.descriptors(); limit < need {
		return fmt.Errorf("%d open files are allowed for a process and %d are needed: raise the hard limit (ulimit -Hn), or lower -idle and -clients", limit, need)
	}
	rep := newReport(opts, begun)
	progress("%d rounds of %d arms in %d cells: about %s", opts.rounds, len(opts.arms), len(opts.cells()), opts.estimate())

	l := &lab{opts: opts, env: cleanEnv()}
	defer l.close()
	err := l.prepare(ctx, rep)
	ctx, cancel := context.WithTimeout(ctx, opts.budget)
	defer cancel()
	if err == nil {
		err = l.runAll(ctx, rep)
	}
	l.close()
	rep.Finished = time.Now()
	if len(rep.Samples)+len(rep.Memory)+len(rep.Leaks) > 0 {
		rep.summarize()
		err = errors.Join(err, rep.write())
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.Join(fmt.Errorf("the run was cut off after %s (-budget)", opts.budget), err)
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err == nil && opts.strict && rep.missed() > 0:
		return errMissed
	}
	return err
}

// descriptors is how many files the hungriest process of the run has open: a pooler with all its clients.
func (o options) descriptors() uint64 {
	return uint64(max(o.idle, o.maxClients()) + o.pool + 200)
}

// prepareLimit bounds building, fetching and filling tables.
const prepareLimit = 10 * time.Minute

// prepare brings up everything that the arms need.
func (l *lab) prepare(ctx context.Context, rep *report) (err error) {
	ctx, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	if l.dir, err = os.MkdirTemp("", "fencepost-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(l.dir, 0o755); err != nil { // the server account reads here too
		return err
	}
	if l.account, err = program.ServerAccount(); err != nil {
		return err
	}
	if l.opts.pgbench, err = findPgbench(l.opts.pgbench); err != nil {
		return err
	}
	if l.uses(armPgBouncer) || l.uses(armPgBouncerAA) {
		if l.pgbouncer, err = findPgBouncer(ctx, l.opts.pgbouncer, l.dir); err != nil {
			return err
		}
		rep.Versions["pgbouncer"] = l.pgbouncer.version + ", " + l.pgbouncer.source
	}
	if l.uses(armFencepost) || l.uses(armFencepostAA) || l.uses(armLoops2) || l.uses(armAuto) || l.uses(armAlways) {
		progress("building fencepost")
		l.fencepost = filepath.Join(l.dir, "fencepost")
		if err := program.Build(ctx, l.fencepost, "fencepost/cmd/fencepost"); err != nil {
			return err
		}
		rep.Versions["fencepost"] = versionOf(l.fencepost, "version")
	}
	if l.uses(armOther) {
		rep.Versions[armOther] = versionOf(l.opts.other, "version") + " (" + filepath.Base(l.opts.other) + ")"
	}
	rep.Versions["pgbench"] = versionOf(l.opts.pgbench, "--version")
	return l.startServer(ctx, rep)
}

func (l *lab) uses(arm string) bool { return slices.Contains(l.opts.arms, arm) }

// startServer starts PostgreSQL and fills pgbench's tables, which then fit into its buffers.
func (l *lab) startServer(ctx context.Context, rep *report) error {
	progress("starting PostgreSQL and filling pgbench's tables (scale %d)", l.opts.scale)
	connections := min(l.opts.maxClients(), directClients) + (len(l.opts.arms)+1)*l.opts.pool + 50
	cluster, err := pgcluster.Start(ctx, pgcluster.Options{
		Databases: []string{database},
		Conf: map[string]string{
			"max_connections":    strconv.Itoa(connections),
			"shared_buffers":     "512MB",
			"autovacuum":         "off", // nothing is written while it is measured
			"checkpoint_timeout": "1h",
			"max_wal_size":       "4GB",
			"wal_level":          "minimal",
			"max_wal_senders":    "0",
		},
	})
	if err != nil {
		return err
	}
	l.cluster = cluster
	primary := cluster.Primary()
	l.server = primary.Addr()
	host, port := primary.Host, strconv.Itoa(primary.Port)
	cmd := exec.CommandContext(ctx, l.opts.pgbench, "-h", host, "-p", port, "-U", role, "--initialize", "--quiet",
		"--scale="+strconv.Itoa(l.opts.scale), database)
	cmd.Env = l.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgbench --initialize: %w: %s", err, lastLines(string(out), 3))
	}
	var version string
	if err := primary.QueryRow(ctx, "SHOW server_version", &version); err != nil {
		return err
	}
	rep.Versions["postgresql"] = version
	return primary.Exec(ctx, "CHECKPOINT")
}

// close stops the server and removes the working folder; it may be called again.
func (l *lab) close() {
	if l.cluster != nil {
		if err := l.cluster.Stop(); err != nil {
			progress("stop PostgreSQL: %v", err)
		}
		l.cluster = nil
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
		l.dir = ""
	}
}

// findPgbench is the given path, or the machine's pgbench, which Debian also keeps outside of PATH.
func findPgbench(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	if p, err := exec.LookPath("pgbench"); err == nil {
		return p, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(found) == 0 {
		return "", errors.New("pgbench is not installed (Debian: apt-get install postgresql-contrib postgresql-client), or say -pgbench path")
	}
	return found[len(found)-1], nil
}

// runAll does all measurements: first those that take a fresh process each, then the rounds.
func (l *lab) runAll(ctx context.Context, rep *report) error {
	if err := l.runMemory(ctx, rep); err != nil {
		return err
	}
	if l.opts.rounds == 0 {
		return nil
	}
	poolers := map[string]*pooler{}
	defer func() {
		for _, p := range poolers {
			p.stop()
		}
	}()
	for _, arm := range l.opts.arms {
		p, err := l.start(ctx, arm)
		if err != nil {
			return err
		}
		poolers[arm] = p
		if err := fillPool(ctx, p.addr, l.opts.pool); err != nil {
			return fmt.Errorf("warm up %s: %w", arm, err)
		}
	}
	if err := l.runCounters(ctx, rep, poolers); err != nil {
		return err
	}
	return l.runRounds(ctx, rep, poolers)
}

// runMemory measures the idle clients of PgBouncer and Fencepost, and looks for what clients leave behind. What fails
// is a line of the report, not the end of the run.
func (l *lab) runMemory(ctx context.Context, rep *report) error {
	if l.opts.idle > 0 {
		for _, arm := range []string{armPgBouncer, armFencepost, armOther} {
			if !l.uses(arm) {
				continue
			}
			progress("%d idle clients on %s", l.opts.idle, arm)
			m, err := l.measureMemory(ctx, arm, l.opts.idle)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				m.Error = err.Error()
				progress("  failed: %v", err)
			} else {
				progress("  %.2f KiB for each", m.PerClient/kb)
			}
			rep.Memory = append(rep.Memory, m)
		}
	}
	for _, arm := range []string{armFencepost, armOther} {
		if l.opts.leak == 0 || !l.uses(arm) {
			continue
		}
		progress("%d connections to %s, then what is left of them", l.opts.leak, arm)
		r, err := l.checkLeak(ctx, arm, l.opts.leak)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Error = err.Error()
			progress("  failed: %v", err)
		} else {
			progress("  before %+v, after %+v", r.Before, r.After)
		}
		rep.Leaks = append(rep.Leaks, r)
	}
	return nil
}

// runCounters counts syscalls and allocations; a count that fails is a note in the table, not the end of the run.
func (l *lab) runCounters(ctx context.Context, rep *report, poolers map[string]*pooler) error {
	if l.opts.counters == 0 {
		return nil
	}
	for _, c := range counterCells {
		for _, arm := range []string{armPgBouncer, armFencepost, armOther} {
			p := poolers[arm]
			if p == nil {
				continue
			}
			r, err := l.count(ctx, p, c, time.Duration(l.opts.counters)*time.Second)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r = countResult{cell: c, Arm: arm, Syscalls: -1, Allocations: -1, Why: err.Error()}
			}
			progress("%-16s %-16s %s syscalls/tx, %s allocations/tx", c, arm, count(r.Syscalls, 1), count(r.Allocations, 3))
			rep.Counts = append(rep.Counts, r)
		}
	}
	return nil
}

// runRounds does the rounds: in each, every cell, and in a cell every arm once.
func (l *lab) runRounds(ctx context.Context, rep *report, poolers map[string]*pooler) error {
	for round := range l.opts.rounds {
		for ci, c := range l.opts.cells() {
			for pos, arm := range order(l.opts.arms, round, ci) {
				if !measures(arm, c) {
					continue
				}
				s, err := l.measure(ctx, poolers[arm], c)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				s.Round, s.Position = round, pos
				outcome := fmt.Sprintf("%7.0f tps  p99 %7.2f ms", s.TPS, s.P99)
				if err != nil {
					s.Error = err.Error()
					outcome = "failed: " + s.Error
				} else if arm != armDirect {
					outcome += fmt.Sprintf("  CPU %6.1f us/tx", s.CPU)
				}
				progress("round %d/%d  %-16s %-16s %s", round+1, l.opts.rounds, c, arm, outcome)
				rep.Samples = append(rep.Samples, s)
			}
		}
	}
	return nil
}
