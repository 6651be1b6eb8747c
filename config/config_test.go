package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// minimal is the least a file needs.
const minimal = `
[shards.main]
hosts = ["127.0.0.1:5432"]
[databases."*"]
shard = "main"
[users.app]
password = "s3cret"
`

func load(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parse("f.toml", []byte(text), testSecrets{files: "from a file\n", vars: map[string]string{"SET": "from the environment", "EMPTY": ""}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMinimal: the smallest file works, for any database name, with the defaults.
func TestMinimal(t *testing.T) {
	c := load(t, minimal)
	if !reflect.DeepEqual(c.Fencepost, Default()) {
		t.Errorf("[fencepost] is %+v, want the defaults", c.Fencepost)
	}
	db, ok := c.Database("anything")
	if !ok || db.Name != "anything" || db.DBName != "anything" || db.Shard != "main" {
		t.Fatalf("database: %+v, %v", db, ok)
	}
	if want := []Host{{Addr: "127.0.0.1:5432", Role: RoleAuto}}; !slices.Equal(c.Shards["main"].Hosts, want) {
		t.Errorf("hosts %v", c.Shards["main"].Hosts)
	}
	want := PoolSettings{Mode: PoolTransaction, Size: 20, QueryWaitTimeout: 2 * time.Minute, ServerLifetime: time.Hour, Fence: FenceAuto}
	if got := c.PoolSettings(db, "nobody"); got != want {
		t.Errorf("pool settings %+v, want %+v", got, want)
	}
}

// TestDefaults: the defaults that others rely on, as numbers.
func TestDefaults(t *testing.T) {
	f := Default()
	f.EventLoop = LoopEpoll
	want := Fencepost{
		ListenAddr: "127.0.0.1", ListenPort: 6432, ListenBacklog: 4096, UnixSocketDir: "/tmp", UnixSocketMode: 0o777,
		EventLoops: 1, EventLoop: LoopEpoll, PoolMode: PoolTransaction, DefaultPoolSize: 20, MaxClientConn: 1000,
		QueryWaitTimeout: 120 * time.Second, ServerConnectTimeout: 15 * time.Second, ServerLoginRetry: 15 * time.Second,
		ServerIdleTimeout: 600 * time.Second, ServerLifetime: 3600 * time.Second, ServerResetQuery: "DISCARD ALL", MaxPreparedStatements: 200,
		ClientLoginTimeout: 60 * time.Second, CancelOnDisconnect: true, CancelAckTimeout: 5 * time.Second,
		IgnoreStartupParameters: []string{"extra_float_digits"}, TrackExtraParameters: []string{"IntervalStyle"},
		AuthType: AuthSCRAM, AdminUsers: []string{}, StatsUsers: []string{}, AdminHTTP: "127.0.0.1:6433", StatsPeriod: time.Minute,
		Sigterm: SigtermDrain, LogLevel: LogInfo, LogFormat: LogJSON,
		LogConnections: true, LogDisconnections: true, LogPoolerErrors: true, TCPKeepalive: true,
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
}

// TestEverySetting: a value other than the default reaches its field, for every key of every section.
func TestEverySetting(t *testing.T) {
	text := func(settings []setting, values map[string]string) string {
		var b strings.Builder
		for _, s := range settings {
			value, ok := values[s.key]
			if !ok {
				t.Errorf("no value for %s in this test", s.key)
			}
			fmt.Fprintf(&b, "%s = %s\n", s.key, value)
		}
		return b.String()
	}
	fencepost := map[string]string{
		"listen_addr": `"::1, 10.0.0.1"`, "listen_port": "5433", "listen_backlog": "7", "unix_socket_dir": `"@x"`, "unix_socket_mode": `"0700"`,
		"so_reuseport": "true", "pidfile": `"/p"`, "peer_id": "3", "event_loops": "2", "event_loop": `"portable"`, "pool_mode": `"session"`,
		"default_pool_size": "9", "min_pool_size": "2", "max_client_conn": "8", "max_db_connections": "6", "server_round_robin": "true",
		"query_wait_timeout": `"1s"`, "server_connect_timeout": `"2s"`, "server_login_retry": `"3s"`, "server_idle_timeout": `"4s"`,
		"server_lifetime": `"5s"`, "server_reset_query": `""`, "max_prepared_statements": "17", "client_login_timeout": `"6s"`, "cancel_on_disconnect": "false", "cancel_ack_timeout": `"7s"`,
		"ignore_startup_parameters": `["options"]`, "track_extra_parameters": `["search_path"]`, "auth_type": `"md5"`,
		"admin_users": `["app"]`, "stats_users": `["app"]`, "admin_http": `""`, "stats_period": `"8s"`, "sigterm": `"wait_for_clients"`,
		"drain_grace": `"16s"`, "drain_timeout": `"9s"`, "log_level": `"debug"`, "log_format": `"console"`, "log_connections": "false", "log_disconnections": "false",
		"log_pooler_errors": "false", "tcp_keepalive": "false", "tcp_keepidle": `"10s"`, "tcp_keepintvl": `"11s"`, "tcp_keepcnt": "12",
		"tcp_user_timeout": `"13ms"`,
	}
	database := map[string]string{
		"shard": `"main"`, "hosts": `["h"]`, "dbname": `"d"`, "user": `"u"`, "password": `"p"`, "target": `"standby"`, "fence": `"off"`, "pool_mode": `"statement"`, "pool_size": "4",
		"min_pool_size": "1", "max_db_connections": "0", "query_wait_timeout": `"0s"`, "server_lifetime": `"14s"`,
	}
	user := map[string]string{"password": `"p"`, "pool_mode": `"session"`, "pool_size": "3", "query_wait_timeout": `"15s"`}
	other := slices.DeleteFunc(slices.Clone(databaseSettings), func(s setting) bool { return s.key == "hosts" })
	c := load(t, "[fencepost]\n"+text(fencepostSettings, fencepost)+shards+
		"[databases.app]\n"+text(other, database)+"[databases.h]\nhosts = ["+`"h"`+"]\n[users.app]\n"+text(userSettings, user))
	wantFencepost := Fencepost{
		"::1, 10.0.0.1", 5433, 7, "@x", 0o700, true, "/p", 3, 2, LoopPortable, PoolSession, 9, 2, 8, 6, true,
		time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, "", 17, 6 * time.Second, false, 7 * time.Second,
		[]string{"options"}, []string{"search_path"}, AuthMD5, []string{"app"}, []string{"app"}, "", 8 * time.Second,
		SigtermWaitForClients, 16 * time.Second, 9 * time.Second, LogDebug, LogConsole, false, false, false, false, 10 * time.Second, 11 * time.Second, 12,
		13 * time.Millisecond,
	}
	if !reflect.DeepEqual(c.Fencepost, wantFencepost) {
		t.Errorf("got  %+v\nwant %+v", c.Fencepost, wantFencepost)
	}
	wantDatabase := Database{"app", "main", nil, "d", "u", NewSecret("p"), TargetStandby, FenceOff, PoolStatement, Some(4), Some(1), Some(0),
		Some(time.Duration(0)), Some(14 * time.Second)}
	if !reflect.DeepEqual(*c.Databases["app"], wantDatabase) {
		t.Errorf("got  %+v\nwant %+v", *c.Databases["app"], wantDatabase)
	}
	wantUser := User{"app", NewSecret("p"), PoolSession, Some(3), Some(15 * time.Second)}
	if *c.Users["app"] != wantUser {
		t.Errorf("got  %+v\nwant %+v", *c.Users["app"], wantUser)
	}
	for _, row := range c.Rows() {
		if row.Value == row.Default {
			t.Errorf("%s has its default in this test", row.Key)
		}
	}
}

// TestPoolSettings: user before database before [fencepost]; what is set to zero is set.
func TestPoolSettings(t *testing.T) {
	c := load(t, `
[fencepost]
pool_mode = "transaction"
default_pool_size = 20
min_pool_size = 3
max_db_connections = 50
query_wait_timeout = "100s"
[shards.main]
hosts = ["h"]
[databases.plain]
shard = "main"
[databases.own]
shard = "main"
pool_mode = "session"
pool_size = 10
min_pool_size = 8
max_db_connections = 0
query_wait_timeout = "0s"
server_lifetime = "0s"
[users.plain]
password = "p"
[users.own]
password = "p"
pool_mode = "statement"
pool_size = 5
query_wait_timeout = "7s"
`)
	for _, test := range []struct {
		db, user string
		want     PoolSettings
	}{
		{"plain", "plain", PoolSettings{PoolTransaction, 20, 3, 50, 100 * time.Second, time.Hour, FenceAuto}},
		{"plain", "unlisted", PoolSettings{PoolTransaction, 20, 3, 50, 100 * time.Second, time.Hour, FenceAuto}},
		{"own", "plain", PoolSettings{PoolSession, 10, 8, 0, 0, 0, FenceAlways}},
		{"plain", "own", PoolSettings{PoolStatement, 5, 3, 50, 7 * time.Second, time.Hour, FenceAuto}},
		{"own", "own", PoolSettings{PoolStatement, 5, 5, 0, 7 * time.Second, 0, FenceAuto}}, // MinSize is never more than Size
	} {
		db, _ := c.Database(test.db)
		if got := c.PoolSettings(db, test.user); got != test.want {
			t.Errorf("database %s, user %s: %+v, want %+v", test.db, test.user, got, test.want)
		}
	}
}

func TestDatabase(t *testing.T) {
	listed := load(t, shards+databases+"[databases.named]\nshard = \"main\"\ndbname = \"real\"\n"+users)
	wild := load(t, minimal+"[databases.listed]\nshard = \"main\"\npool_size = 4\n")
	fixed := load(t, shards+"[databases.\"*\"]\nshard = \"main\"\ndbname = \"one\"\n"+users)
	for _, test := range []struct {
		c            *Config
		name, dbname string
	}{
		{listed, "app", "app"}, {listed, "named", "real"}, {listed, "other", ""}, {listed, "*", ""}, {listed, "", ""},
		{wild, "x", "x"}, {wild, "*", "*"}, {wild, "", ""}, {wild, "fencepost", ""}, {wild, "pgbouncer", ""},
		{wild, strings.Repeat("n", 63), strings.Repeat("n", 63)}, {wild, strings.Repeat("n", 64), ""}, {wild, "a\nb", ""},
		{wild, "listed", "listed"}, {fixed, "x", "one"},
	} {
		db, ok := test.c.Database(test.name)
		switch {
		case ok != (test.dbname != ""):
			t.Errorf("%q: found %v", test.name, ok)
		case ok && (db.Name != test.name || db.DBName != test.dbname):
			t.Errorf("%q: %q, dbname %q, want %q", test.name, db.Name, db.DBName, test.dbname)
		}
	}
	if db, _ := wild.Database("listed"); db.PoolSize != Some(4) || db != wild.Databases["listed"] {
		t.Errorf("a listed database is not its own section: %+v", db)
	}
	if wild.Databases["*"].DBName != "" || wild.Databases["*"].Name != "*" {
		t.Errorf("the section was changed: %+v", wild.Databases["*"])
	}
}

// TestSharedHosts: equal lists of hosts in databases are one shard, apart from the named ones.
func TestSharedHosts(t *testing.T) {
	c := load(t, "[shards.main]\nhosts = [\"h\"]\n[databases.a]\nhosts = [\"h\"]\n[databases.b]\nhosts = [\"h:5432\"]\n"+
		"[databases.c]\nhosts = [{ addr = \"i\", role = \"any\" }]\n[databases.d]\nshard = \"main\"\n"+users)
	var got []string
	for _, name := range []string{"a", "b", "c", "d"} {
		got = append(got, c.Databases[name].Shard)
	}
	if want := []string{"h:5432", "h:5432", "i:5432 any", "main"}; !slices.Equal(got, want) {
		t.Errorf("shards %q, want %q", got, want)
	}
	if want := []string{"h:5432", "i:5432 any", "main"}; !slices.Equal(sortedKeys(c.Shards), want) {
		t.Errorf("shards %q, want %q", sortedKeys(c.Shards), want)
	}
	if s := c.Shards["i:5432 any"]; s.Name != "i:5432 any" || !slices.Equal(s.Hosts, []Host{{"i:5432", RoleAny}}) {
		t.Errorf("shard %+v", s)
	}
}

func TestHosts(t *testing.T) {
	for _, test := range []struct{ written, addr, host, network, endpoint string }{
		{"h", "h:5432", "h", "tcp", "h:5432"},
		{"db-1.example.com:5433", "db-1.example.com:5433", "db-1.example.com", "tcp", "db-1.example.com:5433"},
		{"10.0.0.1", "10.0.0.1:5432", "10.0.0.1", "tcp", "10.0.0.1:5432"},
		{"::1", "[::1]:5432", "::1", "tcp", "[::1]:5432"},
		{"[::1]", "[::1]:5432", "::1", "tcp", "[::1]:5432"},
		{"[fe80::1%eth0]:1", "[fe80::1%eth0]:1", "fe80::1%eth0", "tcp", "[fe80::1%eth0]:1"},
		{"/run/postgresql", "/run/postgresql:5432", "/run/postgresql", "unix", "/run/postgresql/.s.PGSQL.5432"},
		{"/run/a:b:5433", "/run/a:b:5433", "/run/a:b", "unix", "/run/a:b/.s.PGSQL.5433"},
	} {
		addr, ok := parseAddr(test.written)
		if !ok || addr != test.addr {
			t.Errorf("%q: %q, %v, want %q", test.written, addr, ok, test.addr)
		}
		h := Host{Addr: addr}
		host, port := h.HostPort()
		network, endpoint := h.Endpoint()
		if host != test.host || network != test.network || endpoint != test.endpoint || !strings.HasSuffix(addr, fmt.Sprintf(":%d", port)) {
			t.Errorf("%q: host %q port %d, %s %q", test.written, host, port, network, endpoint)
		}
	}
	for _, bad := range []string{"", ":", ":5432", "h:", "h:0", "h:65536", "h:x", "h:-1", "a b", "[::1", "[::1]x", "[]:1", "a:b:1", "*", "h/x", "u@h", "-h", "/x:y:", "/" + strings.Repeat("d", 93)} {
		if addr, ok := parseAddr(bad); ok {
			t.Errorf("%q is taken as %q", bad, addr)
		}
	}
	if host, port := (Host{Addr: "made-by-hand"}).HostPort(); host != "made-by-hand" || port != 5432 {
		t.Errorf("without a port: %q %d", host, port)
	}
}

func TestListen(t *testing.T) {
	for _, test := range []struct {
		addr, dir, socket string
		want              []string
	}{
		{"*", "/tmp", "/tmp/.s.PGSQL.6432", []string{":6432"}},
		{"", "@x", "@x/.s.PGSQL.6432", nil},
		{"127.0.0.1, ::1,localhost", "", "", []string{"127.0.0.1:6432", "[::1]:6432", "localhost:6432"}},
	} {
		f := Default()
		f.ListenAddr, f.UnixSocketDir = test.addr, test.dir
		if got := f.ListenAddresses(); !slices.Equal(got, test.want) || f.UnixSocket() != test.socket {
			t.Errorf("%q %q: %q %q", test.addr, test.dir, got, f.UnixSocket())
		}
	}
}

func TestServerLogin(t *testing.T) {
	md5 := "md5" + strings.Repeat("0", 32)
	c := load(t, "[fencepost]\nauth_type = \"md5\"\n"+shards+databases+
		"[databases.forced]\nshard = \"main\"\nuser = \"owner\"\npassword = \"op\"\n"+
		"[databases.listed]\nshard = \"main\"\nuser = \"app\"\n[databases.hashed]\nshard = \"main\"\nuser = \"hash\"\n"+
		users+"[users.hash]\npassword = \""+md5+"\"\n")
	for _, test := range []struct{ db, client, user, password string }{
		{"app", "app", "app", "s3cret"}, {"app", "hash", "hash", ""}, {"app", "unknown", "unknown", ""},
		{"forced", "app", "owner", "op"}, {"listed", "hash", "app", "s3cret"}, {"hashed", "app", "hash", ""},
	} {
		db, _ := c.Database(test.db)
		if user, password := c.ServerLogin(db, test.client); user != test.user || password.Reveal() != test.password {
			t.Errorf("%s for %s: %q %q", test.db, test.client, user, password.Reveal())
		}
	}
}

// TestSecrets: where secrets come from, and what is said when they do not come.
func TestSecrets(t *testing.T) {
	for written, want := range map[string]string{
		"plain": "plain", "file:/x": "from a file", "env:SET": "from the environment",
		"md5x": "md5x", "filed": "filed", " env:SET": " env:SET",
	} {
		c := load(t, shards+databases+"[users.app]\npassword = \""+written+"\"\n")
		if got := c.Users["app"].Password.Reveal(); got != want {
			t.Errorf("%q: %q, want %q", written, got, want)
		}
	}
	head := shards + databases + "[users.app]\npassword = "
	for value, rule := range map[string]string{
		`"env:NOT_SET"`: `the environment variable "NOT_SET" is not set`,
		`"env:EMPTY"`:   `the environment variable "EMPTY" is empty`,
		`"env:"`:        `must name an environment variable after env:`,
		`""`:            `must not be empty; leave it out for none`,
		`12345`:         `must be a string`,
		`["hunter2"]`:   `must be a string`,
		`"a\u0000b"`:    `must not contain a zero byte`,
	} {
		check(t, head+value+"\n", "f.toml:6: users.app.password: "+rule)
	}
	dir := t.TempDir()
	for written, want := range map[string]string{
		"file:none": `f.toml:6: users.app.password: the file "none" cannot be read: no such file or directory`,
		"file:":     `f.toml:6: users.app.password: the file "" cannot be read: is a directory`,
	} {
		if _, err := parse("f.toml", []byte(head+`"`+written+`"`), osSecrets{dir: dir}); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", written, err, want)
		}
	}
	if _, err := parse("f.toml", []byte(head+`"file:x"`), testSecrets{files: "\r\n"}); err == nil || !strings.HasSuffix(err.Error(), `the file "x" is empty`) {
		t.Errorf("empty file: %v", err)
	}
}

// TestSecretsHidden: no way of printing a loaded Config shows a secret, and no message about a wrong file does.
func TestSecretsHidden(t *testing.T) {
	c := load(t, shards+"monitor_user = \"m\"\nmonitor_password = \"hunter2\"\n"+
		"[databases.app]\nshard = \"main\"\nuser = \"u\"\npassword = \"hunter2\"\n[users.app]\npassword = \"hunter2\"\n")
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	u, db, shard := *c.Users["app"], *c.Databases["app"], *c.Shards["main"]
	printed := []string{string(asJSON), u.Password.String(), fmt.Sprint(c.Rows())}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, u), fmt.Sprintf(verb, db), fmt.Sprintf(verb, shard), fmt.Sprintf(verb, u.Password), fmt.Sprintf(verb, &u.Password), fmt.Sprintf(verb, *c))
	}
	for _, bad := range []string{
		"[users]\napp = \"hunter2\"\n", "users = \"hunter2\"\n", "[users.app]\npasword = \"hunter2\"\n", "[users.app]\npassword = [\"hunter2\"]\n",
		"[users.app]\npassword = { x = \"hunter2\" }\n", "[users.app]\npassword = hunter2\n", "[users.app]\npassword = \"hunter2\n",
		"[users.app]\npassword = 'hunter2\n\n[x]", "[users.app]\npassword = \"hunter2\"x\n", "[users.app]\npassword =\nhunter2\n",
		"[databases.app]\nshard = \"postgres://u:hunter2@h/d\"\n", "[databases.app]\nshard = \"host=h password=hunter2\"\n",
		"[databases.app]\nhosts = [\"postgres://u:hunter2@h/d\"]\n", "[databases]\napp = \"host=h password=hunter2\"\n",
		"[databases.app]\npassword = \"hunter2\"\n", "[databases.app]\nuser = \"u\"\npassword = \"SCRAM-SHA-256$hunter2\"\n",
		"[shards.main]\nmonitor_password = \"hunter2\"\n", "[shards.main]\nmonitor_pasword = \"hunter2\"\n",
		"[shards.main]\nhosts = [\"a\", \"postgres://u:hunter2@h/d\"]\n", "[shards.main]\nhosts = [{ addr = \"a\", role = \"hunter2\" }]\n",
		"[shards.main]\nmonitor_user = \"m\"\nmonitor_password = \"SCRAM-SHA-256$hunter2\"\n",
		"[fencepost]\nadmin_http = \"http://ops:hunter2@h\"\n", "[users.app]\npassword = \"hunter2\\z\"\n",
	} {
		_, err := parse("f.toml", []byte(bad), testSecrets{})
		if err == nil {
			t.Errorf("no problem in %q", bad)
			continue
		}
		printed = append(printed, err.Error())
	}
	for line := 1; line <= 3; line++ { // wherever near the key the library finds the fault
		p := syntaxProblem([]byte("password =\nhunter2\n"), toml.ParseError{Message: "found hunter2", Position: toml.Position{Line: line}})
		printed = append(printed, p.Rule)
	}
	if n := strings.Count(string(asJSON), "(hidden)"); n != 3 {
		t.Errorf("JSON shows that a secret is set %d times, want 3: %s", n, asJSON)
	}
	if text := fmt.Sprintf("%+v", u); !strings.Contains(text, "Password:(hidden)") {
		t.Errorf("not shown that a secret is set: %s", text)
	}
	for _, text := range printed {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("shows a secret: %s", text)
		}
	}
	if u.Password.String() != "(hidden)" || (Secret{}).String() != "" || !u.Password.IsSet() || (Secret{}).IsSet() {
		t.Error("whether a secret is set does not show")
	}
}

