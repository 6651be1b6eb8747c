package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/internal/pgcluster"
)

// forgetHint is how an error leads an operator to FORGET.
const forgetHint = "FORGET main"

// shortWait lets writes wait no longer than a test wants to.
var shortWait = []string{`query_wait_timeout = "1s"`}

// A standby that is promoted by hand beside the living primary gets the writes, for it is on the higher timeline. When it
// is withdrawn the primary is not trusted again by itself; FORGET says that it is right.
func TestPromotedCopyAndForget(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 2, lines: shortWait})
	primary, copied, standby := g.nodes[0], g.nodes[1], g.nodes[2]
	g.elects(primary, "healthy")
	w := g.startWriters("transaction", 1)
	w.all("promoted copy", g.promote(copied), copied)
	g.elects(copied, "healthy")
	g.notes(primary.Addr(), "role=writable", "note=timeline")
	g.writes(copied)
	w.verdict(lossCodes)

	g.must(copied.Stop(t.Context(), pgcluster.Fast))
	g.elects(nil, "unhealthy failover")
	g.noPrimary(forgetHint, primary.Addr())
	if row := g.shard(); !strings.Contains(row["hint"], forgetHint) || row["floor"] != "2" {
		t.Errorf("SHOW SHARDS: %v", row)
	}
	g.reads("standby", standby)
	g.forget("1")
	g.elects(primary, "healthy")
	g.node = primary
	g.writes(primary)
	g.reads("standby", standby)
	if row := g.shard(); row["floor"] != "1" || row["generation"] != "1" || row["hint"] != "NULL" {
		t.Errorf("SHOW SHARDS: %v", row)
	}
	g.none()
}

// forget runs the documented command; the notice names the new generation.
func (g *group) forget(generation string) {
	g.t.Helper()
	c := g.console()
	defer c.close()
	got, err := c.exchange(1, query(forgetHint))
	check(g.t, forgetHint, got, err, "N[shard main forgot its system identifier and its floor; its generation is "+generation+"] C[FORGET] Z[I]")
}

// Two standbys that were both promoted are two writers on one timeline: on_two_writers says whether the one that sits
// keeps the writes or nobody gets any, until it is settled.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"sitting", "refuse"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, front{standbys: 2, lines: shortWait, shard: []string{fmt.Sprintf("on_two_writers = %q", policy)}})
			primary, one, two := g.nodes[0], g.nodes[1], g.nodes[2]
			g.elects(primary, "healthy")
			g.must(primary.Kill())
			g.promote(one)
			g.elects(one, "healthy")
			g.writes(one)
			g.promote(two)
			g.notes(two.Addr(), "read_only=no", "timeline=2")
			if policy == "refuse" {
				g.elects(nil, "healthy unhealthy failover")
				g.noPrimary("Stop or demote all but one of the writable servers")
				g.must(two.Stop(t.Context(), pgcluster.Fast))
			} else {
				for range 5 {
					g.writes(one)
				}
				g.notes(two.Addr(), "role=writable")
			}
			g.elects(one, "healthy")
			g.writes(one)
			g.logs("are writable on timeline 2")
		})
	}
}

// With a state_file a primary that was left behind stays known as such over a restart of Fencepost: it gets no write even
// while it is the only server that takes any.
func TestStateFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "main.state")
	g := newGroup(t, front{standbys: 1, lines: shortWait, shard: []string{fmt.Sprintf("state_file = %q", file)}})
	old, next := g.nodes[0], g.nodes[1]
	g.elects(old, "healthy")
	g.must(old.Freeze())
	g.promote(next)
	g.elects(next, "healthy")
	g.writes(next)
	g.must(next.Stop(t.Context(), pgcluster.Fast))
	g.pooler.end(t)
	g.must(old.Thaw())
	g.pooler = startPooler(t, g.settings)
	g.loginRefused(forgetHint, old.Addr())
	g.unserved("any")
	if row := g.shard(); row["floor"] != "2" || !strings.Contains(row["hint"], forgetHint) {
		t.Errorf("SHOW SHARDS: %v", row)
	}
	g.must(next.Start(t.Context()))
	g.elects(next, "healthy")
	g.writes(next)
	if n := g.written(old); n != "0" {
		t.Errorf("%s writes went to the server that was left behind", n)
	}
	g.none()
}

