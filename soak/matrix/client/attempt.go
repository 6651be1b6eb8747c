package client

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/poll"
	"fencepost/soak/matrix/verdict"
)

// Schema is what the clients need. The ledger has no key, so that a row written twice is there twice.
var Schema = []string{"CREATE TABLE ledger (client int NOT NULL, seq bigint NOT NULL)", "CREATE INDEX ON ledger (client, seq)"}

// Ledger reads what is in it.
const Ledger = "SELECT client, seq, count(*) FROM ledger GROUP BY client, seq"

// identity is what the server says of itself. A WAL file's name begins with the timeline, in hexadecimal digits.
const identity = `inet_server_port(), (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint, pg_is_in_recovery(),
	current_setting('transaction_read_only') = 'on',
	CASE WHEN pg_is_in_recovery() THEN '0' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END`

const (
	insertSQL  = "INSERT INTO ledger (client, seq) VALUES ($1, $2)"
	returning  = " RETURNING " + identity
	selectSQL  = "SELECT " + identity
	readerSQL  = "SELECT " + identity + ", max(seq) FROM ledger WHERE client = $1"
	dwellLimit = 4 * time.Millisecond // the most that a client thinks inside of a transaction
)

// longWait is what counts as waiting in the line of progress.
const longWait = 250 * time.Millisecond

// attempt makes one transaction and notes it; false: it failed.
func (w *worker) attempt(kind verdict.Kind) bool {
	a := verdict.Attempt{Client: w.n, Kind: kind}
	if kind.Writes() {
		w.seq++
		a.Seq = w.seq
	}
	w.warned = false
	ctx, cancel := context.WithTimeout(w.hard, w.c.o.Limit)
	defer cancel()
	slow := time.AfterFunc(longWait, func() { w.c.waiting.Add(1) })
	a.Start = w.c.since()
	var err error
	switch kind {
	case verdict.Insert:
		err = w.bind(w.conn.QueryRow(ctx, insertSQL+returning, w.n, a.Seq), &a)
		a.CommitSent = !pgconn.SafeToRetry(err)
	case verdict.Block:
		err = w.block(ctx, &a)
	case verdict.Read:
		var newest *int64
		err = w.bind(w.conn.QueryRow(ctx, readerSQL, w.n), &a, &newest)
	}
	a.End = w.c.since()
	if !slow.Stop() {
		w.c.waiting.Add(-1)
	}
	a.Acked, a.SyncCancelled = err == nil, w.warned
	if err != nil {
		a.Code, a.Message = describe(err)
		if w.hard.Err() != nil {
			a.Cut, a.Code = true, codeCut
		}
	}
	w.c.note(a)
	return err == nil
}

// bind reads the answer of a first statement.
func (w *worker) bind(row pgx.Row, a *verdict.Attempt, more ...any) error {
	var s verdict.Server
	var timeline string
	if err := row.Scan(append([]any{&s.Port, &s.Started, &s.InRecovery, &s.ReadOnly, &timeline}, more...)...); err != nil {
		return err
	}
	n, err := strconv.ParseUint(timeline, 16, 32)
	if err != nil {
		return err
	}
	s.Timeline = uint32(n)
	a.Bound, a.BoundAt = &s, w.c.since()
	return nil
}

// block is an explicit transaction. It asks where it is before it writes, so that a wrong server is seen even if the
// write does not fail.
func (w *worker) block(ctx context.Context, a *verdict.Attempt) error {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return err
	}
	err = w.bind(tx.QueryRow(ctx, selectSQL), a)
	if err == nil {
		w.dwell()
		_, err = tx.Exec(ctx, insertSQL, w.n, a.Seq)
	}
	if err != nil {
		tx.Rollback(ctx) //nolint:errcheck // the first error says why; a connection on which this fails is closed by pgx
		return err
	}
	w.dwell()
	err = tx.Commit(ctx)
	a.CommitSent = !pgconn.SafeToRetry(err)
	return err
}

func (w *worker) dwell() {
	poll.For(w.hard, time.Duration(w.rng.Int64N(int64(dwellLimit)))) //nolint:errcheck // the next statement sees its end
}