func TestRows(t *testing.T) {
	rows := load(t, "[fencepost]\nadmin_users = [\"app\", \"b\"]\nserver_lifetime = \"90m\"\n"+minimal+"[users.b]\npassword = \"p\"\n").Rows()
	if len(rows) != len(fencepostSettings) || !slices.IsSortedFunc(rows, func(a, b Row) int { return strings.Compare(a.Key, b.Key) }) {
		t.Fatalf("%d rows, or not sorted", len(rows))
	}
	for _, want := range []Row{
		{"admin_users", "app,b", "", true}, {"server_lifetime", "1h30m", "1h", true}, {"listen_port", "6432", "6432", false},
		{"unix_socket_mode", "0777", "0777", false}, {"so_reuseport", "false", "false", false}, {"drain_timeout", "0s", "0s", true},
		{"pool_mode", "transaction", "transaction", true}, {"query_wait_timeout", "2m", "2m", true},
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %+v", want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 10 * time.Second: "10s", 100 * time.Millisecond: "100ms", time.Minute: "1m", 10 * time.Minute: "10m",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 20 * time.Hour: "20h", time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestReload: what a reload reports and what is in force afterwards.
func TestReload(t *testing.T) {
	from := load(t, "[fencepost]\nlisten_port = 7000\npool_mode = \"session\"\n"+shards+
		databases+"[databases.gone]\nshard = \"main\"\n[databases.inline]\nhosts = [\"h\"]\n"+users+"[users.gone]\npassword = \"p\"\n")
	to := load(t, "[fencepost]\nlisten_port = 7001\nlog_format = \"console\"\nadmin_users = [\"app\"]\n"+
		"[shards.main]\nhosts = [\"other\"]\n[shards.\"n.1\"]\nhosts = [\"n\"]\n"+
		databases+"pool_size = 3\nuser = \"u\"\n[databases.inline]\nhosts = [\"i\"]\n[databases.\"new one\"]\nshard = \"main\"\n[users.app]\npassword = \"changed\"\n")
	applied, restart := Changes(from, to)
	wantApplied := []string{"admin_users", `databases."new one"`, "databases.app.pool_size", "databases.app.user", "databases.gone",
		"databases.inline.hosts", "pool_mode", `shards."n.1"`, "shards.main.hosts", "users.app.password", "users.gone"}
	if !slices.Equal(applied, wantApplied) {
		t.Errorf("applied %q\nwant    %q", applied, wantApplied)
	}
	if want := []string{"listen_port", "log_format"}; !slices.Equal(restart, want) {
		t.Errorf("restart %q, want %q", restart, want)
	}
	if applied, restart := Changes(from, from); len(applied)+len(restart) != 0 {
		t.Errorf("nothing changed, but %q %q", applied, restart)
	}
	next := Reloaded(from, to)
	if next.Fencepost.ListenPort != 7000 || next.Fencepost.LogFormat != LogJSON || next.Fencepost.PoolMode != PoolTransaction ||
		next.Users["app"].Password.Reveal() != "changed" || to.Fencepost.ListenPort != 7001 {
		t.Errorf("in force after the reload: %+v", next.Fencepost)
	}
	if applied, restart := Changes(next, to); len(applied) != 0 || !slices.Equal(restart, []string{"listen_port", "log_format"}) {
		t.Errorf("after the reload still %q %q", applied, restart)
	}
}
