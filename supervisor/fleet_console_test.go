package supervisor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
)

// member starts a member of a fleet on loopback.
func member(t *testing.T, name string, id int, bind, join string) (s *Fencepost, clients string) {
	t.Helper()
	clients = fmt.Sprintf("127.0.0.1:%d", free(t))
	_, port, _ := strings.Cut(clients, ":")
	cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, `
[fencepost]
listen_port = %s
unix_socket_dir = ""
admin_http = ""
auth_type = "trust"
admin_users = ["ops"]
drain_grace = "1h"
[fleet]
name = "test"
member = %q
peer_id = %d
bind = %q
join = [%q]
fleet_join_wait = "100ms"
fleet_size = 2
[shards.main]
hosts = ["127.0.0.1:1"]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`, port, name, id, bind, join))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Start(cfg, "test", zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(admin.Immediate); _ = s.Wait() })
	return s, clients
}

// TestConsoleOfAFleet gives orders to real members on real sockets.
func TestConsoleOfAFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	bindA, bindB := fmt.Sprintf("127.0.0.1:%d", free(t)), fmt.Sprintf("127.0.0.1:%d", free(t))
	_, a := member(t, "a", 1, bindA, bindB)
	second, b := member(t, "b", 2, bindB, bindA)
	console := func(addr string) *pgconn.PgConn {
		c, err := pgconn.Connect(ctx, "postgres://ops@"+addr+"/fencepost?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	onA, onB := console(a), console(b)
	query := func(c *pgconn.PgConn, sql string) (string, error) {
		results, err := c.Exec(ctx, sql).ReadAll()
		var out []string
		for _, r := range results {
			for _, row := range r.Rows {
				var words []string
				for _, v := range row {
					words = append(words, string(v))
				}
				out = append(out, strings.Join(words, "|"))
			}
		}
		return strings.Join(out, "\n"), err
	}
	until := func(c *pgconn.PgConn, sql, part string) {
		t.Helper()
		for {
			got, err := query(c, sql)
			if err == nil && strings.Contains(got, part) {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %s, %v", sql, got, err)
			}
		}
	}
	until(onA, "SHOW FLEET", "\nb|"+bindB+"|2|alive|")
	until(onB, "SHOW FLEET", "a|"+bindA+"|1|alive|")

	if got, err := query(onA, "PAUSE FLEET"); err != nil || got != "a|"+bindA+"|ok\nb|"+bindB+"|ok" {
		t.Fatalf("%s, %v", got, err)
	}
	if got, err := query(onB, "SHOW STATE"); err != nil || !strings.Contains(got, "paused|yes") {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := query(onB, "RESUME FLEET"); err != nil || !strings.HasPrefix(got, "a|") {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := query(onA, "SHOW STATE"); err != nil || !strings.Contains(got, "paused|no") {
		t.Errorf("%s, %v", got, err)
	}
	// A member that is paused already makes the fleet's PAUSE fail as a whole, and stays as it is.
	if _, err := query(onB, "PAUSE"); err != nil {
		t.Fatal(err)
	}
	if got, err := query(onA, "PAUSE FLEET"); err == nil || !strings.Contains(err.Error(), "PAUSE failed on 1 of 2 members") {
		t.Errorf("%s, %v", got, err)
	}
	if got, _ := query(onA, "SHOW STATE"); !strings.Contains(got, "paused|no") {
		t.Error(got)
	}
	if got, _ := query(onB, "SHOW STATE"); !strings.Contains(got, "paused|yes") {
		t.Error(got)
	}
	if got, err := query(onA, "SWITCHOVER main 1"); err == nil || !strings.Contains(err.Error(), "writes resume") {
		t.Errorf("%s, %v", got, err)
	}
	second.Shutdown(admin.WaitForServers)
	until(onA, "SHOW FLEET", "|yes||2|2|no") // draining
}
