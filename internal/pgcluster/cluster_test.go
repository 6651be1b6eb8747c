package pgcluster

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A primary and a standby of the default version: what is written here is read there, and the standby can take over.
func TestStandbyFollowsAndPromotes(t *testing.T) {
	ctx := t.Context()
	c := New(t, Options{Standbys: 1, Databases: []string{"app"}})
	primary, standby := c.Primary(), c.Standbys()[0]
	if err := primary.Exec(ctx, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := c.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, standby.URL(Superuser, "", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var n int
	var recovering bool
	if err := conn.QueryRow(ctx, "SELECT n, pg_is_in_recovery() FROM t").Scan(&n, &recovering); err != nil || n != 7 || !recovering {
		t.Fatalf("on the standby: n = %d, in recovery = %v, %v", n, recovering, err)
	}
	if err := standby.Exec(ctx, "INSERT INTO t VALUES (8)"); err == nil {
		t.Fatal("the standby took a write")
	}

	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if err := standby.Exec(ctx, "INSERT INTO t VALUES (8)"); err != nil {
		t.Fatal(err)
	}
	if c.Primary() != standby {
		t.Error("Primary is not the promoted node")
	}
}

func TestEveryVersion(t *testing.T) {
	for _, v := range []string{"12", "14", "15", "16", "17", "18"} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			c := New(t, Options{Version: v, Standbys: 1})
			var got string
			if err := c.Primary().QueryRow(t.Context(), "SHOW server_version", &got); err != nil || !strings.HasPrefix(got, v+".") {
				t.Fatalf("server_version = %q, %v", got, err)
			}
		})
	}
}
