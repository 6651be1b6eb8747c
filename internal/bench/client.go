package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// client is a session without a password.
type client struct{ conn *pgconn.PgConn }

// answerLimit is how long an answer may take on a busy machine before the measurement is given up.
const answerLimit = 60 * time.Second

// dial connects to a server or pooler and logs in.
func dial(ctx context.Context, addr string) (*client, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, addr, database))
	return &client{conn}, err
}

// query runs sql and drops its result.
func (c *client) query(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	_, err := c.conn.Exec(ctx, sql).ReadAll()
	return err
}

// close says goodbye as a well-behaved client does.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	c.conn.Close(ctx) //nolint:errcheck // it goes in any case
}

// drop closes the socket without a word, as a client that crashed.
func (c *client) drop() { c.conn.Conn().Close() }