// unserved checks that nobody is there for a target's reads.
func (g *group) unserved(target string) {
	g.t.Helper()
	got, err := served(g.transaction(), false, "options", "-c fencepost.target="+target)
	if err == nil || !strings.Contains(err.Error(), "57P03") {
		g.t.Errorf("a read with target %s: %s, %v; want 57P03", target, got, err)
	}
}

// written counts the writes of tests at a server.
func (g *group) written(n *pgcluster.Node) string {
	g.t.Helper()
	node := g.node
	defer func() { g.node = node }()
	g.node = n
	return g.value("SELECT count(*)::text FROM written WHERE who IN ('probe', 'refused')")
}

// A cold backup that is restored is on an earlier timeline than its shard has seen: the documented command brings it in.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 1, lines: shortWait})
	backup, next := g.nodes[0], g.nodes[1]
	g.elects(backup, "healthy")
	g.must(backup.Stop(t.Context(), pgcluster.Fast)) // its folder is the backup
	g.promote(next)
	g.elects(next, "healthy")
	g.writes(next)
	g.must(next.Kill())                  // the disaster
	g.must(backup.Start(t.Context()))    // restored
	g.notes(backup.Addr(), "timeline=1") // seen
	g.noPrimary(forgetHint, backup.Addr())
	g.forget("1")
	g.elects(backup, "healthy")
	g.writes(backup)
	g.none()
}

// pg_upgrade leaves a cluster with another system identifier at the old address. Until FORGET it is a stranger; where the
// identifier is in the settings, they are to be changed.
func TestUpgradedCluster(t *testing.T) {
	t.Parallel()
	old, next := startGroup(t, front{}), startGroup(t, front{})
	at := startRelay(t, old.node.Addr())
	g := old
	g.settings.shard = fmt.Sprintf("hosts = [%q]", at.Addr())
	g.settings.lines = append(g.settings.lines, shortWait...)
	g.pooler = startPooler(t, g.settings)
	g.writes(g.node)
	lead(at, "")
	g.must(old.node.Stop(t.Context(), pgcluster.Fast))
	lead(at, next.node.Addr())
	g.notes(at.Addr(), "role=foreign", "note=system identifier")
	g.noPrimary(forgetHint, at.Addr())
	g.forget("1")
	g.node = next.node
	g.writes(next.node)

	// Named in the settings, it is for the settings to say.
	id := old.shard()["system_identifier"]
	g.named(id)
	lead(at, next.node.Addr())
	g.writes(next.node)
	g.named("1234567")
	g.elects(nil, "unhealthy")
	g.noPrimary("change system_identifier in the settings")
	g.named(id)
	g.writes(next.node)
}

// named puts a system identifier into the settings and reloads them.
func (g *group) named(id string) {
	g.t.Helper()
	g.pooler.rewrite(g.t, func(text string) string {
		if strings.Contains(text, "system_identifier") {
			return replaceLine(text, "system_identifier", "system_identifier = "+id)
		}
		return strings.Replace(text, "[shards.main]\n", "[shards.main]\nsystem_identifier = "+id+"\n", 1)
	})
	g.command("RELOAD")
}

// A blue/green switch: the shard moves to another cluster, with other hosts and another system identifier, under load.
// With PAUSE around it no client notices.
func TestBlueGreen(t *testing.T) {
	t.Parallel()
	g, green := newGroup(t, front{}), startGroup(t, front{standbys: 1})
	g.elects(g.node, "healthy")
	w := g.startWriters("transaction", 2)
	console := g.console()
	defer console.close()
	for _, step := range []string{"PAUSE", "RELOAD", "FORGET main", "RESUME"} {
		if step == "RELOAD" {
			g.pooler.rewrite(t, func(text string) string { return replaceLine(text, "hosts", hosts(green.nodes...)) })
		}
		if got, err := console.exchange(1, query(step)); err != nil || !strings.HasSuffix(got, "C["+strings.Fields(step)[0]+"] Z[I]") {
			t.Fatalf("%s: %s, %v", step, got, err)
		}
	}
	since := time.Now()
	blue := g.node
	g.node = green.node
	w.all("blue/green", since, green.node)
	g.elects(green.node, "healthy")
	g.notes(green.nodes[1].Addr(), "reads=yes")
	g.reads("standby", green.nodes[1])
	w.verdict("")
	g.nodes = append(green.nodes, blue)
	g.none()
}
