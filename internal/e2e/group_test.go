package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/wire"
)

// group is one test's own replication group, its hosts all with the role auto, and a Fencepost in front of it. Its lab's
// node is the primary, as the test knows it.
type group struct {
	*lab
	cluster  *pgcluster.Cluster
	nodes    []*pgcluster.Node // the first primary, then its standbys
	settings settings
}

// front says how Fencepost is started in front of a group. Shard has lines for [shards.main] besides hosts.
type front struct {
	standbys int
	shard    []string
	lines    []string
	sections string
}

func newGroup(t testing.TB, f front) *group {
	t.Helper()
	g := startGroup(t, f)
	g.pooler = startPooler(t, g.settings)
	return g
}

// startGroup starts the servers and prepares the settings of a Fencepost for them.
func startGroup(t testing.TB, f front) *group {
	t.Helper()
	o := serverOptions("15")
	o.Standbys = f.standbys
	o.Databases = []string{"e2e"}
	c := pgcluster.New(t, o)
	g := &group{lab: &lab{t: t, node: c.Primary(), db: "e2e"}, cluster: c, nodes: c.Nodes}
	g.sql("GRANT ALL ON SCHEMA public TO PUBLIC", "CREATE TABLE written (who text, n bigint, PRIMARY KEY (who, n))", "GRANT ALL ON written TO PUBLIC")
	g.settings = settings{shard: strings.Join(append([]string{hosts(g.nodes...)}, f.shard...), "\n"), dbname: "e2e",
		lines: append([]string{`log_level = "info"`}, f.lines...), sections: f.sections}
	return g
}

// hosts is the setting that lists nodes.
func hosts(nodes ...*pgcluster.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%q", n.Addr()))
	}
	return "hosts = [" + strings.Join(list, ", ") + "]"
}

func (g *group) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// promote makes a standby the primary and returns when it began to take writes.
func (g *group) promote(n *pgcluster.Node) time.Time {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	conn, err := n.Connect(ctx, "postgres")
	g.must(err)
	defer conn.Close(context.WithoutCancel(ctx))
	type answer struct {
		at  time.Time
		err error
	}
	seen := make(chan answer, 1)
	go func() { // ends with the promotion or ctx
		for {
			var standby bool
			if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil || !standby {
				seen <- answer{time.Now(), err}
				return
			}
		}
	}()
	g.must(n.Promote(ctx))
	a := <-seen
	g.must(a.err)
	g.node = n
	return a.at
}

// shard is the row of SHOW SHARDS.
func (g *group) shard() map[string]string {
	g.t.Helper()
	for _, r := range g.rows("SHOW SHARDS") {
		if r["name"] == "main" {
			return r
		}
	}
	g.t.Fatal("SHOW SHARDS has no row for main")
	return nil
}

// elects waits until the shard's primary is n, or none if n is nil, and the shard is in one of these states.
func (g *group) elects(n *pgcluster.Node, states string) {
	g.t.Helper()
	want := "NULL"
	if n != nil {
		want = n.Addr()
	}
	var row map[string]string
	err := poll(patience, func() (bool, error) {
		row = g.shard()
		return row["elected"] == want && slices.Contains(strings.Fields(states), row["state"]), nil
	})
	if err != nil {
		g.t.Fatalf("elected %s, want %s (%s): %v\n%v\n%s", row["elected"], want, states, err, row, g.said())
	}
}

// replication is the row of SHOW REPLICATION for a host, by its name in the settings.
func (g *group) replication(host string) map[string]string {
	g.t.Helper()
	for _, r := range g.rows("SHOW REPLICATION") {
		if r["host"] == host {
			return r
		}
	}
	return nil
}

