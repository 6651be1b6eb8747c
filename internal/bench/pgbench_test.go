package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const summary = `pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 10
query mode: simple
number of clients: 16
number of threads: 1
maximum number of tries: 1
duration: 1 s
number of transactions actually processed: 16350
number of failed transactions: 0 (0.000%)
latency average = 0.970 ms
initial connection time = 12.345 ms
tps = 16499.123456 (without initial connection time)
`

func TestParsePgbench(t *testing.T) {
	r, err := parsePgbench(summary, "")
	if err != nil || r.transactions != 16350 || r.tps != 16499.123456 {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, in := range map[string][2]string{
		"a client that was aborted":  {summary, "pgbench: error: client 3 aborted in command 1 of script 0"},
		"failed transactions":        {strings.Replace(summary, "failed transactions: 0", "failed transactions: 7", 1), ""},
		"no transaction":             {strings.Replace(summary, "processed: 16350", "processed: 0", 1), ""},
		"a summary that is cut off":  {summary[:100], ""},
		"an error before the result": {"", "pgbench: error: connection to server failed"},
	} {
		if r, err := parsePgbench(in[0], in[1]); err == nil {
			t.Errorf("%s: taken as a result: %+v", name, r)
		}
	}
}

func TestReadLogs(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "tx.1"), filepath.Join(dir, "tx.1.1")
	write(t, a, "0 1 900 0 1700000000 001000\n0 2 100 0 1700000000 500000\n")
	write(t, b, "1 1 300 0 1700000000 250000\n")
	var r loadResult
	if err := r.readLogs([]string{a, b}); err != nil {
		t.Fatal(err)
	}
	if got := r.last.Sub(r.first); got != 499900*time.Microsecond {
		t.Errorf("from the first begin to the last end %s, want 499.9ms", got)
	}
	if quantile(r.latencies, 0.5) != 300*time.Microsecond || quantile(r.latencies, 0.99) != 900*time.Microsecond {
		t.Errorf("latencies %v", r.latencies)
	}
	from := time.Unix(1700000000, 0)
	if n := r.endedBetween(from.Add(200*time.Millisecond), from.Add(500*time.Millisecond)); n != 1 {
		t.Errorf("%d transactions ended in [200 ms, 500 ms), want 1", n)
	}
	if err := new(loadResult).readLogs(nil); err == nil {
		t.Error("no log at all was accepted")
	}
	write(t, a, "0 1 skipped 0 1700000000 001000\n")
	if err := new(loadResult).readLogs([]string{a}); err == nil {
		t.Error("a line without a latency was accepted")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
