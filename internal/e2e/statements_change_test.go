package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A column changes its type while clients have statements on it: each of them, with the driver's own caches, hears or reads what it
// would at the server itself. pgx decodes binary values by the description that it was given first.
func TestColumnChangesItsType(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2} {
		l := newLab(t, "", fmt.Sprintf("default_pool_size = %d", size))
		for name, mode := range map[string]pgx.QueryExecMode{"CacheStatement": pgx.QueryExecModeCacheStatement, "CacheDescribe": pgx.QueryExecModeCacheDescribe} {
			t.Run(fmt.Sprintf("%s, %d connections", name, size), func(t *testing.T) {
				direct := l.changesType(t, l.direct(), mode, false)
				if got := l.changesType(t, l.transaction(), mode, size > 1); got != direct {
					t.Errorf("through Fencepost:\n%s\ndirect:\n%s", got, direct)
				}
			})
		}
	}
}

// changesType is what three clients read of a column before and after it is altered, one of them on a server connection that has
// not seen the statement before, if other.
func (l *lab) changesType(t *testing.T, at place, mode pgx.QueryExecMode, other bool) string {
	ctx := t.Context()
	l.sql("DROP TABLE IF EXISTS typed", "CREATE TABLE typed (id int, v int)", "INSERT INTO typed VALUES (1, 7)", "GRANT ALL ON typed TO PUBLIC")
	var clients []*pgx.Conn
	for range 4 {
		cfg, err := at.config()
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(ctx))
		clients = append(clients, c)
	}
	busy, clients := clients[3], clients[:3]
	var out strings.Builder
	round := func() {
		for i, c := range clients {
			fmt.Fprintln(&out, i, readsTyped(ctx, c))
		}
	}
	round()
	l.sql("ALTER TABLE typed ALTER v TYPE real")
	if other {
		tx, err := busy.Begin(ctx) // has the connection that was used last: the others get the other one
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it did its service
		round()
		tx.Rollback(ctx) //nolint:errcheck // likewise
	} else {
		round()
	}
	round()
	l.sql("ALTER TABLE typed ADD w int")
	round()
	return out.String()
}

func readsTyped(ctx context.Context, c *pgx.Conn) string {
	rows, err := c.Query(ctx, "SELECT v FROM typed WHERE id = $1", 1)
	if err == nil {
		var v []any
		for rows.Next() {
			if v, err = rows.Values(); err != nil {
				break
			}
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err == nil {
			return fmt.Sprintf("%T %v", v[0], v)
		}
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Severity + " " + pe.Code + " " + pe.Message
	}
	return err.Error()
}
