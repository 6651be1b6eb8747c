package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Fencepost starts while nothing of its shard is there, says so, and serves as soon as a server is.
func TestStartsWithoutServers(t *testing.T) {
	t.Parallel()
	g := startGroup(t, front{lines: shortWait})
	at := startRelay(t, "")
	const nowhere = "no-such-host.invalid:5432"
	g.settings.shard = fmt.Sprintf("hosts = [%q, %q]", nowhere, at.Addr())
	g.pooler = startPooler(t, g.settings)
	g.elects(nil, "unhealthy")
	g.notes(nowhere, "role=unknown", "note=no-such-host.invalid")
	g.notes(at.Addr(), "role=unknown", "note=refused a connection")
	g.loginRefused(nowhere, at.Addr())
	g.logs(`"level":"warn"`, at.Addr(), "monitor cannot see its host")
	g.logs(`"level":"warn"`, nowhere)
	lead(at, g.node.Addr())
	if got, err := served(g.transaction(), true); err != nil || got != fmt.Sprint(g.node.Port) {
		t.Errorf("with a server: %s, %v\n%s", got, err, g.said())
	}
}

// A shard whose hosts are all standbys serves reads; writes go to one of them once it is promoted. With failover_policy =
// refuse nobody waits for that, at a login neither.
func TestAllStandbys(t *testing.T) {
	t.Parallel()
	g := startGroup(t, front{standbys: 1})
	standby := g.nodes[1]
	g.settings.shard = hosts(standby) + "\nfailover_policy = \"refuse\""
	g.pooler = startPooler(t, g.settings)
	g.reads("standby", standby)
	g.reads("prefer-standby", standby)
	began := time.Now()
	g.loginRefused(standby.Addr() + ": it is in recovery")
	if took := time.Since(began); took > patience/2 { // query_wait_timeout is two minutes
		t.Errorf("a login was refused after %s", took)
	}
	g.promote(standby)
	g.elects(standby, "healthy")
	g.writes(standby)
}

// An address of the shard that another cluster has taken over gets nothing, not even when nobody else is left.
func TestStrangerAtAReusedAddress(t *testing.T) {
	t.Parallel()
	g, stranger := startGroup(t, front{standbys: 1, lines: shortWait}), startGroup(t, front{})
	at := startRelay(t, g.nodes[1].Addr())
	g.settings.shard = fmt.Sprintf("hosts = [%q, %q]", g.node.Addr(), at.Addr())
	g.pooler = startPooler(t, g.settings)
	g.elects(g.node, "healthy")
	g.reads("standby", g.nodes[1])
	lead(at, stranger.node.Addr())
	g.notes(at.Addr(), "role=foreign", "note=another cluster", "reads=no")
	g.logs("foreign", at.Addr())
	g.writes(g.node)
	g.reads("prefer-standby", g.node)
	g.must(g.node.Kill())
	g.elects(nil, "unhealthy failover")
	g.noPrimary(at.Addr() + ": it belongs to another cluster")
	g.unserved("any")
	lead(at, g.nodes[1].Addr())
	g.reads("standby", g.nodes[1])
	g.promote(g.nodes[1])
	if got, err := served(g.transaction(), true); err != nil || got != fmt.Sprint(g.nodes[1].Port) {
		t.Errorf("the shard's own server at its address again: %s, %v", got, err)
	}
	if n := stranger.value("SELECT count(*)::text FROM written"); n != "0" {
		t.Errorf("the stranger got %s writes", n)
	}
}

// A process that knows no system identifier, started while the primary is down and its address leads to another cluster's
// writable server: two standbys of the shard contradict that, so nobody gets writes until a person says who is right.
func TestStrangerAtTheStart(t *testing.T) {
	t.Parallel()
	g, stranger := startGroup(t, front{standbys: 2, lines: shortWait}), startGroup(t, front{})
	g.must(g.node.Kill())
	g.settings.shard = hosts(stranger.node, g.nodes[1], g.nodes[2])
	g.pooler = startPooler(t, g.settings)
	g.elects(nil, "unhealthy")
	g.loginRefused("the hosts belong to different clusters", stranger.node.Addr()+" has system identifier")
	g.logs("shard: disagreement", stranger.node.Addr())
	g.promote(g.nodes[1])
	g.loginRefused("the hosts belong to different clusters")
	g.pooler.rewrite(t, func(text string) string {
		return strings.Replace(text, hosts(stranger.node, g.nodes[1], g.nodes[2]), hosts(g.nodes[1:]...), 1)
	})
	g.command("RELOAD")
	g.elects(g.nodes[1], "healthy")
	g.writes(g.nodes[1])
	if n := stranger.value("SELECT count(*)::text FROM written"); n != "0" {
		t.Errorf("the stranger got %s writes", n)
	}
}

