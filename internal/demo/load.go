package demo

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

func connect(ctx context.Context, port int, database string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=%s sslmode=disable", port, user, password, database))
	if err != nil {
		return nil, err
	}
	// Transaction pooling: no named prepared statements.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, cfg)
}

func setUp(ctx context.Context, port int) error {
	c, err := connect(ctx, port, "app")
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

// tally is what the clients have seen since the last line.
type tally struct {
	mu       sync.Mutex // guards the fields
	took     []time.Duration
	servers  map[uint32]bool
	failures int
	last     error
}

// load has n clients transfer money through Fencepost and says once a second how they fare.
func load(ctx context.Context, say func(string, ...any), n, port int) error {
	t := &tally{servers: map[uint32]bool{}}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { client(ctx, t, i, port) })
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-second.C:
			t.report(say, n)
		}
	}
	wg.Wait()
	return checkSum(port)
}

func (t *tally) report(say func(string, ...any), n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sort.Slice(t.took, func(i, j int) bool { return t.took[i] < t.took[j] })
	p99 := time.Duration(0)
	if len(t.took) > 0 {
		p99 = t.took[len(t.took)*99/100]
	}
	line := fmt.Sprintf("%s  %d clients on %d server connections: %4d transactions/s, p99 %s, %d errors",
		time.Now().Format("15:04:05"), n, len(t.servers), len(t.took), p99.Round(100*time.Microsecond), t.failures)
	if t.last != nil {
		line += ": " + t.last.Error()
	}
	say("%s", line)
	t.took, t.failures, t.last = t.took[:0], 0, nil
	clear(t.servers)
}

// client transfers between two accounts, again and again with a pause, and reconnects after an error.
func client(ctx context.Context, t *tally, seed, port int) {
	var c *pgx.Conn
	defer func() {
		if c != nil {
			end, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c.Close(end)
		}
	}()
	for k := seed; ctx.Err() == nil; k++ {
		began := time.Now()
		pid, err := transfer(ctx, &c, port, 1+k*7%100, 1+k*13%100)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		if err != nil {
			t.failures++
			t.last = err
		} else {
			t.took = append(t.took, time.Since(began))
			t.servers[pid] = true
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func transfer(ctx context.Context, c **pgx.Conn, port, from, to int) (pid uint32, err error) {
	if *c == nil || (*c).IsClosed() {
		if *c, err = connect(ctx, port, "app"); err != nil {
			*c = nil
			return 0, err
		}
	}
	if from > to {
		from, to = to, from // one order of locking: no deadlocks
	}
	err = pgx.BeginFunc(ctx, *c, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 1 WHERE id = $1", from); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", to)
		return err
	})
	return pid, err
}

// checkSum fails if a transfer was done by half.
func checkSum(port int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := connect(ctx, port, "app")
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
