package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errUsage: the flag package has already said what is wrong with the command line.
var errUsage = errors.New("usage")

// options are what a run is told. The defaults are those of a full run, or with -quick (or QUICK=1 in the
// environment) those of one that ends within five minutes; what the command line says else holds in both.
type options struct {
	rounds   int
	seconds  int
	modes    []string
	clients  []int
	churn    int // clients that reconnect for each transaction; 0 leaves the cell out
	threads  int // of pgbench
	pool     int
	scale    int
	sampling float64 // share of the transactions whose latency pgbench logs

	arms      []string
	pgbouncer string // path; empty: the machine's own or Debian's newest
	other     string // path of a second Fencepost binary, the arm "other"
	hostRole  string // role of the PostgreSQL host in Fencepost's settings
	fifo      bool

	idle     int // clients of the memory measurement, 0 leaves it out
	leak     int // connections of the leak check, 0 leaves it out
	counters int // seconds of the syscall and allocation run, 0 leaves it out

	budget  time.Duration
	out     string // folder of the results
	pgbench string // path of pgbench; empty: the one of the machine
	strict  bool
}

const (
	armPgBouncer   = "pgbouncer"
	armPgBouncerAA = "pgbouncer-aa"
	armFencepost   = "fencepost"
	armFencepostAA = "fencepost-aa"
	armLoops2      = "fencepost-loops2"
	armAuto        = "fencepost-auto"   // the host has the role auto: monitor, proofs
	armAlways      = "fencepost-always" // … and every checkout is fenced
	armOther       = "other"
	armDirect      = "direct"
)

var knownArms = []string{armPgBouncer, armPgBouncerAA, armFencepost, armFencepostAA, armLoops2, armAuto, armAlways, armOther, armDirect}

func parseOptions(args []string, getenv func(string) string) (options, error) {
	var o options
	quick := getenv("QUICK") != "" && getenv("QUICK") != "0" || slices.ContainsFunc(args, func(a string) bool {
		return a == "-quick" || a == "--quick"
	})
	pick := func(full, small int) int {
		if quick {
			return small
		}
		return full
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Bool("quick", quick, "smaller defaults, for a run of less than five minutes (environment QUICK)")
	fs.IntVar(&o.rounds, "rounds", pick(7, 3), "rounds; in each, every arm runs once per cell; 0: only memory, leaks")
	fs.IntVar(&o.seconds, "seconds", pick(5, 1), "seconds of one measurement")
	modes := fs.String("modes", "simple,extended", "pgbench query modes: simple, extended, prepared")
	clients := fs.String("clients", "1,16,64,500", "client counts")
	fs.IntVar(&o.churn, "churn", 8, "clients that reconnect for every transaction; 0: no such cell")
	fs.IntVar(&o.threads, "threads", 1, "threads of pgbench")
	fs.IntVar(&o.pool, "pool", 16, "server connections of each pooler")
	fs.IntVar(&o.scale, "scale", 10, "scale factor of the pgbench tables")
	fs.Float64Var(&o.sampling, "sampling", 0.2, "share of the transactions whose latency is logged (0 < share <= 1)")
	arms := fs.String("arms", "", "arms, comma-separated, of "+strings.Join(knownArms, ", ")+
		" (default pgbouncer,fencepost,fencepost-aa,direct, and other where FENCEPOST is set)")
	fs.StringVar(&o.pgbouncer, "pgbouncer", getenv("PGBOUNCER"), "PgBouncer binary (environment PGBOUNCER)")
	fs.StringVar(&o.other, "fencepost", getenv("FENCEPOST"), "a second Fencepost binary for the arm other, as in before and after (environment FENCEPOST)")
	fs.StringVar(&o.hostRole, "role", "any", "role of the PostgreSQL host in Fencepost's settings")
	fs.BoolVar(&o.fifo, "fifo", false, "run the poolers under SCHED_FIFO, so that all of them get the CPU as soon as they wake")
	fs.IntVar(&o.idle, "idle", 10000, "idle clients of the memory measurement; 0: none")
	fs.IntVar(&o.leak, "leak", 10000, "connections of the leak check; 0: none")
	fs.IntVar(&o.counters, "counters", pick(4, 2), "seconds of each run that counts syscalls and allocations; 0: none")
	fs.DurationVar(&o.budget, "budget", time.Duration(pick(90, 5))*time.Minute, "this long after its preparations the run stops and reports what it has")
	fs.StringVar(&o.out, "out", "out", "folder for bench.json and bench.md")
	fs.StringVar(&o.pgbench, "pgbench", "", "pgbench binary (default the machine's)")
	fs.BoolVar(&o.strict, "strict", false, "exit with 2 when a figure is missed")
	if err := fs.Parse(args); err != nil {
		return options{}, errUsage
	}
	o.modes, o.arms = list(*modes), list(*arms)
	if len(o.arms) == 0 {
		o.arms = []string{armPgBouncer, armFencepost, armFencepostAA, armDirect}
		if o.other != "" {
			o.arms = append(o.arms, armOther)
		}
	}
	for _, s := range list(*clients) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return options{}, fmt.Errorf("-clients: %q is not a number of clients", s)
		}
		o.clients = append(o.clients, n)
	}
	return o, o.validate()
}

func (o options) validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(o.rounds >= 0, "-rounds %d: not negative", o.rounds)
	require(o.seconds >= 1, "-seconds %d: at least 1", o.seconds)
	require(o.pool >= 1, "-pool %d: at least 1", o.pool)
	require(o.scale >= 1, "-scale %d: at least 1", o.scale)
	require(o.threads >= 1, "-threads %d: at least 1", o.threads)
	require(o.sampling > 0 && o.sampling <= 1, "-sampling %g: above 0, at most 1", o.sampling)
	require(o.churn >= 0 && o.idle >= 0 && o.leak >= 0 && o.counters >= 0, "-churn, -idle, -leak, -counters: not negative")
	for _, m := range o.modes {
		require(slices.Contains([]string{"simple", "extended", "prepared"}, m), "-modes: %q is not a query mode of pgbench", m)
	}
	for i, a := range o.arms {
		require(slices.Contains(knownArms, a), "-arms: %q is none of %s", a, strings.Join(knownArms, ", "))
		require(!slices.Contains(o.arms[:i], a), "-arms: %q is named twice", a)
	}
	require(!slices.Contains(o.arms, armOther) || o.other != "", "-arms: the arm other needs -fencepost or the environment variable FENCEPOST")
	return errors.Join(errs...)
}

// directClients is the largest client count at which the arm direct is measured: hundreds of server processes take
// PostgreSQL longer to start than the measurement lasts, and tell nothing about a pooler.
const directClients = 100

// measures reports whether an arm takes part in a cell.
func measures(arm string, c cell) bool { return arm != armDirect || c.Clients <= directClients }

// maxClients is the largest number of clients any cell of the run uses.
func (o options) maxClients() int { return max(slices.Max(append(o.clients, 0)), o.churn) }

func list(s string) []string {
	var out []string
	for _, f := range strings.Split(s, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}
