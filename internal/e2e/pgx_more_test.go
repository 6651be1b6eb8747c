package e2e

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// modes are the ways of pgx that need nothing from one message round to the next.
func (s *pgxScript) modes() {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		s.query("SELECT $1::int + 1, $2::text", mode, 41, "it's")
		s.query("SELECT $1::int / 0", mode, 1)
		s.query("", mode)
	}
}

// lowPipeline uses the protocol's pipeline: Flush to see answers early, Sync to end a segment, an error inside.
func (s *pgxScript) lowPipeline() {
	p := s.conn.PgConn().StartPipeline(s.ctx)
	send := func(sql string, args ...string) {
		var values [][]byte
		for _, a := range args {
			values = append(values, []byte(a))
		}
		p.SendQueryParams(sql, values, nil, nil, nil)
	}
	send("SELECT $1::int", "1")
	p.SendFlushRequest()
	s.results(p, p.Flush(), 1)
	send("SELECT $1::int", "2")
	send("SELECT 1/(random() * 0)::int")
	send("INSERT INTO item (id, name) VALUES (400, 'skipped')")
	p.SendPipelineSync()
	send("SELECT count(*) FROM item WHERE id = $1", "400")
	s.results(p, p.Sync(), 6)
	for range 500 {
		send("SELECT repeat('x', $1)", "1000")
	}
	s.results(p, p.Sync(), 501)
	s.note("end of the pipeline", p.Close())
}

func (s *pgxScript) results(p *pgconn.Pipeline, err error, n int) {
	for ; err == nil && n > 0; n-- {
		var res any
		res, err = p.GetResults()
		switch r := res.(type) {
		case *pgconn.ResultReader:
			got := r.Read()
			s.note("result", fmt.Sprintf("%.100q", got.Rows), got.CommandTag)
			if got.Err != nil {
				s.failed(got.Err)
			}
		case *pgconn.PipelineSync:
			s.note("sync")
		default:
			s.note("nothing", res)
		}
		if err != nil { // an error of a statement: the pipeline goes on
			s.failed(err)
			err = nil
		}
	}
}

func (s *pgxScript) largeObject() {
	err := pgx.BeginFunc(s.ctx, s.conn, func(tx pgx.Tx) error {
		los := tx.LargeObjects()
		oid, err := los.Create(s.ctx, 0)
		if err != nil {
			return err
		}
		lo, err := los.Open(s.ctx, oid, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite)
		if err != nil {
			return err
		}
		written, err := lo.Write([]byte(strings.Repeat("0123456789", 30000)))
		if err != nil {
			return err
		}
		at, err := lo.Seek(-12, io.SeekEnd)
		if err != nil {
			return err
		}
		rest, err := io.ReadAll(lo)
		s.note("large object", written, at, string(rest), err, lo.Truncate(5))
		if _, err := lo.Seek(0, io.SeekStart); err != nil {
			return err
		}
		rest, err = io.ReadAll(lo)
		s.note("cut", string(rest), err, lo.Close(), los.Unlink(s.ctx, oid))
		return nil
	})
	if err != nil {
		s.failed(err)
	}
}

func (s *pgxScript) notices() {
	s.exec("DO $$ BEGIN FOR i IN 1..3 LOOP RAISE NOTICE 'notice %', i USING DETAIL = 'd'; END LOOP; RAISE WARNING 'warning'; END $$")
	s.exec("DROP TABLE IF EXISTS not_there")
}

func (s *pgxScript) bigRows() {
	for _, size := range []int{1, 1000, 8000, 100000, 5000000} {
		s.query("SELECT length($1), md5($1), repeat('y', $2)", strings.Repeat("x", size), size)
	}
	s.query("SELECT n, repeat(n::text, 100) FROM generate_series(1, 2000) n")
}

func (s *pgxScript) manyStatements() {
	for _, sql := range []string{"SELECT 1; SELECT 'a', 'b'; ; INSERT INTO item (id, name) VALUES (500, 'many') RETURNING id; SELECT 2",
		"INSERT INTO item (id, name) VALUES (501, 'many'); SELECT 1/0; SELECT 3", "", ";", "BEGIN; SELECT 1; ROLLBACK; SELECT 2"} {
		res, err := s.conn.PgConn().Exec(s.ctx, sql).ReadAll()
		for _, r := range res {
			s.note("result", fmt.Sprintf("%q", r.Rows), r.CommandTag, r.Err != nil)
		}
		if err != nil {
			s.failed(err)
		}
	}
	s.query("SELECT id FROM item WHERE id IN (500, 501)")
}

// cancelled asks for the cancel of a running statement.
func (s *pgxScript) cancelled() {
	for i := range 3 {
		asked := make(chan error, 1)
		time.AfterFunc(300*time.Millisecond, func() { asked <- s.conn.PgConn().CancelRequest(s.ctx) })
		s.query("SELECT pg_sleep(20), $1::int", i)
		s.note("asked", <-asked)
		s.query("SELECT 'after', $1::int", i)
	}
}

func (s *pgxScript) listen() {
	s.exec("LISTEN here")
	for _, sql := range []string{"NOTIFY here, 'one'", "SELECT pg_notify('here', 'two')", "NOTIFY elsewhere"} {
		s.exec(sql)
	}
	for range 2 {
		n, err := s.conn.WaitForNotification(s.ctx)
		if err != nil {
			s.failed(err)
			return
		}
		s.note("notified", n.Channel, n.Payload)
	}
	s.exec("UNLISTEN *")
}

func (s *pgxScript) prepared() {
	sd, err := s.conn.Prepare(s.ctx, "named", "SELECT id, name FROM item WHERE id = $1 AND name <> $2")
	if err != nil {
		s.failed(err)
		return
	}
	s.note("prepared", sd.Name, sd.ParamOIDs, len(sd.Fields))
	for i := range 5 {
		s.query("named", i, "x")
	}
	s.exec("CREATE TEMP TABLE gone (n int)")
	s.query("SELECT count(*) FROM gone")
	s.exec("DISCARD ALL")
	s.query("named", 1, "x")
	s.query("SELECT count(*) FROM item")
}
