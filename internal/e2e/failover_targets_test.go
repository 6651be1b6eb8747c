package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/pgcluster"
	"fencepost/wire"
)

// targetsWait is how long clients of TestTargets wait for a server.
const targetsWait = 1200 * time.Millisecond

// Clients choose the kind of server by a startup option or by their database. Reads go on while a standby is left, and
// without a primary; writes wait for one as long as query_wait_timeout, and the error says why there is none.
func TestTargets(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 2, lines: []string{fmt.Sprintf("query_wait_timeout = %q", targetsWait)},
		sections: "[databases.reads]\nshard = \"main\"\ndbname = \"e2e\"\ntarget = \"standby\"\n"})
	ctx := t.Context()
	primary, one, two := g.nodes[0], g.nodes[1], g.nodes[2]
	g.elects(primary, "healthy")
	g.notes(one.Addr(), "reads=yes", "role=standby")
	g.notes(two.Addr(), "reads=yes", "role=standby")

	g.writes(primary)
	g.reads("standby", one, two)
	g.reads("any", primary, one, two)
	if got, err := served(g.mode("reads"), false); err != nil || got != fmt.Sprint(one.Port) && got != fmt.Sprint(two.Port) {
		t.Errorf("a database with target = standby: %s, %v", got, err)
	}
	if got, err := served(g.mode("reads"), true, "options", "-c fencepost.target=read-write"); err != nil || got != fmt.Sprint(primary.Port) {
		t.Errorf("a client that asks for more than its database: %s, %v", got, err)
	}
	g.driversPrefer(one, two)
	if _, err := served(g.transaction(), false, "options", "-c fencepost.target=primary"); err == nil || !strings.Contains(err.Error(), "E[22023]") {
		t.Errorf("a target that is none: %v", err)
	}
	if _, err := served(g.mode("reads"), true); err == nil || !strings.Contains(err.Error(), "25006") {
		t.Errorf("a write on a standby, as asked for: %v", err)
	}

	g.must(one.Kill())
	g.reads("standby", two)
	g.reads("prefer-standby", two)
	g.must(two.Kill())
	g.reads("prefer-standby", primary)
	g.reads("any", primary)
	c := mustLogin(t, g.mode("reads"))
	e, err := refused(c, "SELECT 1")
	if err != nil || field(e, wire.FieldCode) != "57P03" || !strings.Contains(field(e, wire.FieldMessage), `no standby of shard "main"`) || !strings.Contains(field(e, wire.FieldDetail), two.Addr()+": its monitor") {
		t.Errorf("a read without a standby: %q, %v", e, err)
	}

	g.must(two.Start(ctx))
	g.notes(two.Addr(), "reads=yes")
	if got, err := c.where(false); err != nil || got != fmt.Sprint(two.Port) {
		t.Errorf("the same session with a standby again: %s, %v", got, err)
	}
	g.withoutPrimary(primary, two)
}

// driversPrefer asks for prefer-standby as users do.
func (g *group) driversPrefer(standbys ...*pgcluster.Node) {
	g.t.Helper()
	const ask = "SELECT inet_server_port()::text || pg_is_in_recovery()::text"
	allowed := map[string]bool{}
	for _, n := range standbys {
		allowed[fmt.Sprintf("%dtrue", n.Port)] = true
	}
	at, options := g.transaction(), "-c fencepost.target=prefer-standby"
	run := func(driver, out string, err error) {
		if out = strings.TrimSpace(out); err != nil || !allowed[out] {
			g.t.Errorf("%s with options=%s: %s, %v; want one of %v", driver, options, out, err, allowed)
		}
	}
	t := g.t.(*testing.T)
	out, err := at.command(t, []string{"PGOPTIONS=" + options}, "psql", "-XAtc", ask)
	run("psql", out, err)
	python, err := pythonWithPsycopg()
	g.must(err)
	out, err = at.command(t, []string{"ASK=" + ask, "OPTIONS=" + options}, python, "-c",
		"import os, psycopg; print(psycopg.connect('', options=os.environ['OPTIONS']).execute(os.environ['ASK']).fetchone()[0])")
	run("psycopg", out, err)
	cfg, err := at.config()
	g.must(err)
	cfg.RuntimeParams["options"] = options
	conn, err := pgx.ConnectConfig(g.t.Context(), cfg)
	g.must(err)
	defer conn.Close(g.t.Context())
	err = conn.QueryRow(g.t.Context(), ask).Scan(&out)
	run("pgx", out, err)
}

// withoutPrimary kills the primary and promotes nobody.
func (g *group) withoutPrimary(primary, standby *pgcluster.Node) {
	g.t.Helper()
	stays := mustLogin(g.t, g.mode("reads"))
	if _, err := stays.where(false); err != nil {
		g.t.Fatal(err)
	}
	g.must(primary.Kill())
	g.elects(nil, "unhealthy failover")
	began := time.Now()
	g.noPrimary(primary.Addr()+": ", standby.Addr()+": ", "in recovery", "no primary has been known since 2", "the shard is ")
	if took := time.Since(began); took < 2*targetsWait {
		g.t.Errorf("two writes were refused within %s, before their query_wait_timeout", took)
	}
	if got, err := stays.where(false); err != nil || got != fmt.Sprint(standby.Port) {
		g.t.Errorf("a session that reads, without a primary: %s, %v", got, err)
	}
	g.reads("standby", standby)
	g.reads("any", standby)

	g.pooler.rewrite(g.t, func(text string) string {
		return strings.Replace(text, "[shards.main]\n", "[shards.main]\nfailover_policy = \"refuse\"\n", 1)
	})
	g.command("RELOAD")
	began = time.Now()
	g.noPrimary()
	if took := time.Since(began); took > 2*targetsWait {
		g.t.Errorf("failover_policy = refuse took %s for two writes", took)
	}
	g.reads("prefer-standby", standby)
	g.promote(standby)
	g.elects(standby, "healthy")
	g.writes(standby)
}
