package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/poll"
)

func (o *Options) readers() int { return max(1, o.Clients/4) }
func (o *Options) writers() int { return max(1, o.Clients-o.readers()) }

func connect(ctx context.Context, port int, options string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=app sslmode=disable", port, user, password))
	if err != nil {
		return nil, err
	}
	// Transaction pooling: no named prepared statements.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	if options != "" {
		cfg.RuntimeParams["options"] = options
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func setUp(ctx context.Context, port int) error {
	c, err := connect(ctx, port, "")
	if err != nil {
		return fmt.Errorf("connect through Fencepost: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	_, err = c.Exec(ctx, `CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)`)
	if err == nil {
		_, err = c.Exec(ctx, `INSERT INTO accounts SELECT i, 1000 FROM generate_series(1, 100) i`)
	}
	return err
}

// client works, again and again with a pause, and reconnects when its connection is gone.
func (s *stage) client(ctx context.Context, k kind, i int) {
	options, work := "", s.transfer
	if k == reader {
		options, work = "-c fencepost.target=standby", s.look
	}
	var c *pgx.Conn
	defer func() {
		if c != nil {
			end, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c.Close(end)
		}
	}()
	name := fmt.Sprint(k, i)
	for n := i; ctx.Err() == nil; n++ {
		began := time.Now()
		var err error
		if c == nil || c.IsClosed() {
			c, err = connect(ctx, s.port(i), options)
		}
		port := 0
		if err == nil {
			port, err = work(ctx, c, n)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.tally.failed(k, inShort(err))
		default:
			s.tally.done(k, name, port, began)
		}
		poll.For(ctx, 50*time.Millisecond) //nolint:errcheck // the loop looks at ctx
	}
}

// inShort is the server's SQLSTATE and words, or the driver's.
func inShort(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return fmt.Sprintf("%s (%s)", e.Code, e.Message)
	}
	return err.Error()
}

// transfer moves money between two accounts.
func (s *stage) transfer(ctx context.Context, c *pgx.Conn, n int) (port int, err error) {
	from, to := 1+n*7%100, 1+n*13%100
	if from > to {
		from, to = to, from // one order of locking: no deadlocks
	}
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT inet_server_port()").Scan(&port); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 1 WHERE id = $1", from); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", to)
		return err
	})
	return port, err
}

// look reads an account.
func (s *stage) look(ctx context.Context, c *pgx.Conn, n int) (port int, err error) {
	var balance int64
	err = c.QueryRow(ctx, "SELECT inet_server_port(), balance FROM accounts WHERE id = $1", 1+n%100).Scan(&port, &balance)
	return port, err
}

// checkSum fails if a transfer was done by half.
func checkSum(port int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := connect(ctx, port, "")
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var sum int
	if err := c.QueryRow(ctx, "SELECT sum(balance) FROM accounts").Scan(&sum); err != nil {
		return err
	}
	if sum != 100*1000 {
		return fmt.Errorf("the balances add up to %d instead of %d", sum, 100*1000)
	}
	return nil
}
