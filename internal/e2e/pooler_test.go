package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"fencepost/internal/pgcluster"
	waiting "fencepost/internal/poll"
	"fencepost/internal/product"
)

// pooler is a running Fencepost process.
type pooler struct {
	*product.Fencepost
	addr string
}

// settings are a settings file without what differs in each run. Lines go into [fencepost], Sections behind everything.
type settings struct {
	host     string // of the only shard, with the role any
	shard    string // instead of host: the lines of [shards.main]
	dbname   string // of the databases session, transaction and statement, which have the pool mode of their name
	lines    []string
	sections string
	files    int // limit of open files; 0 for ours
}

func (s settings) data(t testing.TB) product.Settings {
	t.Helper()
	all := product.Settings{
		"fencepost": {"auth_type": "trust", "admin_users": []string{"ops"}, "log_connections": false, "log_disconnections": false},
		"shards":    {},
		"databases": {"missing": product.Section{"shard": "main", "dbname": "this database does not exist"}},
		"users": {appUser: product.Section{"password": appPassword}, anyUser: product.Section{"password": "any"},
			"ops": product.Section{"password": "ops"}},
	}
	if s.shard == "" {
		all["shards"]["main"] = product.Section{"hosts": product.AnyRole(s.host)}
	}
	for _, mode := range []string{"session", "transaction", "statement"} {
		all["databases"][mode] = product.Section{"shard": "main", "dbname": s.dbname, "pool_mode": mode}
	}
	for _, text := range []string{"[fencepost]\n" + strings.Join(s.lines, "\n"), "[shards.main]\n" + s.shard, s.sections} {
		if err := all.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// startPooler starts Fencepost, and ends it and looks at its log when the test ends. An error line in the log fails the
// test, unless the test has said with Tolerate that it brings it about.
func startPooler(t testing.TB, s settings) *pooler {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(workDir, "pooler-")
	if err != nil {
		t.Fatal(err)
	}
	c := product.Config{Program: path, Dir: dir, Settings: s.data(t)}
	if s.files > 0 {
		c.Run = func(argv ...string) []string {
			return append([]string{"prlimit", fmt.Sprintf("--nofile=%d", s.files)}, argv...)
		}
	}
	f, err := product.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{f, f.Addr}
	t.Cleanup(func() { p.end(t) })
	return p
}

// freeAddr is an address for a listener that is opened at once.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, _, err := pgcluster.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// end stops the process as an operator would, and looks at how it ended and at its log.
func (p *pooler) end(t testing.TB) {
	t.Helper()
	if err := p.End(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Log(p.LogEnd())
	}
}

// residentKiB is the process's resident memory.
func (p *pooler) residentKiB(t testing.TB) int {
	t.Helper()
	return int(p.status(t).VmRSS >> 10)
}

func (p *pooler) status(t testing.TB) procfs.ProcStatus {
	t.Helper()
	proc, err := procfs.NewProc(p.Process().PID())
	if err != nil {
		t.Fatal(err)
	}
	s, err := proc.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// busy is the processor time the process has used.
func (p *pooler) busy(t testing.TB) time.Duration {
	t.Helper()
	proc, err := procfs.NewProc(p.Process().PID())
	if err != nil {
		t.Fatal(err)
	}
	s, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(s.CPUTime() * float64(time.Second))
}

// poll calls ready every few milliseconds until it reports true or an error, or limit is over.
func poll(limit time.Duration, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := waiting.Until(ctx, 10*time.Millisecond, ready)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not within %s: %w", limit, err)
	}
	return err
}

// rewrite changes the settings file.
func (p *pooler) rewrite(t testing.TB, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(p.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Rewrite(change(string(b))); err != nil {
		t.Fatal(err)
	}
}

// replaceLine replaces the line of a key.
func replaceLine(text, key, line string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, key+" =") {
			lines[i] = line
		}
	}
	return strings.Join(lines, "\n")
}
