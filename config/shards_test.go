package config

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestShardDefaults: the defaults that others rely on, as numbers.
func TestShardDefaults(t *testing.T) {
	c := load(t, rest)
	want := Shard{
		Name: "main", Hosts: []Host{{"127.0.0.1:5432", RoleAuto}}, MonitorDBName: "postgres", RoleCheckInterval: time.Second,
		EvidenceTTL: 3 * time.Second, OnTwoWriters: TwoWritersSitting, UnhealthyAfter: 10 * time.Second, FailoverDisconnectRatio: 0.6,
		FailoverMinTime: 30 * time.Second, FailoverPolicy: FailoverHold, ConnectConcurrency: 8, StandbyBalance: BalanceLeastWaiting,
	}
	if !reflect.DeepEqual(*c.Shards["main"], want) {
		t.Errorf("got  %+v\nwant %+v", *c.Shards["main"], want)
	}
	if db := c.Databases["app"]; db.Target != TargetReadWrite || db.Fence != "" {
		t.Errorf("database %+v", db)
	}
	c = load(t, "[databases.app]\nhosts = [\"h\"]\n"+users)
	want.Name, want.Hosts = "h:5432", []Host{{"h:5432", RoleAuto}}
	if !reflect.DeepEqual(*c.Shards["h:5432"], want) {
		t.Errorf("hosts of a database: got  %+v\nwant %+v", *c.Shards["h:5432"], want)
	}
}

