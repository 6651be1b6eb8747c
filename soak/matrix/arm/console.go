package arm

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Seen is a timeline that an arm said it has seen, and when it had said so.
type Seen struct {
	At       time.Time
	Timeline uint32
}

// console asks Fencepost's console what it has seen, until close.
type console struct {
	url  string
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex // guards seen
	seen []Seen
}

// askEvery is how often the console is asked.
const askEvery = 50 * time.Millisecond

func openConsole(addr string) *console {
	ctx, stop := context.WithCancel(context.Background())
	c := &console{url: fmt.Sprintf("postgres://%s@%s/fencepost?sslmode=disable&default_query_exec_mode=simple_protocol", admin, addr), stop: stop, done: make(chan struct{})}
	go c.watch(ctx) // ends by close
	return c
}

func (c *console) close() {
	c.stop()
	<-c.done
}

// watch asks for the floor again and again. Errors are the business of others: without an answer nothing was seen.
func (c *console) watch(ctx context.Context) {
	defer close(c.done)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			conn, _ = pgx.Connect(ctx, c.url)
		}
		if conn != nil {
			if floor, err := floorOf(ctx, conn); err == nil {
				c.note(floor)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (c *console) note(floor uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.seen); n == 0 || c.seen[n-1].Timeline != floor {
		c.seen = append(c.seen, Seen{time.Now(), floor})
	}
}

func (c *console) sightings() []Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Seen(nil), c.seen...)
}

// floorOf reads the floor of the one shard out of SHOW SHARDS; 0: none yet.
func floorOf(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rows, err := conn.Query(ctx, "SHOW SHARDS")
	if err != nil {
		return 0, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		return 0, err
	}
	for _, row := range all {
		if row["name"] == "main" {
			n, err := strconv.ParseUint(fmt.Sprint(row["floor"]), 10, 32)
			return uint32(n), err
		}
	}
	return 0, fmt.Errorf("SHOW SHARDS has no shard main")
}

func (c *console) forget(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "FORGET main")
	return err
}
