package config

import (
	"strings"
	"testing"
)

const fleetRest = "[shards.main]\nhosts = [\"127.0.0.1\"]\n[databases.app]\nshard = \"main\"\n[users.app]\npassword = \"p\"\n"

const fleetKey = "c2l4dGVlbiBieXRlcyBvaw=="

func TestFleet(t *testing.T) {
	c, err := parse("f.toml", []byte(fleetRest+`[fencepost]
max_db_connections = 50
[fleet]
name = "prod"
peer_id = 3
bind = "10.0.0.9:7946"
join = ["a.example:7946", "b.example:7946"]
secret_key = "file:keys"
fleet_size = 3
fleet_max_db_connections = 100
[peers.7]
addr = "10.0.0.7:6432"
`), testSecrets{files: fleetKey + "\n" + fleetKey + "\n"})
	if err != nil {
		t.Fatal(err)
	}
	db, _ := c.Database("app")
	if got := c.PoolSettings(db, "app").MaxDBConnections; got != 33 {
		t.Errorf("the share of a third of 100 is %d", got)
	}
	if c.Fencepost.PeerID != 3 || len(c.Fleet.Keys()) != 2 || c.Peers[7].Addr != "10.0.0.7:6432" || c.Fleet.JoinWait == 0 {
		t.Errorf("%+v, peer_id %d, peers %v", c.Fleet, c.Fencepost.PeerID, c.Peers)
	}
	if own := c.Share(20); own != 20 {
		t.Errorf("a member's own lower limit became %d", own)
	}
}

// A member that has nobody to join by is told when nothing else says that there are others.
func TestFleetWarnings(t *testing.T) {
	for _, c := range []struct {
		fleet, shard string
		warned       bool
	}{{"", "", true}, {"fleet_size = 3", "", false}, {"", "state_file = 'a.state'", false}, {"join = ['10.0.0.2:7946']", "", false}} {
		cfg, err := Parse("fencepost.toml", []byte(strings.Replace(fleetRest, "[databases", c.shard+"\n[databases", 1)+"\n[fleet]\nname = 'f'\nmember = 'm'\npeer_id = 1\nbind = '127.0.0.1:7946'\n"+c.fleet))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Warnings(); (len(got) > 0) != c.warned {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestFleetProblems(t *testing.T) {
	for text, want := range map[string]string{
		"[fleet]\n": "fleet.bind: must be set",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"0.0.0.0:7946\"\n":                             "secret_key: must be set unless bind is a loopback address",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"host:7946\"\n":                                "fleet.bind = \"host:7946\": must be \"ip:port\"",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\nsecret_key = \"short\"\n":   "secret_key: must be 16, 24 or 32 bytes in base64",
		"[fleet]\nname = \"x y\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\n":                         "fleet.name",
		"[fencepost]\npeer_id = 2\n[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\n": "must be the peer_id of [fencepost], 2",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\njoin = [\"a\"]\n":           "fleet.join = \"a\": must be addresses",
		"[fleet]\nname = \"x\"\npeer_id = 16384\nbind = \"127.0.0.1:7946\"\n":                       "from 1 to 16383",
		"[peers.2]\naddr = \"a:1\"\n":                                                                 "peer_id: must be set where [peers] is",
		"[fencepost]\npeer_id = 2\n[peers.2]\naddr = \"a:1\"\n":                                       "must be another process",
		"[fencepost]\npeer_id = 2\n[peers.x]\naddr = \"a:1\"\n":                                       "must be named by the peer_id",
		"[fencepost]\npeer_id = 2\n[peers.3]\n":                                                       "peers.3.addr: must be set",
		"[fencepost]\npeer_id = 2\n[peers.3]\naddr = \"nowhere\"\n":                                   "must be \"host:port\"",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\nfleet_join_wait = 2\n":        "must be a string with a unit",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\nsecret_keys = \"x\"\n":        "did you mean secret_key?",
		"[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\nadvertise = \"10.0.0.1:0\"\n": "fleet.advertise",
	} {
		_, err := parse("f.toml", []byte(fleetRest+text), testSecrets{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "short") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
}

func TestFleetReload(t *testing.T) {
	load := func(fleet string) *Config {
		c, err := parse("f.toml", []byte(fleetRest+fleet), testSecrets{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const base = "[fleet]\nname = \"x\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\n"
	one, two, none := load(base), load("[fleet]\nname = \"y\"\npeer_id = 1\nbind = \"127.0.0.1:7946\"\nfleet_size = 2\nsecret_key = \""+fleetKey+"\"\n"), load("")
	applied, restart := Changes(one, two)
	if strings.Join(applied, " ") != "fleet.fleet_size fleet.secret_key" || strings.Join(restart, " ") != "fleet.name" {
		t.Errorf("applied %v, need a restart %v", applied, restart)
	}
	if got := Reloaded(one, two).Fleet; got.Name != "x" || got.Size != 2 || len(got.Keys()) != 1 {
		t.Errorf("in force: %+v", got)
	}
	if _, restart := Changes(one, none); strings.Join(restart, " ") != "fleet peer_id" || Reloaded(one, none).Fleet == nil {
		t.Errorf("leaving a fleet needs a restart: %v", restart)
	}
	if Reloaded(none, one).Fleet != nil {
		t.Error("joining a fleet needs a restart")
	}
}
