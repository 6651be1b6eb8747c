package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pgxScript is one session of pgx and what came of it. A step notes its error and the script goes on.
type pgxScript struct {
	t    *testing.T
	ctx  context.Context
	conn *pgx.Conn
	out  strings.Builder
}

// runPgx runs its steps twice: with pgx's default, which prepares statements under names, in session mode, and with
// unnamed ones in transaction mode.
func runPgx(t *testing.T, at place, e extent) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cfg, err := at.config()
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["client_encoding"], cfg.RuntimeParams["timezone"] = "UTF8", "Asia/Tokyo"
	s := &pgxScript{t: t, ctx: ctx}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.note("notice", n.Severity, n.Code, n.Message, n.Detail) }
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // its default
	if s.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		t.Fatalf("pgx at %s: %v", at.name, err)
	}
	defer s.conn.Close(ctx)
	steps := []func(){s.rows, s.transactions, s.copyIn, s.copyOut, s.pipeline}
	if e.full {
		steps = append(steps, s.modes, s.lowPipeline, s.largeObject, s.notices, s.bigRows, s.manyStatements, s.cancelled)
	}
	if e.session {
		steps = append(steps, s.listen)
	}
	steps = append(steps, s.prepared)
	s.exec("CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, data bytea, at timestamptz, tags text[])")
	for _, step := range steps {
		step()
	}
	s.exec("DROP TABLE item")
	return s.out.String()
}

// config is that of appUser, with statements that need nothing from one round to the next.
func (p place) config() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d dbname=%s user=%s sslmode=disable", p.host(), p.port(), p.database, appUser))
	if err != nil {
		return nil, err
	}
	cfg.Password, cfg.DefaultQueryExecMode = appPassword, pgx.QueryExecModeExec
	return cfg, nil
}

func (p place) pgx(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := p.config()
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func (s *pgxScript) note(parts ...any) { fmt.Fprintln(&s.out, parts...) }

// failed notes an error: what the server said, or that pgx itself refused.
func (s *pgxScript) failed(err error) {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		s.note("error", pe.Severity, pe.Code, pe.Message, pe.Detail, pe.Hint, pe.ConstraintName)
		return
	}
	s.note("error", err)
}

func (s *pgxScript) exec(sql string, args ...any) {
	tag, err := s.conn.Exec(s.ctx, sql, args...)
	if err != nil {
		s.failed(err)
	}
	s.note(sql, tag)
}

func (s *pgxScript) query(sql string, args ...any) {
	rows, err := s.conn.Query(s.ctx, sql, args...)
	if err != nil {
		s.failed(err)
		return
	}
	s.list(rows)
}

func (s *pgxScript) list(rows pgx.Rows) {
	for _, f := range rows.FieldDescriptions() {
		s.note("column", f.Name, f.DataTypeOID)
	}
	for rows.Next() {
		v, err := rows.Values()
		s.note("row", short(fmt.Sprint(v...)), err)
	}
	s.note(rows.CommandTag())
	if err := rows.Err(); err != nil {
		s.failed(err)
	}
}

func (s *pgxScript) rows() {
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	for i := range 10 {
		s.exec("INSERT INTO item VALUES ($1, $2, $3, $4, $5)", i, fmt.Sprintf("näme %d", i), []byte{0, byte(i), 255}, at, []string{"a", "b'c", `d\e`})
	}
	s.exec("INSERT INTO item (id, name) VALUES ($1, $2)", 1, "again")
	s.exec("INSERT INTO item (id) VALUES ($1)", 100)
	s.query("SELECT id, name, data, at, tags FROM item WHERE id < $1 ORDER BY id", 3)
	s.query("SELECT $1::int, $2::text, $3::float8, $4::timestamptz, $5::jsonb, $6::int[]", 1, "two", 3.5, at, map[string]int{"k": 1}, []int{1, 2})
	s.exec("UPDATE item SET name = upper(name) WHERE id % 2 = $1", 0)
	s.exec("DELETE FROM item WHERE id = $1", 9)
	s.query("SELECT 1/$1::int", 0)
	s.query("SELECT nothing FROM item")
	s.query("SELECT count(*), min(name), max(name) FROM item")
}

func (s *pgxScript) transactions() {
	for _, commit := range []bool{true, false} {
		err := pgx.BeginFunc(s.ctx, s.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(s.ctx, "INSERT INTO item (id, name) VALUES (200, 'x') ON CONFLICT (id) DO UPDATE SET name = item.name || 'x'"); err != nil {
				return err
			}
			inner := pgx.BeginFunc(s.ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(s.ctx, "INSERT INTO item (id, name) VALUES (200, 'again')")
				return err
			})
			s.failed(inner)
			if !commit {
				return errors.New("not to be committed")
			}
			return nil
		})
		s.note("transaction", err)
	}
	s.query("SELECT name FROM item WHERE id = 200")
	tx, err := s.conn.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly})
	if err != nil {
		s.failed(err)
		return
	}
	_, err = tx.Exec(s.ctx, "INSERT INTO item (id, name) VALUES (201, 'read only')")
	s.failed(err)
	s.note("commit", tx.Commit(s.ctx))
}

func (s *pgxScript) copyIn() {
	columns := []string{"id", "name"}
	for _, c := range []struct {
		from  int
		limit int // rows before the source fails
	}{{1000, 1 << 30}, {1000, 1 << 30}, {3000, 500}} {
		i := 0
		n, err := s.conn.CopyFrom(s.ctx, pgx.Identifier{"item"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			if i++; i > c.limit {
				return nil, errors.New("the source failed")
			}
			if i > 1000 {
				return nil, nil
			}
			return []any{c.from + i, strings.Repeat("x", i)}, nil
		}))
		s.note("copied", n)
		if err != nil {
			s.failed(err)
		}
	}
	tag, err := s.conn.PgConn().CopyFrom(s.ctx, strings.NewReader("5000\ttext\nnonsense\n"+strings.Repeat("5001\tmore\n", 200000)), "COPY item (id, name) FROM STDIN")
	s.note(tag)
	s.failed(err)
	s.query("SELECT count(*), sum(length(name)) FROM item")
}

func (s *pgxScript) copyOut() {
	for _, sql := range []string{"COPY (SELECT id, name FROM item ORDER BY id) TO STDOUT", "COPY (SELECT 1/(3 - n) FROM generate_series(1, 5) n) TO STDOUT", "COPY nothing TO STDOUT"} {
		var b bytes.Buffer
		tag, err := s.conn.PgConn().CopyTo(s.ctx, &b, sql)
		s.note(short(b.String()), tag)
		if err != nil {
			s.failed(err)
		}
	}
}

// pipeline uses batches: one write, one Sync.
func (s *pgxScript) pipeline() {
	for _, broken := range []bool{false, true} {
		b := &pgx.Batch{}
		for i := range 20 {
			b.Queue("INSERT INTO item (id, name) VALUES ($1, 'batch')", 300+i)
			if broken && i == 10 {
				b.Queue("SELECT 1/(random() * 0)::int")
			}
			b.Queue("SELECT count(*) FROM item WHERE id BETWEEN 300 AND $1", 300+i)
		}
		b.Queue("DELETE FROM item WHERE id BETWEEN 300 AND 399")
		res := s.conn.SendBatch(s.ctx, b)
		for range b.Len() {
			rows, err := res.Query()
			if err != nil {
				s.failed(err)
				break
			}
			s.list(rows)
		}
		if err := res.Close(); err != nil {
			s.failed(err)
		}
		s.query("SELECT count(*) FROM item WHERE id BETWEEN 300 AND 399")
	}
}
