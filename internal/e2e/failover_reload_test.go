package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Hosts come, go and change places while clients write and read: no client notices, no server connection to the primary
// is replaced, the primary and its epoch stay.
func TestReloadHosts(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 2})
	primary, one, two := g.nodes[0], g.nodes[1], g.nodes[2]
	g.elects(primary, "healthy")
	g.notes(one.Addr(), "reads=yes")
	g.notes(two.Addr(), "reads=yes")
	stays := mustLogin(t, g.session())
	pid, err := stays.query("SELECT pg_backend_pid()")
	g.must(err)
	w := g.startWriters("transaction", 2)
	reader := mustLogin(t, g.transaction(), "options", "-c fencepost.target=prefer-standby")
	epoch := g.shard()["epoch"]
	for _, list := range []string{hosts(two, one, primary), hosts(primary, two), hosts(primary), hosts(one, primary), hosts(two, primary, one)} {
		g.pooler.rewrite(t, func(text string) string { return replaceLine(text, "hosts", list) })
		g.command("RELOAD")
		g.must(poll(patience, func() (bool, error) {
			if _, err := reader.where(false); err != nil {
				return false, fmt.Errorf("a reader, after %s: %w", list, err)
			}
			rows := g.rows("SHOW REPLICATION")
			for _, r := range rows {
				if !strings.Contains(list, r["host"]) || r["role"] == "unknown" {
					return false, nil
				}
			}
			return len(rows) == strings.Count(list, ":"), nil
		}))
		w.all("reload with "+list, time.Now(), primary)
	}
	if row := g.shard(); row["epoch"] != epoch || row["state"] != "healthy" {
		t.Errorf("after the reloads: %v, the epoch was %s\n%s", row, epoch, g.said())
	}
	if got, err := stays.query("SELECT pg_backend_pid()"); err != nil || got != pid {
		t.Errorf("a session's server process was %s and is %s, %v", pid, got, err)
	}
	stays.close()
	reader.close()
	w.verdict("")
	g.none()
}

// With fence = always each write is fenced, with off none, with auto those in doubt; all of them follow a failover.
func TestFenceModes(t *testing.T) {
	t.Parallel()
	sections := ""
	modes := []string{"always", "auto", "off"}
	for _, m := range modes {
		sections += fmt.Sprintf("[databases.%[1]s]\nshard = \"main\"\ndbname = \"e2e\"\nfence = %[1]q\n", m)
	}
	g := newGroup(t, front{standbys: 1, sections: sections})
	g.elects(g.nodes[0], "healthy")
	const writes = 20
	round := func() {
		t.Helper()
		for _, m := range modes {
			c := mustLogin(t, g.mode(m))
			for range writes {
				if got, err := c.where(true); err != nil || got != fmt.Sprint(g.node.Port) {
					t.Errorf("fence = %s: %s, %v", m, got, err)
				}
			}
			c.close()
		}
	}
	round()
	before := g.fences()
	if before["always"] < writes || before["off"] != 0 || before["auto"] >= writes {
		t.Errorf("fences after %d writes each: %v", writes, before)
	}
	g.must(g.nodes[0].Kill())
	g.promote(g.nodes[1])
	round()
	after := g.fences()
	if after["always"]-before["always"] < writes || after["off"] != 0 {
		t.Errorf("fences after a failover: %v, before it %v", after, before)
	}
	t.Logf("fences: %v, and after a failover %v", before, after)
	g.none()
}

// fences counts the fences that said yes, by database.
func (g *group) fences() map[string]float64 {
	g.t.Helper()
	m, err := g.pooler.Metrics(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	return m.By("fencepost_pool_fences_total", "database", `verdict="ok"`)
}