// TestEveryShardSetting: a value other than the default reaches its field, for every key.
func TestEveryShardSetting(t *testing.T) {
	values := map[string]string{
		"hosts":        `["a", { addr = "b", role = "auto" }, { addr = "c:1", role = "primary" }, { addr = "/d", role = "replica" }]`,
		"monitor_user": `"m"`, "monitor_password": `"file:x"`, "monitor_dbname": `"d"`, "role_check_interval": `"100ms"`, "state_file": `"main.state"`,
		"evidence_ttl": `"200ms"`, "system_identifier": `"18446744073709551615"`, "on_two_writers": `"refuse"`, "unhealthy_after": `"1s"`,
		"failover_disconnect_ratio": "0.25", "failover_min_time": `"2s"`, "failover_policy": `"refuse"`, "failover_warm": "3",
		"connect_concurrency": "4", "standby_balance": `"random"`, "max_lag_time": `"5s"`, "max_lag_bytes": "16_777_216",
	}
	var b strings.Builder
	for _, s := range shardSettings {
		if values[s.key] == "" {
			t.Errorf("no value for %s in this test", s.key)
		}
		b.WriteString(s.key + " = " + values[s.key] + "\n")
	}
	c, err := parse("/etc/fencepost/f.toml", []byte("[shards.main]\n"+b.String()+databases+users), testSecrets{files: "pw"})
	if err != nil {
		t.Fatal(err)
	}
	want := Shard{
		"main", []Host{{"a:5432", RoleAuto}, {"b:5432", RoleAuto}, {"c:1", RolePrimary}, {"/d:5432", RoleReplica}},
		"m", NewSecret("pw"), "d", 100 * time.Millisecond, "/etc/fencepost/main.state", 200 * time.Millisecond, math.MaxUint64, TwoWritersRefuse,
		time.Second, 0.25, 2 * time.Second, FailoverRefuse, 3, 4, BalanceRandom, 5 * time.Second, 16 << 20,
	}
	if got := *c.Shards["main"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	none, every := load(t, rest), []string{}
	for _, s := range shardSettings {
		every = append(every, "shards.main."+s.key)
	}
	slices.Sort(every)
	if applied, restart := Changes(none, c); !slices.Equal(applied, every) || len(restart) > 0 {
		t.Errorf("a reload applies %q, not %q", applied, restart)
	}
	if next := Reloaded(none, c); !reflect.DeepEqual(next.Shards["main"], c.Shards["main"]) {
		t.Errorf("after a reload %+v", next.Shards["main"])
	}
}

// TestShardValues: what the settings of a shard refuse, with the message.
func TestShardValues(t *testing.T) {
	const number = "must be a number from 0 to 1, such as 0.5"
	const digits = "must be decimal digits, from 1 to 18446744073709551615, in quotes or without; leave it out for none"
	const doubt = "otherwise the shard would be in doubt between any two answers"
	for _, test := range []struct{ line, want string }{
		{`failover_disconnect_ratio = 1.1`, " = 1.1: " + number},
		{`failover_disconnect_ratio = -1`, " = -1: " + number},
		{`failover_disconnect_ratio = nan`, " = NaN: " + number},
		{`failover_disconnect_ratio = "0.5"`, " = \"0.5\": " + number},
		{`failover_disconnect_ratio = 1`, ""},
		{`failover_disconnect_ratio = 0`, ""},
		{`system_identifier = 7300000000000000001`, ""},
		{`system_identifier = 0`, " = 0: " + digits},
		{`system_identifier = -1`, " = -1: " + digits},
		{`system_identifier = 7.3`, " = 7.3: " + digits},
		{`system_identifier = ""`, " = \"\": " + digits},
		{`system_identifier = "0x12"`, " = \"0x12\": " + digits},
		{`system_identifier = "18446744073709551616"`, " = \"18446744073709551616\": " + digits},
		{`system_identifier = [1]`, " = [1]: " + digits},
		{`on_two_writers = "Sitting"`, ` = "Sitting": must be one of "sitting", "refuse"`},
		{`failover_policy = "wait"`, ` = "wait": must be one of "hold", "refuse"`},
		{`standby_balance = "least-waiting"`, ` = "least-waiting": must be one of "least_waiting", "round_robin", "random"`},
		{`connect_concurrency = 0`, " = 0: must be a whole number from 1 to 10000"},
		{`failover_warm = -1`, " = -1: must be a whole number from 0 to 10000"},
		{`max_lag_bytes = -1`, " = -1: must be a whole number from 0 to 1000000000000000"},
		{`max_lag_bytes = "16MB"`, " = \"16MB\": must be a number without quotes, from 0 to 1000000000000000"},
		{`max_lag_time = 5`, ` = 5: must be a string with a unit, such as "5s": a number does not say whether it means seconds`},
		{`role_check_interval = "9ms"`, ` = "9ms": must be a duration from 10ms to 1h`},
		{`evidence_ttl = "1999ms"`, ` = "1.999s": must be at least twice role_check_interval (1s): ` + doubt},
		{`evidence_ttl = "2s"`, ""},
		{`unhealthy_after = "1s"`, ` = "1s": must be at least twice role_check_interval (1s): otherwise the shard would be unhealthy between any two answers`},
		{`monitor_user = ""`, ` = "": must be a name of 1 to 63 bytes without control characters`},
		{`monitor_dbname = ""`, ` = "": must be a name of 1 to 63 bytes without control characters`},
		{`monitor_password = "p"`, `: must come with monitor_user: it is the password of that user`},
		{`monitor_password = "env:NONE"`, `: the environment variable "NONE" is not set`},
		{`state_file = "./f.toml"`, ` = "./f.toml": must not be the settings file, it is written to`},
		{`state_file = 1`, ` = 1: must be a string`},
		{`query_wait_timeout = "1s"`, `: unknown key here, it belongs to [fencepost]`},
		{`evidence_til = "1s"`, `: unknown key, did you mean evidence_ttl?`},
	} {
		key, _, _ := strings.Cut(test.line, " = ")
		t.Run(test.line, func(t *testing.T) {
			want := []string{"f.toml:3: shards.main." + key + test.want}
			if test.want == "" {
				want = nil
			}
			check(t, shards+test.line+"\n"+databases+users, want...)
		})
	}
}

// TestHostLists: which hosts may be in a shard together, and what a plain string means.
func TestHostLists(t *testing.T) {
	const mixed = `must not mix the role "any" with others: a host with the role any is the only host of its shard`
	for hosts, want := range map[string]string{
		`"a"`:                          "",
		`"a", "b"`:                     "",
		`{ addr = "a", role = "any" }`: "",
		`{ addr = "a", role = "replica" }, { addr = "b", role = "replica" }`: "",
		`{ addr = "a", role = "primary" }, { addr = "b", role = "primary" }`: "",
		`"a", { addr = "b" }, { addr = "c", role = "primary" }`:              "",
		`"a", { addr = "b", role = "any" }`:                                  mixed,
		`{ addr = "b", role = "any" }, { addr = "c", role = "replica" }`:     mixed,
		`{ addr = "a", role = "any" }, { addr = "b", role = "any" }`: `must name one host with the role "any", not 2: ` +
			`without monitors there is no choice between hosts`,
		`"a", "b", "a:5432"`:                    `must name each address once, not a:5432 twice`,
		`"A.example", "a.example."`:             `must name each address once, not a.example.:5432 twice`,
		`"::1", "[0:0::1]:5432"`:                `must name each address once, not [0:0::1]:5432 twice`,
		`"::ffff:10.0.0.1", "10.0.0.1"`:         `must name each address once, not 10.0.0.1:5432 twice`,
		`"/run/a", "/run//a/"`:                  `must name each address once, not /run//a/:5432 twice`,
		`"a", { addr = "a", role = "replica" }`: `must name each address once, not a:5432 twice`,
		`"a", "a:5433", "b", "/a"`:              "",
	} {
		var shard, inline []string
		if want != "" {
			shard, inline = []string{"f.toml:2: shards.main.hosts: " + want}, []string{"f.toml:2: databases.app.hosts: " + want}
		}
		check(t, "[shards.main]\nhosts = ["+hosts+"]\n"+databases+users, shard...)
		check(t, "[databases.app]\nhosts = ["+hosts+"]\n"+users, inline...)
	}
}

// TestSharedHostsWithRoles: lists with the same addresses but other roles are shards of their own.
func TestSharedHostsWithRoles(t *testing.T) {
	c := load(t, `
[databases.a]
hosts = ["h", { addr = "i", role = "replica" }]
[databases.b]
hosts = ["h", "i"]
[databases.c]
hosts = [{ addr = "h", role = "auto" }, { addr = "i:5432", role = "replica" }]
`+users)
	if a, b, other := c.Databases["a"].Shard, c.Databases["c"].Shard, c.Databases["b"].Shard; a != b || a != "h:5432,i:5432 replica" || other != "h:5432,i:5432" {
		t.Errorf("shards %q %q %q", a, b, other)
	}
}

// TestMonitorLogin: who asks the hosts of a shard what they are.
func TestMonitorLogin(t *testing.T) {
	const trust = "[fencepost]\nauth_type = \"trust\"\n"
	md5 := "[fencepost]\nauth_type = \"md5\"\n"
	hashed := "[users.a]\npassword = \"md5" + strings.Repeat("0", 32) + "\"\n"
	for name, test := range map[string]struct{ text, want string }{
		"set":                      {shards + "monitor_user = \"m\"\nmonitor_password = \"mp\"\nmonitor_dbname = \"d\"\n" + databases + users, "m mp d"},
		"set, password of [users]": {shards + "monitor_user = \"app\"\n" + databases + users, "app s3cret postgres"},
		"set, no password":         {shards + "monitor_user = \"m\"\n" + databases + users, "m  postgres"},
		"set, verifier in [users]": {md5 + shards + "monitor_user = \"a\"\n" + databases + hashed, "a  postgres"},
		"database's user": {shards + databases + "[databases.z]\nshard = \"main\"\nuser = \"zu\"\npassword = \"zp\"\n" +
			"[databases.y]\nshard = \"main\"\nuser = \"yu\"\npassword = \"yp\"\n[databases.a]\nshard = \"main\"\nuser = \"unknown\"\n" + users, "yu yp postgres"},
		"database's user with the password of [users]": {shards + databases + "user = \"u\"\n" + users + "[users.u]\npassword = \"up\"\n", "u up postgres"},
		"another shard's database":                     {shards + databases + "[databases.a]\nhosts = [\"h\"]\nuser = \"au\"\npassword = \"ap\"\n" + users, "app s3cret postgres"},
		"first of users":                               {md5 + shards + databases + users + hashed + "[users.b]\npassword = \"bp\"\n", "app s3cret postgres"},
		"trust, user of database":                      {trust + shards + databases + "user = \"du\"\n[users.a]\n", "du  postgres"},
		"trust, user":                                  {trust + shards + databases + "[users.b]\n[users.a]\n", "a  postgres"},
		"trust, user with one":                         {trust + shards + databases + "user = \"du\"\n[users.a]\n[users.b]\npassword = \"bp\"\n", "b bp postgres"},
	} {
		c := load(t, test.text)
		user, password, dbname, ok := c.MonitorLogin(c.Shards["main"])
		if got := user + " " + password.Reveal() + " " + dbname; got != test.want || !ok {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, test.want)
		}
	}
}

