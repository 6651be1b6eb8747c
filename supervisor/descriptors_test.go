package supervisor

import (
	"testing"

	"fencepost/config"
)

// What the settings allow is counted; a limit below it is shared so that clients leave room for server connections.
func TestFiles(t *testing.T) {
	cfg, err := config.Parse("fencepost.toml", []byte(`
[fencepost]
max_client_conn = 500
default_pool_size = 10
event_loops = 2
[shards.main]
hosts = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
[databases.own]
shard = "main"
user = "a"
password = "x"
[databases.each]
shard = "main"
[databases.reads]
shard = "main"
target = "standby"
max_db_connections = 12
[users.a]
password = "a"
[users.b]
password = "b"
pool_size = 3
`))
	if err != nil {
		t.Fatal(err)
	}
	d := filesOf(cfg)
	if d.clients != 500 || d.servers != 10+13+3*12 || d.own != 32+6+6 || d.needed() != 500+59+44 {
		t.Errorf("%+v", d)
	}
	used := func() int { return 30 }
	for _, c := range []struct{ limit, clients, want int }{
		{1000, 0, 1000 - 44 - 59}, {1000, 900, -3}, // all that servers may need
		{160, 0, 160 - 44 - 40}, {160, 76, 0}, // a quarter
		{100, 0, 100 - 44 - 30}, {100, 30, -4}, // servers have more than a quarter already
	} {
		d.limit = c.limit
		if got := d.spare(c.clients, used); got != c.want {
			t.Errorf("limit %d, %d clients: %d can be served, want %d", c.limit, c.clients, got, c.want)
		}
	}
}
