package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// extent is how much of its script a driver is to run.
type extent struct {
	full    bool // all of it, not only what every version runs
	session bool // with what lasts for a session, too
}

// A driver runs its script at a place as appUser and writes down everything that came back.
type driver struct {
	name string
	run  func(t *testing.T, at place, e extent) string
}

var drivers = []driver{{"psql", runPsql}, {"pgbench", runPgbench}, {"pgx", runPgx}, {"psycopg", runPsycopg}}

// Through Fencepost every driver gets what it gets from the server itself: in session mode all of it, in transaction mode
// what needs no session.
func TestDrivers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"12", "14", "15", "16", "17", "18"} {
		whole := version == "14" || version == "18" || full
		for _, d := range drivers {
			t.Run(d.name+" on PostgreSQL "+version, func(t *testing.T) {
				t.Parallel()
				compare(t, newLab(t, version, `auth_type = "scram-sha-256"`), d, whole)
			})
		}
	}
}

func compare(t *testing.T, l *lab, d driver, whole bool) {
	for _, mode := range []string{"session", "transaction"} {
		e := extent{full: whole, session: whole && mode == "session"}
		want := d.run(t, l.direct(), e)
		if t.Failed() {
			return
		}
		got := d.run(t, l.mode(mode), e)
		if len(want) < 300 {
			t.Errorf("the transcript is short:\n%s", want)
		}
		if got != want {
			t.Errorf("in %s mode:\n%s", mode, difference(want, got))
		}
		l.atRest()
	}
}

// difference shows the first line that differs, with what is around it.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	part := func(lines []string) string {
		return short(strings.Join(lines[max(0, min(i-5, len(lines))):min(i+10, len(lines))], "\n"))
	}
	return fmt.Sprintf("line %d\n--- direct\n%s\n--- through Fencepost\n%s", i+1, part(w), part(g))
}

// command runs a client program and returns what it prints, and whether it succeeded. The environment is ours and
// libpq's variables for the place.
func (p place) command(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8", "PGHOST="+p.host(), fmt.Sprintf("PGPORT=%d", p.port()), "PGDATABASE="+p.database,
		"PGUSER="+appUser, "PGPASSWORD="+appPassword, "PGSSLMODE=disable", "PGGSSENCMODE=disable", "PGCLIENTENCODING=UTF8")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("%s at %s hangs; so far:\n%s", name, p.name, short(string(out)))
	}
	return string(out), err
}
