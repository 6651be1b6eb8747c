package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/poll"
)

// Writers are clients that write all the time, and what they saw.
type Writers struct {
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu     sync.Mutex // guards what follows
	acks   []Ack
	errors []Failure
}

// Ack is a write that was acknowledged.
type Ack struct {
	Who      string
	Database string
	Port     int // of the server
	Began    time.Time
	At       time.Time
}

// Failure is an error that a client saw.
type Failure struct {
	Who   string
	Began time.Time
	At    time.Time
	Code  string // SQLSTATE; "" where the connection ended, or was not made
	Text  string
	// Reconnect: the session was between two transactions, or there was none yet, so that nothing is lost.
	Reconnect bool
}

// writePause is between two transactions of one client.
const writePause = 2 * time.Millisecond

// Write starts n clients of a member's database, until End.
func (l *Lab) Write(database string, n int, addrs ...string) *Writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &Writers{stop: stop}
	for i := range n {
		who := fmt.Sprintf("%s %s %d %d", database, addrs[0], i, time.Now().UnixNano())
		w.ended.Go(func() { w.run(ctx, who, database, addrs) })
	}
	return w
}

// run is one client.
func (w *Writers) run(ctx context.Context, who, database string, addrs []string) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it goes in any case
		}
	}()
	pause := time.NewTicker(writePause)
	defer pause.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if conn != nil && conn.IsClosed() {
			conn = nil
		}
		// What is under way when the run ends is not cut off: it would look like a failure.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientLimit)
		if conn == nil {
			began := time.Now()
			c, err := connect(bounded, database, addrs...)
			if err != nil {
				w.failed(who, began, err, true)
				cancel()
				continue
			}
			conn = c
		}
		// Between two transactions the server side may have said goodbye; libpq would find that in the same way.
		var port int
		began := time.Now()
		err := conn.QueryRow(bounded, "INSERT INTO written VALUES ($1, $2) RETURNING inet_server_port()", who, n).Scan(&port)
		cancel()
		if err != nil {
			w.failed(who, began, err, false)
			continue
		}
		w.acked(Ack{who, database, port, began, time.Now()})
	}
}

// clientLimit bounds a client's statement, and its login: longer than anything here lasts but a partition.
const clientLimit = 2 * time.Minute

func (w *Writers) acked(a Ack) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, a)
}

func (w *Writers) failed(who string, began time.Time, err error, connecting bool) {
	f := Failure{Who: who, Began: began, At: time.Now(), Text: err.Error(), Reconnect: connecting || pgconn.SafeToRetry(err)}
	if pe := new(pgconn.PgError); errors.As(err, &pe) {
		f.Code, f.Text = pe.Code, strings.TrimSpace(pe.Message+" "+pe.Detail+" "+pe.Hint)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors = append(w.errors, f)
}

// End ends the clients, and waits for what they have under way.
func (w *Writers) End() {
	w.stop()
	w.ended.Wait()
}

// Acks are the acknowledged writes so far, in the order in which they were acknowledged.
func (w *Writers) Acks() []Ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	acks := slices.Clone(w.acks)
	slices.SortFunc(acks, func(a, b Ack) int { return a.At.Compare(b.At) })
	return acks
}

// Failures are the errors so far.
func (w *Writers) Failures() []Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.errors)
}

// Codes counts the errors by SQLSTATE.
func (w *Writers) Codes() map[string]int {
	codes := map[string]int{}
	for _, f := range w.Failures() {
		codes[f.Code]++
	}
	return codes
}

// Gap is the longest time after from in which no client of the database had a write acknowledged.
func (w *Writers) Gap(from time.Time) time.Duration {
	longest, last := time.Duration(0), from
	for _, a := range w.Acks() {
		if a.At.Before(from) {
			continue
		}
		longest, last = max(longest, a.At.Sub(last)), a.At
	}
	return longest
}

// Await waits until each client has had a write acknowledged by the server, in a transaction begun after since.
func (w *Writers) Await(ctx context.Context, clients int, s *Server, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	got := 0
	err := poll.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		who := map[string]bool{}
		for _, a := range w.Acks() {
			if a.Port == s.Port && a.Began.After(since) {
				who[a.Who] = true
			}
		}
		got = len(who)
		return got >= clients, nil
	})
	if err != nil {
		last := w.Failures()
		return fmt.Errorf("%d of %d clients write to %s: %w; last errors: %v", got, clients, net.JoinHostPort(s.Host, fmt.Sprint(s.Port)), err, last[max(0, len(last)-3):])
	}
	return nil
}
