package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pgbouncerDefaults are PgBouncer's defaults (1.25) of the settings we share, as SHOW CONFIG here would write them.
var pgbouncerDefaults = map[string]string{
	"listen_addr": "", "listen_port": "6432", "listen_backlog": "128", "unix_socket_dir": "/tmp", "unix_socket_mode": "0777",
	"so_reuseport": "false", "pidfile": "", "peer_id": "0", "pool_mode": "session", "default_pool_size": "20", "min_pool_size": "0",
	"max_client_conn": "100", "max_db_connections": "0", "server_round_robin": "false", "query_wait_timeout": "2m",
	"server_connect_timeout": "15s", "server_login_retry": "15s", "server_idle_timeout": "10m", "server_lifetime": "1h",
	"server_reset_query": "DISCARD ALL", "max_prepared_statements": "200", "client_login_timeout": "1m", "ignore_startup_parameters": "",
	"track_extra_parameters": "IntervalStyle", "auth_type": "md5", "admin_users": "", "stats_users": "", "stats_period": "1m",
	"log_connections": "true", "log_disconnections": "true", "log_pooler_errors": "true", "tcp_keepalive": "true",
	"tcp_keepidle": "0s", "tcp_keepintvl": "0s", "tcp_keepcnt": "0", "tcp_user_timeout": "0s",
}

// ownSettings are those PgBouncer has not.
var ownSettings = []string{"admin_http", "cancel_ack_timeout", "cancel_on_disconnect", "drain_grace", "drain_timeout", "event_loop", "event_loops", "log_format", "log_level", "sigterm"}

// TestSettingsPage: the page lists exactly the defaults that are not PgBouncer's, and its example is a valid file.
func TestSettingsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range (&Config{Fencepost: Default()}).Rows() {
		theirs, shared := pgbouncerDefaults[row.Key]
		switch {
		case shared == slices.Contains(ownSettings, row.Key):
			t.Errorf("%s: is it PgBouncer's too?", row.Key)
		case shared && theirs != row.Default:
			want = append(want, row.Key+" "+theirs+" "+row.Default)
		case !shared && !strings.Contains(string(page), "`"+row.Key+"`"):
			t.Errorf("%s is not named", row.Key)
		}
	}
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `(.*?)` \\| `(.*?)` \\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		got = append(got, m[1]+" "+strings.Trim(m[2], `"`)+" "+m[3])
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the page's table has\n%q, the code\n%q", got, want)
	}

	for _, s := range slices.Concat(shardSettings, databaseSettings) {
		if !regexp.MustCompile(`\b`+s.key+`\b`).Match(page) && !slices.ContainsFunc(fencepostSettings, func(f setting) bool { return strings.HasSuffix(f.key, s.key) }) {
			t.Errorf("%s is not named", s.key)
		}
	}
	for _, role := range RoleAuto.words() {
		if !strings.Contains(string(page), "\n| `"+role+"`") {
			t.Errorf("the role %s is not in the table", role)
		}
	}
	examples := regexp.MustCompile("(?s)```toml\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	for _, example := range examples {
		if _, err := parse("example", []byte(example[1]), testSecrets{files: "pw", vars: map[string]string{"APP_PASSWORD": "p"}}); err != nil {
			t.Errorf("an example of the page: %v", err)
		}
	}
	if len(examples) != 2 {
		t.Errorf("%d examples", len(examples))
	}
	for _, message := range regexp.MustCompile(`(?m)^    fencepost\.toml:\d+: (.*)$`).FindAllStringSubmatch(string(page), -1) {
		_, err := parse("f", []byte("[fencepost]\npool_mod = 1\nquery_wait_timeout = 120\n"+shards+databases+"[users.app]\npassword = \"env:APP_PASSWORD\"\n"), testSecrets{})
		if err == nil || !strings.Contains(err.Error(), message[1]) {
			t.Errorf("no message %q in\n%v", message[1], err)
		}
	}
}
