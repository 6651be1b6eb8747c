package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/soak/ledger"
)

func (d *driver) query() error {
	t := d.question()
	var got, db, user string
	if err := d.conn.QueryRow(d.ctx, "SELECT $1::text, current_database()::text, session_user::text", t).Scan(&got, &db, &user); err != nil {
		return err
	}
	if all, want := strings.Join([]string{got, db, user}, "|"), strings.Join(d.whoValues(t), "|"); all != want {
		return d.mismatch(all, want)
	}
	return nil
}

func (d *driver) rows() error {
	t := d.question()
	n := 1 + d.rng.IntN(1000)
	rows, err := d.conn.Query(d.ctx, "SELECT $1::text || i::text FROM generate_series(1, $2::int) i", t, n)
	if err != nil {
		return err
	}
	defer rows.Close()
	i := 0
	for rows.Next() {
		var got string
		if err := rows.Scan(&got); err != nil {
			return err
		}
		if i++; got != t+strconv.Itoa(i) {
			return d.mismatch(got, t+strconv.Itoa(i))
		}
	}
	if rows.Err() == nil && i != n {
		return d.mismatch(fmt.Sprintf("%d rows", i), fmt.Sprintf("%d rows", n))
	}
	return rows.Err()
}

func (d *driver) batch() error {
	t := d.question()
	n := 1 + d.rng.IntN(20)
	b := &pgx.Batch{}
	for i := range n {
		b.Queue("SELECT $1::text", fmt.Sprintf("%s %d", t, i))
	}
	res := d.conn.SendBatch(d.ctx, b)
	for i := range n {
		var got string
		if err := res.QueryRow().Scan(&got); err != nil {
			res.Close() //nolint:errcheck // the first error counts
			return err
		}
		if want := fmt.Sprintf("%s %d", t, i); got != want {
			res.Close() //nolint:errcheck // as above
			return d.mismatch(got, want)
		}
	}
	return res.Close()
}

// failingBatch has an insert before the failure: it must not stay.
func (d *driver) failingBatch() error {
	k := d.r.book.Begin(d.db.index, d.id.client, 1)
	t := d.question()
	b := &pgx.Batch{}
	b.Queue(d.insertSQL(k.N, 1, 1, t))
	b.Queue("SELECT $1::text::int", t)
	err := d.conn.SendBatch(d.ctx, b).Close()
	return d.wanted(err, t, "22P02")
}

// wanted turns the error that was wanted into nil.
func (d *driver) wanted(err error, t string, codes ...string) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		if err == nil {
			return d.mismatch("no error", codes[0])
		}
		return err
	}
	for _, c := range codes {
		if pe.Code == c {
			if !strings.Contains(pe.Message, t) {
				return d.mismatch(pe.Message, t)
			}
			return nil
		}
	}
	return err
}

func (d *driver) failing() error {
	t := d.question()
	sql, code := failures[d.rng.IntN(len(failures))](t)
	_, err := d.conn.Exec(d.ctx, sql)
	return d.wanted(err, t, code)
}

func (d *driver) transaction() error {
	k := d.r.book.Begin(d.db.index, d.id.client, 2)
	ctx := d.ctx
	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return err
	}
	for p := 1; p <= 2; p++ {
		t := d.question()
		var got string
		if err := tx.QueryRow(ctx, d.insertSQL(k.N, p, 2, t)).Scan(&got); err != nil {
			tx.Rollback(ctx) //nolint:errcheck // the first error counts
			return err
		}
		if got != t {
			return d.mismatch(got, t)
		}
		d.pause()
	}
	if d.rng.IntN(3) == 0 {
		return tx.Rollback(ctx)
	}
	d.r.book.Set(k, ledger.Unknown)
	err = tx.Commit(ctx)
	d.knownOf(k, err)
	return err
}

// knownOf is what the ledger may be told after a request that might have committed.
func (d *driver) knownOf(k ledger.Key, err error) {
	var pe *pgconn.PgError
	switch {
	case err == nil:
		d.r.book.Set(k, ledger.Present)
	case errors.As(err, &pe) && (pe.Code == "08006" || pe.Severity == "ERROR"):
		d.r.book.Set(k, ledger.Absent)
	}
}

func (d *driver) copyFrom() error {
	n := 1 + d.rng.IntN(200)
	k := d.r.book.Begin(d.db.index, d.id.client, n)
	t := d.question()
	d.r.book.Set(k, ledger.Unknown)
	got, err := d.conn.CopyFrom(d.ctx, pgx.Identifier{"ledger"}, []string{"client", "n", "part", "parts", "tag"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{d.id.client, k.N, i + 1, n, t}, nil }))
	d.knownOf(k, err)
	if err == nil && got != int64(n) {
		return d.mismatch(fmt.Sprintf("%d rows copied", got), fmt.Sprintf("%d rows copied", n))
	}
	return err
}

// timeLimit gives a statement less time than it takes: pgx cancels it and ends the session.
func (d *driver) timeLimit() error {
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(5+d.rng.IntN(100))*time.Millisecond)
	defer cancel()
	_, err := d.conn.Exec(ctx, "SELECT pg_sleep(5)")
	switch {
	case err == nil:
		return d.mismatch("an answer", "the end of the time")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errLeft
	}
	return err
}

// notification waits for one that it sends itself.
func (d *driver) notification() error {
	ctx := d.ctx
	channel := "pgx " + d.id.name()
	payload := d.question()
	for _, sql := range []string{"LISTEN " + name(channel), "NOTIFY " + name(channel) + ", " + literal(payload)} {
		if _, err := d.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	n, err := d.conn.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	if n.Channel != channel || n.Payload != payload {
		d.r.violate(foreignNotice, "%s: notification on %q: %q, wanted %q: %q", d.id.name(), n.Channel, n.Payload, channel, payload)
		return errViolated
	}
	if _, err := d.conn.Exec(ctx, "UNLISTEN *"); err != nil {
		return err
	}
	return nil
}
