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
		for name := range c.Databases {
			db, ok := c.Database(name)
			if !ok {
				t.Fatalf("database %q is not found", name)
			}
			if shard := c.Shards[db.Shard]; shard == nil || len(shard.Hosts) != 1 || shard.Hosts[0].Role != RoleAny {
				t.Fatalf("database %q is on %q: %+v", name, db.Shard, shard)
			}
			for user := range c.Users {
				s := c.PoolSettings(db, user)
				if s.Size < 1 || s.MinSize > s.Size || s.Mode == "" {
					t.Fatalf("pool of %q and %q: %+v", name, user, s)
				}
			}
		}
	})
}
