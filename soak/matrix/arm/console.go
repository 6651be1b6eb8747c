package arm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Said is what Fencepost's console said, each time it was something new.
type Said struct {
	At      time.Time // by when
	Floor   uint32    // the highest timeline that it has seen, 0 for none
	Elected string    // address of the primary, "" for none
}

// console asks Fencepost's console again and again, until close.
type console struct {
	url  string
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex // guards said
	said []Said
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

// watch asks. Errors are the business of others: without an answer nothing was said.
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
			if s, err := shard(ctx, conn); err == nil {
				c.note(s)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (c *console) note(s Said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.said); n == 0 || c.said[n-1].Floor != s.Floor || c.said[n-1].Elected != s.Elected {
		c.said = append(c.said, s)
	}
}

func (c *console) all() []Said {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.said)
}

// shard reads about the one shard in SHOW SHARDS.
func shard(ctx context.Context, conn *pgx.Conn) (s Said, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rows, err := conn.Query(ctx, "SHOW SHARDS")
	if err != nil {
		return s, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		return s, err
	}
	for _, row := range all {
		if row["name"] == "main" {
			floor, err := strconv.ParseUint(fmt.Sprint(row["floor"]), 10, 32)
			elected, _ := row["elected"].(string)
			return Said{At: time.Now(), Floor: uint32(floor), Elected: elected}, err
		}
	}
	return s, errors.New("SHOW SHARDS has no shard main")
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
