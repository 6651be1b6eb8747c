package soak

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	case (broken(err) || d.conn.IsClosed()) && (d.r.causes.harmed() || recent(&d.r.causes.lastKill)):
		// pgx does not always say what the other side said: a write that failed, or what it does next, is reported instead.
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
