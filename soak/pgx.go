package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/soak/ledger"
	"fencepost/soak/raw"
)

// driver is a session with pgx, as applications have them.
type driver struct {
	*session
	ctx  context.Context // of the activity
	conn *pgx.Conn
}

// driverActivity is an activity of a driver's session.
type driverActivity struct {
	name   string
	weight int
	modes  string
	do     func(*driver) error
}

var driverActivities = []driverActivity{
	{"pgx: query", 20, "tsm", (*driver).query},
	{"pgx: rows", 6, "tsm", (*driver).rows},
	{"pgx: batch", 10, "tsm", (*driver).batch},
	{"pgx: failing batch", 3, "tsm", (*driver).failingBatch},
	{"pgx: transaction", 10, "ts", (*driver).transaction},
	{"pgx: copy from", 5, "tsm", (*driver).copyFrom},
	{"pgx: failing query", 4, "tsm", (*driver).failing},
	{"pgx: time limit", 2, "tsm", (*driver).timeLimit},
	{"pgx: notification", 4, "s", (*driver).notification},
}

// pgxSession does some things with pgx.
func (w *worker) pgxSession() {
	db, user := w.anyDatabase()
	s := w.newSession(db, user)
	params, want := chooseSettings(s.rng, s.id.name())
	s.want, s.own = want, w.r.owners.enter(s.id.name())
	defer func() { s.own.leave(s.doing) }()
	cfg, err := pgx.ParseConfig("host=localhost user=x dbname=x password=x sslmode=disable")
	if err != nil {
		w.r.violate(harness, "pgx: %v", err)
		return
	}
	l := raw.Login{Addr: w.r.addr, User: user, Password: password(user), Database: db.name, Params: params}
	if err := l.Apply(&cfg.Config, &w.r.meter); err != nil {
		w.r.violate(harness, "pgx: %v", err)
		return
	}
	// Names of prepared statements belong to a server connection: they are for session mode.
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeCacheStatement}
	if db.mode != "session" {
		modes = modes[:2]
	}
	cfg.DefaultQueryExecMode = modes[s.rng.IntN(len(modes))]
	if want["client_encoding"] != "UTF8" {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // pgx refuses the simple protocol in other encodings
	}
	c, err := pgx.ConnectConfig(w.r.hard, cfg)
	if err != nil {
		w.r.judgeLogin("pgx "+s.id.name(), err)
		return
	}
	d := &driver{session: s, conn: c}
	d.work(w)
}

// bounded runs an activity: what has no answer in time is a violation.
func (d *driver) bounded(do func(*driver) error) error {
	ctx, cancel := context.WithTimeout(d.r.hard, patience)
	defer cancel()
	d.ctx = ctx
	return do(d)
}

func (d *driver) work(w *worker) {
	for range 1 + min(int(d.rng.ExpFloat64()*10), 50) {
		if w.soft.Err() != nil {
			break
		}
		a := pick(d.rng, driverActivities, func(a *driverActivity) int {
			if !d.db.allows(a.modes) {
				return 0
			}
			return a.weight
		})
		d.does(a.name)
		began := time.Now()
		d.own.busy.Store(true)
		err := d.bounded(a.do)
		if d.conn.PgConn().TxStatus() == 'I' && !d.conn.IsClosed() {
			d.own.busy.Store(false)
		}
		over := d.judge(err)
		d.r.did(a.name, time.Since(began), err != nil)
		if over {
			break
		}
		w.wait(d.r.think(d.rng))
	}
	if d.rng.IntN(3) == 0 {
		// pgx would say goodbye; this one just goes.
		d.conn.PgConn().Conn().Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.conn.Close(ctx) //nolint:errcheck // leaving anyway
}

// judge notes an error that may not happen and reports whether the session is over.
func (d *driver) judge(err error) (over bool) {
	var pe *pgconn.PgError
	var limit *disturbed
	switch {
	case err == nil:
		return d.conn.IsClosed()
	case d.r.hard.Err() != nil, errors.Is(err, errLeft), errors.Is(err, errViolated):
		return true
	case errors.As(err, &limit):
		return d.conn.IsClosed()
	case errors.As(err, &pe):
		e := raw.Error{Severity: pe.Severity, Code: pe.Code, Message: pe.Message, Detail: pe.Detail, Hint: pe.Hint}
		if d.r.refusal(d.db, &e) || e.Fatal() && d.r.mayEnd(&e) {
			d.r.error(e.Code, e.Error())
			return e.Fatal() || d.conn.IsClosed()
		}
		k := unexpected
		if e.Code == "57014" {
			k = foreignCancel
		}
		d.r.violate(k, "%s %s/%s %s: %v", d.id.name(), d.db.name, d.user, d.doing, &e)
	case errors.Is(d.ctx.Err(), context.DeadlineExceeded):
		d.r.violate(noAnswer, "%s %s/%s %s: nothing within %v: %v; %s", d.id.name(), d.db.name, d.user, d.doing, patience, err, d.r.clientsNow())
	case broken(err) && d.r.causes.harmed():
		// pgx reports a write that failed before it looks for what the other side had to say.
		d.r.error("connection lost (pgx)", err.Error())
	default:
		d.r.violate(wordless, "%s %s/%s %s: %v", d.id.name(), d.db.name, d.user, d.doing, err)
	}
	return true
}

// broken reports an error of the socket.
func broken(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// mismatch notes a wrong answer.
func (d *driver) mismatch(got, want string) error {
	d.r.violate(strange(d.id, got), "%s %s/%s %s: got %s, wanted %s", d.id.name(), d.db.name, d.user, d.doing, short(got, 300), short(want, 300))
	return errViolated
}

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