// A stranger that alone answers at first is contradicted by the primary when that can be reached: it keeps the writes no
// longer, and is not written down as the shard's.
func TestStrangerAnswersFirst(t *testing.T) {
	t.Parallel()
	g, stranger := startGroup(t, front{lines: shortWait}), startGroup(t, front{})
	late := startRelay(t, "")
	state := filepath.Join(t.TempDir(), "main.state")
	list := fmt.Sprintf("hosts = [%q, %q]", stranger.node.Addr(), late.Addr())
	g.settings.shard = fmt.Sprintf("%s\nstate_file = %q", list, state)
	g.pooler = startPooler(t, g.settings)
	g.elects(stranger.node, "healthy")
	if text, err := os.ReadFile(state); err == nil {
		t.Errorf("the state file has what a stranger said: %s", text)
	}
	lead(late, g.node.Addr())
	g.elects(nil, "unhealthy")
	g.loginRefused("the hosts belong to different clusters", late.Addr()+" has system identifier")
	id := g.value("SELECT system_identifier::text FROM pg_control_system()")
	g.pooler.rewrite(t, func(text string) string { return strings.Replace(text, list, list+"\nsystem_identifier = "+id, 1) })
	g.command("RELOAD")
	if got, err := served(g.transaction(), true); err != nil || got != fmt.Sprint(g.node.Port) {
		t.Errorf("with the identifier set: %s, %v\n%s", got, err, g.said())
	}
}

// A monitor that cannot log in is named with the server's own words. Corrected settings need no restart.
func TestMonitorCannotLogIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shard []string
		code  string
		right []string
	}{
		"wrong password": {[]string{`monitor_user = "app"`, `monitor_password = "wrong"`}, "28P01", nil},
		"no such user":   {[]string{`monitor_user = "nobody_of_the_server"`, `monitor_password = "x"`}, "28000", nil},
		"no database":    {[]string{`monitor_dbname = "no database of the server"`}, "3D000", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, front{lines: shortWait, shard: c.shard})
			g.notes(g.node.Addr(), "monitor=rejected", "note="+c.code)
			g.logs(`"level":"warn"`, g.node.Addr(), c.code)
			g.pooler.rewrite(t, func(text string) string {
				for _, l := range c.shard {
					text = strings.Replace(text, l+"\n", "", 1)
				}
				return text
			})
			g.command("RELOAD")
			g.elects(g.node, "healthy")
			g.notes(g.node.Addr(), "monitor=up", "role=primary")
			g.writes(g.node)
		})
	}
}

// A monitor needs no privilege but what everybody has. Where that was taken away its host is named and not elected: without
// a system identifier it could be a server of any cluster.
func TestMonitorWithoutRights(t *testing.T) {
	t.Parallel()
	g := startGroup(t, front{standbys: 1, lines: shortWait})
	g.must(g.node.Exec(t.Context(), "CREATE ROLE watcher LOGIN PASSWORD 'watches'", "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
	g.must(g.cluster.CatchUp(t.Context()))
	g.settings.shard += "\nmonitor_user = \"watcher\"\nmonitor_password = \"watches\""
	g.pooler = startPooler(t, g.settings)
	g.notes(g.node.Addr(), "role=unknown", "monitor=up", "note=lacks its system identifier")
	g.loginRefused(g.node.Addr() + ": its answer lacks its system identifier")
	g.must(g.node.Exec(t.Context(), "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC"))
	g.elects(g.node, "healthy")
	g.writes(g.node)
	g.reads("standby", g.nodes[1])
}

// nonsense are hosts that are no PostgreSQL servers, or none that make sense.
var nonsense = []struct {
	name   string
	script func(c *fakeConn) error
}{
	{"says nothing", (*fakeConn).silence},
	{"closes", func(*fakeConn) error { return errLeave }},
	{"speaks HTTP", func(c *fakeConn) error { return c.put([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }},
	{"answers nothing behind the login", always()},
	{"answers no rows", always(complete, ready)},
	{"answers bytes", always([]byte("\x00\x01\x02\x03\x04\x05\x06\x07"))},
	{"ends at each question", always(nil)},
}

// Hosts that answer nonsense or nothing are named and never elected; a real one among them serves, and whatever comes
// behind their addresses later does.
func TestNonsenseHosts(t *testing.T) {
	t.Parallel()
	g := startGroup(t, front{lines: shortWait})
	at := startRelay(t, "")
	list := []string{fmt.Sprintf("%q", at.Addr())}
	var addrs []string
	for _, n := range nonsense {
		f := startFake(t, n.script)
		addrs, list = append(addrs, f.addr), append(list, fmt.Sprintf("%q", f.addr))
	}
	g.settings.shard = "hosts = [" + strings.Join(list, ", ") + "]"
	g.pooler = startPooler(t, g.settings)
	g.elects(nil, "unhealthy")
	g.loginRefused(addrs[0])
	lead(at, g.node.Addr())
	if got, err := served(g.transaction(), true); err != nil || got != fmt.Sprint(g.node.Port) {
		t.Errorf("a real server among them: %s, %v\n%s", got, err, g.said())
	}
	for i, addr := range addrs {
		row := g.replication(addr)
		if row["role"] != "unknown" || row["note"] == "NULL" {
			t.Errorf("a host that %s: %v", nonsense[i].name, row)
		}
	}
}
