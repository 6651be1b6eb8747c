package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/soak/raw"
)

// console is a session with Fencepost's console. It connects when it is needed and again after an error. For one
// goroutine.
type console struct {
	addr  string
	meter *raw.Meter // of its own: the console's traffic is not the load's
	conn  *pgconn.PgConn
}

// table is a result by rows and column names.
type table []map[string]string

// consoleLimit bounds one command.
const consoleLimit = 20 * time.Second

// run sends a command and returns its rows.
func (c *console) run(ctx context.Context, command string) (table, error) {
	ctx, cancel := context.WithTimeout(ctx, consoleLimit)
	defer cancel()
	if c.conn == nil || c.conn.IsClosed() {
		cfg, err := raw.Login{Addr: c.addr, User: opsUser, Password: password(opsUser), Database: "fencepost"}.Config(c.meter)
		if err != nil {
			return nil, err
		}
		if c.conn, err = pgconn.ConnectConfig(ctx, cfg); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
	}
	results, err := c.conn.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("console: %s: %w", command, err)
	}
	var t table
	for _, r := range results {
		for _, values := range r.Rows {
			m := map[string]string{}
			for i, f := range r.FieldDescriptions {
				m[f.Name] = string(values[i])
			}
			t = append(t, m)
		}
	}
	return t, nil
}

func (c *console) close() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.conn.Close(ctx) //nolint:errcheck // leaving anyway
		c.conn = nil
	}
}

// consoleError is the SQLSTATE and text of an error that the console itself answered, "" for any other.
func consoleError(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code + " " + pe.Message
	}
	return ""
}

// clientsNow is what the console shows and what the goroutines do, for the report of something that hangs.
func (r *run) clientsNow() string {
	c := &console{addr: r.addr, meter: &r.aside}
	defer c.close()
	ctx, cancel := context.WithTimeout(context.Background(), consoleLimit)
	defer cancel()
	var b strings.Builder
	for _, show := range []string{"SHOW POOLS", "SHOW SERVERS", "SHOW CLIENTS"} {
		t, err := c.run(ctx, show)
		fmt.Fprintf(&b, "%s: %v\n", show, err)
		for _, m := range t {
			fmt.Fprintf(&b, "  %v\n", m)
		}
	}
	stacks, err := r.product.get(ctx, "/debug/pprof/goroutine?debug=2")
	fmt.Fprintf(&b, "goroutines: %v\n%s", err, stacks)
	return r.attach("console", b.String())
}
