package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The sections of a valid file, to be put around what a test is about.
const (
	shards    = "[shards.main]\nhosts = [\"127.0.0.1:5432\"]\n"
	unasked   = "[shards.main]\nhosts = [{ addr = \"127.0.0.1\", role = \"any\" }]\n"
	databases = "[databases.app]\nshard = \"main\"\n"
	users     = "[users.app]\npassword = \"s3cret\"\n"
	rest      = shards + databases + users
)

func check(t *testing.T, text string, want ...string) {
	t.Helper()
	c, err := parse("f.toml", []byte(text), testSecrets{files: "from a file\n", vars: map[string]string{"SET": "v", "EMPTY": ""}})
	if len(want) == 0 {
		if err != nil {
			t.Errorf("unexpected problems:\n%v", err)
		}
		return
	}
	if c != nil {
		t.Error("a Config was returned beside an error or in its place")
	}
	var problems *Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is %v, want problems:\n%s", err, strings.Join(want, "\n"))
	}
	if got := problems.Error(); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestValues: each kind of value that a key of [fencepost] refuses, with the message.
func TestValues(t *testing.T) {
	const socket = "must be an absolute path, \"\" or, in the abstract namespace, \"@\" and a name"
	const listen = "must be \"*\", \"\" or addresses separated by commas (the port is listen_port)"
	const http = "must be \"host:port\", \":port\" for all addresses or \"\" for none"
	const list = "must be a list of strings, such as [\"a\", \"b\"]"
	const mode = "must be a string of octal digits from \"0000\" to \"0777\""
	const number = "must be a string with a unit, such as \"5s\": a number does not say whether it means seconds"
	const duration = "must be a duration such as \"500ms\", \"5s\", \"10m\" or \"1h30m\""
	for _, test := range []struct{ line, want string }{
		{`listen_port = 0`, "= 0: must be a whole number from 1 to 65535"},
		{`listen_port = 65536`, "= 65536: must be a whole number from 1 to 65535"},
		{`listen_port = "6432"`, "= \"6432\": must be a number without quotes, from 1 to 65535"},
		{`listen_port = 6432.0`, "= 6432: must be a whole number from 1 to 65535"},
		{`listen_port = true`, "= true: must be a whole number from 1 to 65535"},
		{`default_pool_size = 0`, "= 0: must be a whole number from 1 to 100000"},
		{`max_client_conn = -1`, "= -1: must be a whole number from 1 to 1000000"},
		{`peer_id = 16384`, "= 16384: must be a whole number from 0 to 16383"},
		{`event_loops = 0`, "= 0: must be a whole number from 1 to 256"},
		{`query_wait_timeout = 120`, "= 120: " + number},
		{`query_wait_timeout = 1.5`, "= 1.5: must be a string with a unit, such as \"5s\""},
		{`query_wait_timeout = "120"`, "= \"120\": " + duration},
		{`query_wait_timeout = "2 m"`, "= \"2 m\": " + duration},
		{`query_wait_timeout = ""`, "= \"\": " + duration},
		{`query_wait_timeout = "1d"`, "= \"1d\": " + duration},
		{`query_wait_timeout = "-1s"`, "= \"-1s\": must be a duration from 0s to 8760h"},
		{`server_connect_timeout = "0s"`, "= \"0s\": must be a duration from 1ms to 8760h"},
		{`server_login_retry = "50ms"`, "= \"50ms\": must be a duration from 100ms to 8760h"},
		{`server_lifetime = "9000h"`, "= \"9000h\": must be a duration from 0s to 8760h"},
		{`tcp_keepidle = "1500ms"`, "= \"1500ms\": must be whole seconds"},
		{`tcp_keepintvl = "10h"`, "= \"10h\": must be a duration from 0s to 9h"},
		{`tcp_user_timeout = "1us"`, "= \"1us\": must be whole milliseconds"},
		{`server_round_robin = 1`, "= 1: must be true or false"},
		{`log_connections = "yes"`, "= \"yes\": must be true or false"},
		{`pool_mode = "Session"`, "= \"Session\": must be one of \"session\", \"transaction\", \"statement\""},
		{`pool_mode = ""`, "= \"\": must be one of \"session\", \"transaction\", \"statement\""},
		{`pool_mode = 1`, "= 1: must be one of \"session\", \"transaction\", \"statement\""},
		{`auth_type = "plain"`, "= \"plain\": must be one of \"trust\", \"password\", \"md5\", \"scram-sha-256\""},
		{`event_loop = "io_uring"`, "= \"io_uring\": must be one of \"epoll\", \"portable\""},
		{`sigterm = "stop"`, "= \"stop\": must be one of \"drain\", \"wait_for_clients\""},
		{`log_level = "trace"`, "= \"trace\": must be one of \"debug\", \"info\", \"warn\", \"error\""},
		{`log_format = "text"`, "= \"text\": must be one of \"json\", \"console\""},
		{`unix_socket_mode = 777`, "= 777: " + mode},
		{`unix_socket_mode = "0888"`, "= \"0888\": " + mode},
		{`unix_socket_mode = "1777"`, "= \"1777\": " + mode},
		{`unix_socket_dir = "tmp"`, "= \"tmp\": " + socket},
		{`unix_socket_dir = "@"`, "= \"@\": " + socket},
		{`unix_socket_dir = "/` + strings.Repeat("d", 93) + `"`, "= \"/" + strings.Repeat("d", 93) + "\": must be shorter: a socket's path has at most 107 bytes"},
		{`listen_addr = "127.0.0.1:6432"`, "= \"127.0.0.1:6432\": " + listen},
		{`listen_addr = "127.0.0.1,"`, "= \"127.0.0.1,\": " + listen},
		{`listen_addr = "*,::1"`, "= \"*,::1\": " + listen},
		{`listen_addr = "a b"`, "= \"a b\": " + listen},
		{`listen_addr = ["127.0.0.1"]`, "= [\"127.0.0.1\"]: must be a string"},
		{`admin_http = "6433"`, "= \"6433\": " + http},
		{`admin_http = "*:6433"`, "= \"*:6433\": " + http},
		{`admin_http = "127.0.0.1:0"`, "= \"127.0.0.1:0\": " + http},
		{`admin_http = "127.0.0.1:http"`, "= \"127.0.0.1:http\": " + http},
		{`admin_http = "127.0.0.1:6432"`, "= \"127.0.0.1:6432\": must not be where clients connect (listen_addr, listen_port)"},
		{`admin_http = ":6432"`, "= \":6432\": must not be where clients connect (listen_addr, listen_port)"},
		{`server_reset_query = "a\u0000b"`, "= \"a\\x00b\": must not contain a zero byte"},
		{`ignore_startup_parameters = "extra_float_digits"`, "= \"extra_float_digits\": " + list},
		{`ignore_startup_parameters = [1]`, "= [1]: " + list},
		{`ignore_startup_parameters = ["a", "b", "a"]`, "= [\"a\", \"b\", \"a\"]: must name \"a\" only once"},
		{`ignore_startup_parameters = [""]`, "= [\"\"]: must not contain an empty string or one with a zero byte"},
		{`track_extra_parameters = ["x; DROP"]`, "= [\"x; DROP\"]: must name parameters of PostgreSQL, which \"x; DROP\" cannot be"},
		{`min_pool_size = 21`, "= 21: must not be more than default_pool_size (20)"},
		{`max_packet_size = 1`, ": unknown key, this version does not have this setting of PgBouncer"},
		{`server_check_query = ""`, ": unknown key, this version does not have this setting of PgBouncer"},
		{`auth_file = "/etc/userlist.txt"`, ": unknown key, instead of this setting of PgBouncer list the users as [users.NAME]"},
		{`cancel_wait_timeout = "10s"`, ": unknown key, instead of this setting of PgBouncer use cancel_ack_timeout"},
		{`poolmode = "session"`, ": unknown key, did you mean pool_mode?"},
		{`Listen_Addr = "*"`, ": unknown key, did you mean listen_addr?"},
		{`pool_size = 5`, ": unknown key, did you mean default_pool_size?"},
		{`frobnicate = 5`, ": unknown key"},
		{`"a\nb" = 5`, ": unknown key"},
	} {
		key, _, _ := strings.Cut(test.line, " = ")
		if !strings.HasPrefix(test.want, ":") {
			key += " "
		}
		t.Run(test.line, func(t *testing.T) {
			check(t, "[fencepost]\n\n"+test.line+"\n"+rest, "f.toml:3: fencepost."+key+test.want)
		})
	}
}