// notes waits until what SHOW REPLICATION says of a host has all of these, each "column=part".
func (g *group) notes(host string, want ...string) {
	g.t.Helper()
	var row map[string]string
	err := poll(patience, func() (bool, error) {
		row = g.replication(host)
		for _, w := range want {
			column, part, _ := strings.Cut(w, "=")
			if !strings.Contains(row[column], part) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		g.t.Errorf("SHOW REPLICATION of %s: %v, want %v: %v", host, row, want, err)
	}
}

// logs waits until Fencepost's log has a line with all of these.
func (g *group) logs(parts ...string) {
	g.t.Helper()
	err := poll(patience, func() (bool, error) { return len(g.pooler.Lines(time.Time{}, parts...)) > 0, nil })
	if err != nil {
		g.t.Errorf("no line of the log has %q: %v", parts, err)
	}
}

// said is what the console has to say, for the report of a failed test.
func (g *group) said() string {
	var b strings.Builder
	for _, cmd := range []string{"SHOW REPLICATION", "SHOW ELECTIONS"} {
		fmt.Fprintln(&b, cmd)
		for _, r := range g.rows(cmd) {
			fmt.Fprintln(&b, r)
		}
	}
	return b.String()
}

// served is the server that answers a client of a database, by its port: one transaction, which writes if write is set.
func served(at place, write bool, params ...string) (port string, err error) {
	c, err := at.login(params...)
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.where(write)
}

// where is served on a connection that there is.
func (c *raw) where(write bool) (port string, err error) {
	sql := "SELECT inet_server_port()"
	if write {
		sql = "WITH w AS (INSERT INTO written SELECT 'probe', coalesce(max(n), 0) + 1 FROM written RETURNING 1) SELECT inet_server_port() FROM w"
	}
	return c.query(sql)
}

// writes checks that writes are served, and by whom.
func (g *group) writes(n *pgcluster.Node) {
	g.t.Helper()
	got, err := served(g.transaction(), true)
	if err != nil || got != fmt.Sprint(n.Port) {
		g.t.Errorf("a write went to %s, %v; want %s\n%s", got, err, n.Addr(), g.said())
	}
}

// reads checks that a target's reads are served by one of some servers.
func (g *group) reads(target string, by ...*pgcluster.Node) {
	g.t.Helper()
	got, err := served(g.transaction(), false, "options", "-c fencepost.target="+target)
	for _, n := range by {
		if err == nil && got == fmt.Sprint(n.Port) {
			return
		}
	}
	g.t.Errorf("a read with target %s went to %s, %v; want one of %d\n%s", target, got, err, ports(by), g.said())
}

func ports(nodes []*pgcluster.Node) (list []int) {
	for _, n := range nodes {
		list = append(list, n.Port)
	}
	return list
}

// refused runs a statement that is to be refused, and returns the error's body.
func refused(c *raw, sql string) (body []byte, err error) {
	if err := c.send(query(sql)); err != nil {
		return nil, err
	}
	for {
		m, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case m.typ == wire.MsgErrorResponse && field(m.body, wire.FieldLocalizedSeverity) == "FATAL":
			return m.body, nil
		case m.typ == wire.MsgErrorResponse:
			body = m.body
		case m.typ == wire.MsgReadyForQuery && body == nil:
			return nil, errors.New("it was not refused")
		case m.typ == wire.MsgReadyForQuery:
			return body, nil
		}
	}
}

// loginRefused checks that a client for writes is refused at its login, as long as Fencepost has not logged in to a primary
// since it started: it does not know yet what such a server reports.
func (g *group) loginRefused(want ...string) {
	g.t.Helper()
	c, err := dial(g.pooler.addr)
	g.must(err)
	defer c.nc.Close()
	g.must(c.write(startupPacket(version30, "user", anyUser, "database", "transaction")))
	m, err := c.next()
	if err != nil || m.typ != wire.MsgErrorResponse || field(m.body, wire.FieldLocalizedSeverity) != "FATAL" || field(m.body, wire.FieldCode) != "57P03" {
		g.t.Errorf("a login without a primary: %q %q, %v; want FATAL 57P03\n%s", m.typ, m.body, err, g.said())
		return
	}
	g.explains(m.body, want)
}

// explains checks that an error is in the words of an operator.
func (g *group) explains(body []byte, want []string) {
	g.t.Helper()
	text := strings.Join([]string{field(body, wire.FieldMessage), field(body, wire.FieldDetail), field(body, wire.FieldHint)}, "\n")
	for _, w := range append([]string{`no primary has been known for shard "main" for `, "safe to retry"}, want...) {
		if !strings.Contains(text, w) {
			g.t.Errorf("the error lacks %q:\n%s", w, text)
		}
	}
}

// noPrimary checks that a write is refused with 57P03 in the words of an operator's error, and what else is in them.
func (g *group) noPrimary(want ...string) {
	g.t.Helper()
	c := mustLogin(g.t, g.transaction())
	defer c.close()
	e, err := refused(c, "INSERT INTO written VALUES ('refused', 1)")
	if err != nil || field(e, wire.FieldCode) != "57P03" || field(e, wire.FieldLocalizedSeverity) != "ERROR" {
		g.t.Errorf("a write without a primary: %q, %v; want 57P03\n%s", e, err, g.said())
		return
	}
	g.explains(e, want)
	if got, err := c.query("SHOW application_name"); err == nil {
		g.t.Errorf("a second statement without a primary: %s", got)
	} else if !strings.Contains(err.Error(), "57P03") {
		g.t.Errorf("a second statement on the session: %v, want 57P03 again", err)
	}
}

// none checks that once Fencepost has ended no connection of its is left at any server that runs. It ends it.
func (g *group) none() {
	g.t.Helper()
	g.pooler.end(g.t)
	for _, n := range g.nodes {
		if !n.Running() || n.Frozen() {
			continue
		}
		left := -1
		err := poll(patience, func() (bool, error) {
			err := n.QueryRow(g.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename IN ('"+appUser+"', '"+anyUser+"')", &left)
			return left == 0, err
		})
		if err != nil {
			g.t.Errorf("%d connections are left at %s: %v", left, n.Addr(), err)
		}
	}
}