// TestNoMonitorLogin: a shard whose hosts nobody could ask is refused, one whose host is not asked is not.
func TestNoMonitorLogin(t *testing.T) {
	const why = `, for the monitors to log in with, as no user has a plaintext password` +
		`; or list one host alone, with the role "any"`
	const section = `shards.main.monitor_user: must be set, with monitor_password` + why
	const inline = `databases.app.hosts: must be the hosts of a [shards.NAME] section with monitor_user and monitor_password` + why
	verifier := "[users.app]\npassword = \"SCRAM-SHA-256$4096:c2FsdA==$" + strings.Repeat("A", 43) + "=:" + strings.Repeat("A", 43) + "=\"\n"
	check(t, shards+databases+verifier, "f.toml:1: "+section)
	check(t, shards+databases+"user = \"u\"\n"+verifier, "f.toml:1: "+section)
	check(t, "[fencepost]\nauth_type = \"trust\"\n"+shards+databases, "f.toml:3: "+section)
	check(t, "[databases.app]\nhosts = [\"h\"]\n[databases.b]\nhosts = [\"h\"]\n"+verifier, "f.toml:2: "+inline)
	check(t, shards+"evidence_ttl = \"1s\"\n"+databases+verifier, "f.toml:1: "+section,
		"f.toml:3: shards.main.evidence_ttl = \"1s\": must be at least twice role_check_interval (1s): otherwise the shard would be in doubt between any two answers")
	check(t, unasked+databases+verifier)
	check(t, "[databases.app]\nhosts = [{ addr = \"h\", role = \"any\" }]\n"+verifier)
	check(t, shards+"monitor_user = \"m\"\n"+databases+verifier)
	c := load(t, unasked+databases+verifier)
	if user, _, _, ok := c.MonitorLogin(c.Shards["main"]); ok {
		t.Errorf("%q logs in with a verifier", user)
	}
}

