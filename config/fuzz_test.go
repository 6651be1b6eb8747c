package config

import (
	"errors"
	"strings"
	"testing"
)

// FuzzParse: whatever the bytes are, there is either a Config that holds together or a list of problems, one line each.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("[fencepost]\nlisten_port = \"x\"\npool_mod = 1\n[[shards.main.hosts]]\naddr = \"a\"\nrole = \"auto\"\n"))
	f.Add([]byte("[databases]\na.hosts = [\"h\", {addr = \"/x\"}]\n[databases.\"*\"]\nshard = \"é\"\n[users.\"a\\nb\"]\npassword = \"env:X\"\n"))
	f.Add([]byte("fencepost.auth_type = 'trust'\ndatabases.x.hosts = ['::1']\ndatabases.x.query_wait_timeout = 5\n"))
	f.Add([]byte("[shards.a]\nhosts = ['h', {addr = 'H.', role = 'any'}, {addr = '::ffff:1.2.3.4', role = 'replica'}, '1.2.3.4']\nrole_check_interval = '1s'\nevidence_ttl = '1s'\n"))
	f.Add([]byte("[shards.a]\nhosts = ['h', 'i:1', {addr = '/x', role = 'primary'}]\nfailover_disconnect_ratio = nan\nsystem_identifier = '18446744073709551615'\n" +
		"state_file = 's'\nmonitor_user = 'm'\nmonitor_password = 'env:X'\nmax_lag_bytes = 1\n[databases.'*']\nshard = 'a'\ntarget = 'prefer-standby'\nfence = 'off'\n"))
	f.Add([]byte("fencepost.auth_type = 'trust'\ndatabases.x = {hosts = [{addr = 'h', role = 'replica'}], user = 'u'}\nshards.s = {hosts = ['h'], failover_disconnect_ratio = 1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse("f.toml", data, testSecrets{files: "secret\n", vars: map[string]string{"X": "secret"}})
		if err != nil {
			var problems *Problems
			if c != nil || !errors.As(err, &problems) || len(problems.List) == 0 {
				t.Fatalf("config %v, error %v", c, err)
			}
			if n := strings.Count(err.Error(), "\n") + 1; n != len(problems.List) {
				t.Fatalf("%d problems in %d lines:\n%q", len(problems.List), n, err.Error())
			}
			for _, p := range problems.List {
				if p.Rule == "" {
					t.Fatalf("no rule: %+v", p)
				}
			}
			return
		}
		if applied, restart := Changes(c, c); len(applied)+len(restart) != 0 {
			t.Fatalf("differs from itself: %q %q", applied, restart)
		}
		for name, shard := range c.Shards {
			checkShard(t, c, name, shard)
		}
		for name := range c.Databases {
			db, ok := c.Database(name)
			if !ok {
				t.Fatalf("database %q is not found", name)
			}
			if c.Shards[db.Shard] == nil || db.Target == "" {
				t.Fatalf("database %q is on %q, target %q", name, db.Shard, db.Target)
			}
			for user := range c.Users {
				s := c.PoolSettings(db, user)
				if s.Size < 1 || s.MinSize > s.Size || s.Mode == "" || s.Fence == "" {
					t.Fatalf("pool of %q and %q: %+v", name, user, s)
				}
			}
		}
	})
}

// checkShard: the hosts of a shard, their roles and who asks them hold together.
func checkShard(t *testing.T, c *Config, name string, shard *Shard) {
	unasked, seen := 0, map[string]bool{}
	for _, h := range shard.Hosts {
		if h.Role == RoleAny {
			unasked++
		}
		seen[h.canonical()] = true
	}
	if shard.Name != name || len(shard.Hosts) == 0 || len(seen) != len(shard.Hosts) || unasked > 0 && len(shard.Hosts) > 1 ||
		shard.HasRoles() != (unasked == 0) {
		t.Fatalf("shard %q: %+v", name, shard)
	}
	if shard.EvidenceTTL < 2*shard.RoleCheckInterval || shard.UnhealthyAfter < 2*shard.RoleCheckInterval ||
		!(shard.FailoverDisconnectRatio >= 0 && shard.FailoverDisconnectRatio <= 1) || shard.ConnectConcurrency < 1 {
		t.Fatalf("shard %q: %+v", name, shard)
	}
	if user, password, dbname, ok := c.MonitorLogin(shard); shard.HasRoles() && (!ok || user == "" || dbname == "") || password.IsSet() && !password.plaintext() {
		t.Fatalf("nobody asks the hosts of %q: %q %q %v", name, user, dbname, ok)
	}
}
