package world

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
)

// How often the observer does what it does, and how long without an answer is silence.
const (
	pollPause   = 12 * time.Millisecond
	writePause  = 20 * time.Millisecond
	silentAfter = 400 * time.Millisecond
	logPause    = 100 * time.Millisecond
)

// pollQuery: whether the server is in recovery is asked once, since the functions of the primary are errors on a standby.
// OFFSET 0 keeps the planner from asking twice.
const pollQuery = `SELECT recovering, current_setting('default_transaction_read_only') = 'on',
	CASE WHEN recovering THEN coalesce((SELECT received_tli FROM pg_stat_wal_receiver), 0)
	ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END
	FROM (SELECT pg_is_in_recovery() AS recovering OFFSET 0) AS s`

// poller asks one server for its state, again and again.
type poller struct {
	observer *Observer
	server   *Server
	conn     *pgx.Conn
}

func (p *poller) run(ctx context.Context) {
	poll.Each(ctx, pollPause, func() { p.poll(ctx) })
	hangUp(p.conn)
}

// poll asks once. The question is never given up: a server that was frozen answers it when it goes on, and meanwhile it is
// noted to be silent.
func (p *poller) poll(ctx context.Context) {
	asked := time.Now()
	over, silence := make(chan struct{}), make(chan struct{})
	go func() { // ends with the question
		defer close(silence)
		t := time.NewTimer(silentAfter)
		defer t.Stop()
		for {
			select {
			case <-over:
				return
			case now := <-t.C:
				p.observer.note(p.server.Name, State{Reason: "silent"}, now, now)
				t.Reset(pollPause)
			}
		}
	}()
	state, err := p.ask(ctx)
	answered := time.Now()
	close(over)
	<-silence
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		hangUp(p.conn)
		p.conn = nil
		state = State{Reason: reason(err)}
	}
	p.observer.note(p.server.Name, state, asked, answered)
}

func (p *poller) ask(ctx context.Context) (State, error) {
	if p.conn == nil {
		conn, err := dial(ctx, p.server)
		if err != nil {
			return State{}, err
		}
		p.conn = conn
	}
	s := State{Answers: true}
	err := p.conn.QueryRow(ctx, pollQuery).Scan(&s.InRecovery, &s.ReadOnly, &s.Timeline)
	return s, err
}

// reason of a server that does not answer, the same for the same cause.
func reason(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &pg):
		return pg.Code
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	default:
		return "closed"
	}
}

// dial connects to a server without a relay between.
func dial(ctx context.Context, s *Server) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig("postgres://" + pgcluster.Superuser + "@" + s.DirectAddr + "/postgres?sslmode=disable&application_name=observer")
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c)
}

// hangUp closes a connection at once, whatever the server does.
func hangUp(c *pgx.Conn) {
	if c == nil {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	c.Close(now) //nolint:errcheck // it is of no use any more
}

// layTable makes the table that the observer writes to.
func layTable(ctx context.Context, primary *pgcluster.Node) error {
	return primary.Exec(ctx, "CREATE TABLE IF NOT EXISTS observer (n bigint NOT NULL) WITH (fillfactor = 10)",
		"INSERT INTO observer SELECT 0 WHERE NOT EXISTS (SELECT FROM observer)")
}

// writer writes to one server as long as it was last seen to take writes.
type writer struct {
	observer *Observer
	server   *Server
	conn     *pgx.Conn
}

func (w *writer) run(ctx context.Context) {
	poll.Each(ctx, writePause, func() {
		if w.observer.last(w.server.Name).Writable() && w.write(ctx) != nil {
			hangUp(w.conn)
			w.conn = nil
		}
	})
	hangUp(w.conn)
}

// write writes once. How long it takes is not bounded: with synchronous replication it waits for a standby.
func (w *writer) write(ctx context.Context) (err error) {
	if w.conn == nil {
		if w.conn, err = dial(ctx, w.server); err != nil {
			return fmt.Errorf("observer: %w", err)
		}
	}
	done := Write{Server: w.server.Name, Asked: time.Now(), CutOff: w.server.cutOff.Load()}
	err = w.conn.QueryRow(ctx, `UPDATE observer SET n = n + 1
		RETURNING ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int`).Scan(&done.Timeline)
	if err != nil {
		return err
	}
	done.Acked = time.Now()
	w.observer.noteWrite(done)
	return nil
}