// TestShardSections: what whole sections of shards refuse.
func TestShardSections(t *testing.T) {
	const nobody = `: the host of its shard has the role "any", it has no monitor`
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"interval above the defaults": {shards + "role_check_interval = \"6s\"\n" + databases + users, []string{
			`f.toml:1: shards.main.evidence_ttl: must be at least twice role_check_interval (6s): otherwise the shard would be in doubt between any two answers; its default is 3s`,
			`f.toml:1: shards.main.unhealthy_after: must be at least twice role_check_interval (6s): otherwise the shard would be unhealthy between any two answers; its default is 10s`}},
		"wrong interval, no consequences": {shards + "role_check_interval = \"2h\"\nevidence_ttl = \"1s\"\n" + databases + users, []string{
			`f.toml:3: shards.main.role_check_interval = "2h": must be a duration from 10ms to 1h`}},
		"monitor's verifier": {shards + "monitor_user = \"m\"\nmonitor_password = \"md5" + strings.Repeat("0", 32) + "\"\n" + databases + users, []string{
			`f.toml:4: shards.main.monitor_password: must be the password itself: a verifier is not enough to log in to a server`}},
		"one state file": {shards + "state_file = \"s\"\n[shards.x]\nhosts = [\"h\"]\nstate_file = \"./a/../s\"\n[shards.y]\nhosts = [\"i\"]\nstate_file = \"t\"\n" + databases + users, []string{
			`f.toml:6: shards.x.state_file = "./a/../s": must be a file of the shard's own, not that of main`}},
		"shard's key in a database": {shards + databases + "monitor_user = \"m\"\n" + users, []string{
			`f.toml:5: databases.app.monitor_user: unknown key here, it belongs to [shards.NAME]`}},
		"asking for a standby of a host that is not asked": {unasked + databases + "target = \"standby\"\nfence = \"always\"\n" + users, []string{
			`f.toml:5: databases.app.target = "standby": must not be set` + nobody,
			`f.toml:6: databases.app.fence = "always": must not be set` + nobody}},
		"asking for nothing of a host that is not asked": {unasked + databases + "target = \"any\"\nfence = \"off\"\n" + users, nil},
		"words of databases": {shards + databases + "target = \"primary\"\nfence = \"never\"\n" + users, []string{
			`f.toml:5: databases.app.target = "primary": must be one of "read-write", "standby", "prefer-standby", "any"`,
			`f.toml:6: databases.app.fence = "never": must be one of "auto", "always", "off"`}},
	} {
		t.Run(name, func(t *testing.T) { check(t, test.text, test.want...) })
	}
}

// TestTargetAndFence: what holds where nothing is written.
func TestTargetAndFence(t *testing.T) {
	c := load(t, shards+"[shards.reads]\nhosts = [{ addr = \"a\", role = \"replica\" }, { addr = \"b\", role = \"replica\" }]\n"+
		databases+"[databases.reads]\nshard = \"reads\"\n[databases.writes]\nshard = \"reads\"\ntarget = \"read-write\"\n"+
		"[databases.\"*\"]\nshard = \"main\"\ntarget = \"prefer-standby\"\nfence = \"off\"\npool_mode = \"session\"\n"+
		"[databases.session]\nshard = \"main\"\npool_mode = \"session\"\n[databases.statement]\nshard = \"main\"\npool_mode = \"statement\"\nfence = \"always\"\n"+
		users+"[users.s]\npassword = \"p\"\npool_mode = \"session\"\n")
	for _, test := range []struct {
		db, user string
		target   Target
		fence    Fence
	}{
		{"app", "app", TargetReadWrite, FenceAuto}, {"app", "s", TargetReadWrite, FenceAlways}, {"reads", "app", TargetStandby, FenceAuto},
		{"writes", "app", TargetReadWrite, FenceAuto}, {"other", "app", TargetPreferStandby, FenceOff},
		{"session", "app", TargetReadWrite, FenceAlways}, {"statement", "app", TargetReadWrite, FenceAlways},
	} {
		db, _ := c.Database(test.db)
		if fence := c.PoolSettings(db, test.user).Fence; db.Target != test.target || fence != test.fence {
			t.Errorf("%s for %s: target %q, fence %q, want %q, %q", test.db, test.user, db.Target, fence, test.target, test.fence)
		}
	}
}