// TestSections: what whole sections refuse.
func TestSections(t *testing.T) {
	const address = `must be addresses: "host:port", "[ipv6]:port" or "/directory" of a Unix socket; without a port 5432`
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing at all": {"", []string{
			`f.toml: databases: must be set: at least one [databases.NAME], or [databases."*"] for any name`,
			`f.toml: users: must be set: with auth_type "scram-sha-256" only users with a [users.NAME] section can log in`}},
		"unknown sections": {rest + "[fleets]\nname = \"x\"\n[database.x]\n[user]\n", []string{
			`f.toml:7: fleets: unknown section, did you mean fleet?`,
			`f.toml:9: database: unknown section, did you mean databases?`,
			`f.toml:10: user: unknown section, did you mean users?`}},
		"no databases": {shards + users, []string{
			`f.toml: databases: must be set: at least one [databases.NAME], or [databases."*"] for any name`}},
		"sections of another kind": {"fencepost = 1\nshards = 2\ndatabases = \"host=x password=p\"\n[[users]]\nname = 1\n", []string{
			`f.toml:1: fencepost: must be a section: [fencepost]`,
			`f.toml:2: shards: must be sections: [shards.NAME]`,
			`f.toml:3: databases: must be sections: [databases.NAME]`,
			`f.toml:4: users: must be sections: [users.NAME]`}},
		"a string in place of a section": {shards + "[databases]\napp = \"host=x password=p\"\n" + users, []string{
			`f.toml:4: databases.app: must be a section: [databases.app]`}},
		"nowhere to listen": {"[fencepost]\nlisten_addr = \"\"\nunix_socket_dir = \"\"\n" + rest, []string{
			`f.toml:2: fencepost.listen_addr = "": must not be empty together with unix_socket_dir: clients could not connect`}},
		"one wrong value, no consequences": {"[fencepost]\nauth_type = \"any\"\ndefault_pool_size = -1\nmin_pool_size = 30\nadmin_users = [\"x\"]\n" +
			shards + databases + "[users.app]\npool_size = 3\n", []string{
			`f.toml:2: fencepost.auth_type = "any": must be one of "trust", "password", "md5", "scram-sha-256"`,
			`f.toml:3: fencepost.default_pool_size = -1: must be a whole number from 1 to 100000`}},
		"shard without hosts": {"[shards.main]\n" + databases + users, []string{
			`f.toml:1: shards.main.hosts: must be set: the shard's hosts, such as ["127.0.0.1:5432"]`}},
		"shard name": {"[shards.\"a b\"]\nhosts = [\"x\"]\n" + rest, []string{
			`f.toml:1: shards."a b": must have a name of 1 to 63 letters, digits, dots, dashes and underscores`}},
		"no hosts":        {"[shards.main]\nhosts = []\n" + databases + users, []string{`f.toml:2: shards.main.hosts: must name a host, such as ["127.0.0.1:5432"]`}},
		"hosts as string": {"[shards.main]\nhosts = \"a\"\n" + databases + users, []string{`f.toml:2: shards.main.hosts: must be a list, such as ["127.0.0.1:5432"]`}},
		"two bad hosts": {"[shards.main]\nhosts = [\"a b\", \"c d\"]\n" + databases + users, []string{
			`f.toml:2: shards.main.hosts: ` + address}},
		"url as host":       {"[shards.main]\nhosts = [\"postgres://u:p@h/d\"]\n" + databases + users, []string{`f.toml:2: shards.main.hosts: ` + address}},
		"host port":         {"[shards.main]\nhosts = [\"h:70000\"]\n" + databases + users, []string{`f.toml:2: shards.main.hosts: ` + address}},
		"host without port": {"[shards.main]\nhosts = [\"h:\"]\n" + databases + users, []string{`f.toml:2: shards.main.hosts: ` + address}},
		"number as host": {"[shards.main]\nhosts = [5432]\n" + databases + users, []string{
			`f.toml:2: shards.main.hosts: must be addresses such as "127.0.0.1:5432", or tables such as { addr = "127.0.0.1:5432" }`}},
		"role unknown": {"[shards.main]\nhosts = [{ addr = \"a\", role = \"standby\" }]\n" + databases + users, []string{
			`f.toml:2: shards.main.hosts: must have a role out of "auto", "primary", "replica", "any"`}},
		"host without addr": {"[shards.main]\nhosts = [{ role = \"any\" }]\n" + databases + users, []string{
			`f.toml:2: shards.main.hosts: must have an addr that is a string in each host`}},
		"host with more": {"[shards.main]\nhosts = [{ addr = \"a\", port = 5432 }]\n" + databases + users, []string{
			`f.toml:2: shards.main.hosts: must have nothing but addr and role in a host, not "port"`}},
		"hosts as tables": {"[[shards.main.hosts]]\naddr = \"a\"\n" + databases + users, nil},
		"console's names": {rest + "[databases.fencepost]\nshard = \"main\"\n[databases.pgbouncer]\nshard = \"main\"\n", []string{
			`f.toml:7: databases.fencepost: must have another name: this one is the console's`,
			`f.toml:9: databases.pgbouncer: must have another name: this one is the console's`}},
		"long database name": {rest + "[databases." + strings.Repeat("n", 64) + "]\nshard = \"main\"\n", []string{
			`f.toml:7: databases.` + strings.Repeat("n", 64) + `: must be a name of 1 to 63 bytes without control characters; PostgreSQL keeps no more of it`}},
		"database nowhere": {shards + "[databases.app]\n" + users, []string{
			`f.toml:3: databases.app.shard: must be set: the name of a [shards.NAME] section; or use hosts instead`}},
		"database twice": {shards + databases + "hosts = [\"h\"]\n" + users, []string{
			`f.toml:5: databases.app.hosts: must not be set together with shard`}},
		"shard unknown": {shards + "[databases.app]\nshard = \"mian\"\n" + users, []string{
			`f.toml:4: databases.app.shard = "mian": must be the name of a [shards.NAME] section, did you mean main?`}},
		"shard far off": {shards + "[databases.app]\nshard = \"zzz\"\n" + users, []string{
			`f.toml:4: databases.app.shard = "zzz": must be the name of a [shards.NAME] section`}},
		"shard of hosts": {shards + databases + "[databases.b]\nhosts = [\"h\"]\n[databases.c]\nshard = \"h:5432\"\n" + users, []string{
			`f.toml:8: databases.c.shard = "h:5432": must be the name of a [shards.NAME] section`}},
		"database keys": {shards + databases + "host = \"h\"\nauth_query = \"q\"\ndefault_pool_size = 4\npool_sise = 4\n" + users, []string{
			`f.toml:5: databases.app.host: unknown key, instead of this setting of PgBouncer use hosts = ["HOST:PORT"]`,
			`f.toml:6: databases.app.auth_query: unknown key, this version does not have this setting of PgBouncer`,
			`f.toml:7: databases.app.default_pool_size: unknown key here, it belongs to [fencepost]`,
			`f.toml:8: databases.app.pool_sise: unknown key, did you mean pool_size?`}},
		"database values": {shards + databases + "dbname = \"\"\nuser = \"" + strings.Repeat("u", 64) + "\"\npool_size = 0\nserver_lifetime = 60\n" + users, []string{
			`f.toml:5: databases.app.dbname = "": must be a name of 1 to 63 bytes without control characters`,
			`f.toml:6: databases.app.user = "` + strings.Repeat("u", 64) + `": must be a name of 1 to 63 bytes without control characters; PostgreSQL keeps no more of it`,
			`f.toml:7: databases.app.pool_size = 0: must be a whole number from 1 to 100000`,
			`f.toml:8: databases.app.server_lifetime = 60: must be a string with a unit, such as "5s": a number does not say whether it means seconds`}},
		"database min above size": {shards + databases + "min_pool_size = 21\n" + users, []string{
			`f.toml:3: databases.app: must not have a min_pool_size (21) above its pool_size (20), of which one may come from [fencepost]`}},
		"database password alone": {shards + databases + "password = \"p\"\n" + users, []string{
			`f.toml:5: databases.app.password: must come with user: it is the password of that user on the server`}},
		"database verifier": {shards + databases + "user = \"u\"\npassword = \"md5" + strings.Repeat("0", 32) + "\"\n" + users, []string{
			`f.toml:6: databases.app.password: must be the password itself: a verifier is not enough to log in to a server`}},
		"md5 for md5":                  {"[fencepost]\nauth_type = \"md5\"\n" + unasked + databases + "[users.app]\npassword = \"md5" + strings.Repeat("a", 32) + "\"\n", nil},
		"trust without users":          {"[fencepost]\nauth_type = \"trust\"\nadmin_users = [\"ops\"]\n" + unasked + databases, nil},
		"trust, user without password": {"[fencepost]\nauth_type = \"trust\"\n" + shards + databases + "[users.app]\npool_size = 2\n", nil},
		"torn verifier": {shards + databases + "[users.app]\npassword = \"SCRAM-SHA-256$4096:c2FsdA==$x:y\"\n", []string{
			`f.toml:6: users.app.password: begins like a SCRAM verifier but is not a whole one (SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey)`}},
		"user keys": {rest + "max_user_connections = 3\nmin_pool_size = 1\nquery_wait_timout = \"1s\"\n", []string{
			`f.toml:7: users.app.max_user_connections: unknown key, this version does not have this setting of PgBouncer`,
			`f.toml:8: users.app.min_pool_size: unknown key here, it belongs to [fencepost]`,
			`f.toml:9: users.app.query_wait_timout: unknown key, did you mean query_wait_timeout?`}},
		"user name": {rest + "[users.\"\"]\npassword = \"p\"\n", []string{
			`f.toml:7: users."": must be a name of 1 to 63 bytes without control characters`}},
		"not TOML": {"[fencepost]\nlisten_port = \n", []string{`f.toml:2: not valid TOML: expected value but found '\n' instead`}},
		"key twice": {rest + "[fencepost]\nlisten_port = 1\nlisten_port = 2\n", []string{
			`f.toml:9: not valid TOML: Key 'fencepost.listen_port' has already been defined.`}},
	} {
		t.Run(name, func(t *testing.T) { check(t, test.text, test.want...) })
	}
}

// TestFileUnreadable: a file that cannot be read is no list of problems.
func TestFileUnreadable(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"))
	var problems *Problems
	if !errors.Is(err, fs.ErrNotExist) || errors.As(err, &problems) {
		t.Fatalf("error %v", err)
	}
}

// TestLoad reads a real file with a secret in a file beside it.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(filepath.Join(dir, "pw"), []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(shards+databases+"[users.app]\npassword = \"file:pw\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Users["app"].Password.Reveal(); got != "from a file" || c.Path != path {
		t.Fatalf("password %q, path %q", got, c.Path)
	}
}
