package product

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Row is a row of the console's, by column. What is NULL is "NULL".
type Row = map[string]string

// Console is a session with the console. It connects when it is needed, and again after its connection has ended. For one
// goroutine.
type Console struct {
	Addr, User, Password string
	conn                 *pgconn.PgConn
}

// consoleLimit bounds one command.
const consoleLimit = 20 * time.Second

// Run runs a command and returns its rows. An error of the console itself is a *pgconn.PgError in the error's chain.
func (c *Console) Run(ctx context.Context, command string) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, consoleLimit)
	defer cancel()
	if c.conn == nil || c.conn.IsClosed() {
		if err := c.connect(ctx); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
	}
	results, err := c.conn.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("console: %s: %w", command, err)
	}
	var rows []Row
	for _, r := range results {
		for _, values := range r.Rows {
			row := Row{}
			for i, v := range values {
				if row[r.FieldDescriptions[i].Name] = string(v); v == nil {
					row[r.FieldDescriptions[i].Name] = "NULL"
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// connect takes nothing from the environment.
func (c *Console) connect(ctx context.Context) error {
	cfg, err := pgconn.ParseConfig("host=localhost port=5432 user=x dbname=fencepost password=x sslmode=disable")
	if err != nil {
		return err
	}
	host, text, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Password = host, uint16(port), c.User, c.Password
	cfg.RuntimeParams, cfg.Fallbacks = map[string]string{}, nil
	c.conn, err = pgconn.ConnectConfig(ctx, cfg)
	return err
}

// Close ends the session.
func (c *Console) Close() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.conn.Close(ctx) //nolint:errcheck // leaving anyway
		c.conn = nil
	}
}

// OpenConsole is a session as the first of admin_users.
func (f *Fencepost) OpenConsole() *Console {
	c := &Console{Addr: f.Addr}
	if admins, _ := f.config.Settings["fencepost"]["admin_users"].([]string); len(admins) > 0 {
		c.User = admins[0]
		if u, _ := f.config.Settings["users"][c.User].(Section); u != nil {
			c.Password, _ = u["password"].(string)
		}
	}
	return c
}

// Console runs one command in a session of its own.
func (f *Fencepost) Console(ctx context.Context, command string) ([]Row, error) {
	c := f.OpenConsole()
	defer c.Close()
	return c.Run(ctx, command)
}

// Shard is the row of SHOW SHARDS for the shard main.
func (f *Fencepost) Shard(ctx context.Context) (Row, error) {
	c := f.OpenConsole()
	defer c.Close()
	return c.Shard(ctx)
}

// Shard is the row of SHOW SHARDS for the shard main.
func (c *Console) Shard(ctx context.Context) (Row, error) {
	rows, err := c.Run(ctx, "SHOW SHARDS")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r["name"] == "main" {
			return r, nil
		}
	}
	return nil, errors.New("SHOW SHARDS has no row for main")
}
