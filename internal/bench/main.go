// Command bench measures Fencepost beside PgBouncer and beside PostgreSQL itself, and says whether the figures
// hold that the project promises. It starts everything it measures (one PostgreSQL, the poolers, pgbench), stops
// it again, and leaves a table and a JSON file.
//
// What it decides by is the CPU time of the pooler's process per transaction, as a ratio to PgBouncer within the
// same round: on a machine where the load generator, the pooler and PostgreSQL share the cores, throughput and
// latency mostly tell how the scheduler shared them out. How to read the result, and what can mislead, is in
// docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == idleClientsCommand {
		exit(idleClients(os.Args[2:], os.Stdin, os.Stdout))
	}
	opts, err := parseOptions(os.Args[1:], os.Getenv)
	if err != nil {
		exit(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	exit(bench(ctx, opts))
}

// exit ends the program: 0 without an error, 2 for a wrong command line or (-strict) a missed figure, else 1.
func exit(err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, errUsage):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	if errors.Is(err, errMissed) {
		os.Exit(2)
	}
	os.Exit(1)
}

// progress writes one line about what the run is doing. The table at the end goes to standard output alone.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
