package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// counted are the lines of a pgbench report that do not depend on how fast it ran.
var counted = regexp.MustCompile(`(?m)^(transaction type|query mode|number of (clients|transactions|failed)|pgbench: error|pgbench: fatal|progress|ERROR).*$`)

// runPgbench fills pgbench's tables and runs its own and our scripts with the same random numbers; what the tables hold
// then is part of the transcript.
func runPgbench(t *testing.T, at place, e extent) string {
	t.Helper()
	var out strings.Builder
	bench := func(args ...string) {
		t.Helper()
		if args[0] != "-i" {
			args = append(args, "--random-seed=42")
		}
		text, err := at.command(t, nil, "pgbench", args...)
		if err != nil {
			t.Errorf("pgbench %s at %s: %v\n%s", strings.Join(args, " "), at.name, err, short(text))
		}
		fmt.Fprintln(&out, args)
		for _, line := range counted.FindAllString(text, -1) {
			fmt.Fprintln(&out, line)
		}
		fmt.Fprintln(&out, balance(t, at))
	}
	bench("-i", "-q", "-s", "1")
	if !e.full {
		bench("-n", "-c", "1", "-t", "50")
		bench("-n", "-c", "4", "-t", "20", "-M", "extended", "-f", "testdata/pgbench/mixed.sql")
		return out.String()
	}
	for _, protocol := range []string{"simple", "extended", "prepared"} {
		bench("-n", "-c", "1", "-t", "200", "-M", protocol)
		bench("-n", "-c", "8", "-j", "2", "-t", "50", "-M", protocol, "-f", "testdata/pgbench/mixed.sql")
		bench("-n", "-c", "1", "-t", "300", "-M", protocol, "-S")
		bench("-n", "-c", "2", "-t", "20", "-M", protocol, "-C", "-N")
		if protocol != "simple" {
			bench("-n", "-c", "8", "-j", "2", "-t", "50", "-M", protocol, "-f", "testdata/pgbench/pipeline.sql")
		}
	}
	return out.String()
}

// balance is what pgbench has left, without times. Several clients take their random numbers in an order of their own,
// so that the rows of concurrent runs can differ; their sums cannot.
func balance(t *testing.T, at place) string {
	t.Helper()
	conn, err := at.pgx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var s string
	err = conn.QueryRow(t.Context(), `SELECT format('%s accounts, balance %s; tellers %s; branches %s; history of %s, %s', count(*), sum(abalance),
		(SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches),
		(SELECT count(*) FROM pgbench_history), (SELECT sum(delta) FROM pgbench_history)) FROM pgbench_accounts`).Scan(&s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
