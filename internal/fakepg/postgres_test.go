package fakepg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/pgcluster"
)

// The same random messages, sent to the fake and to PostgreSQL, bring the same answers: what the tests that use the fake
// show is true of PostgreSQL. FAKEPG_SEEDS says how many streams (default 150).
func TestAsPostgreSQL(t *testing.T) {
	seeds := 150
	if n, err := strconv.Atoi(os.Getenv("FAKEPG_SEEDS")); err == nil {
		seeds = n
	}
	cluster := pgcluster.New(t, pgcluster.Options{})
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	if err := cluster.Primary().Exec(ctx, "CREATE TABLE t (v int)", "CREATE TABLE d (v int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)",
		"INSERT INTO d VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		var sent []pgproto3.FrontendMessage
		for range 1 + r.IntN(8) {
			sent = append(sent, Random(r, fmt.Sprintf("c%d.%d", seed, len(sent)))...)
		}
		sent = append(sent, &pgproto3.CopyFail{Message: "end"}, &pgproto3.Sync{}, &pgproto3.Query{String: "ROLLBACK; SELECT 'the end'"})
		want := realAnswers(t, cluster.Primary().Addr(), sent)
		got := fakeAnswers(sent)
		if !slices.Equal(got, want) {
			for _, m := range sent {
				t.Logf("sent %T %+v", m, m)
			}
			t.Fatalf("seed %d:\n fake %q\n real %q", seed, got, want)
		}
	}
}

func fakeAnswers(sent []pgproto3.FrontendMessage) (all []string) {
	e := NewEngine(func(m pgproto3.BackendMessage) { all = append(all, summary(m)) })
	for _, m := range sent {
		if !e.Handle(m) {
			return append(all, "the end")
		}
	}
	return all
}

// realAnswers sends all in one go on a connection of its own.
func realAnswers(t *testing.T, addr string, sent []pgproto3.FrontendMessage) (all []string) {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	f := pgproto3.NewFrontend(nc, nc)
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": pgcluster.Superuser, "database": "postgres"}})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	for ready := false; !ready; {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		_, ready = m.(*pgproto3.ReadyForQuery)
	}
	for _, m := range sent {
		f.Send(m)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	end := false
	for {
		m, err := f.Receive()
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
			return append(all, "the end")
		}
		if err != nil {
			t.Fatalf("%v after %q", err, all)
		}
		all = append(all, summary(m))
		switch m := m.(type) {
		case *pgproto3.DataRow:
			end = string(m.Values[0]) == "the end"
		case *pgproto3.ReadyForQuery:
			if end {
				return all
			}
		}
	}
}

func summary(m pgproto3.BackendMessage) string {
	switch m := m.(type) {
	case *pgproto3.ReadyForQuery:
		return "Z" + string(m.TxStatus)
	case *pgproto3.ErrorResponse:
		return "E" + m.Code
	case *pgproto3.CommandComplete:
		return "C" + string(m.CommandTag)
	case *pgproto3.DataRow:
		return fmt.Sprintf("D%s", m.Values)
	case *pgproto3.ParameterStatus:
		return "S" + m.Name + "=" + m.Value
	case *pgproto3.NoticeResponse:
		return "N" + m.Code
	case *pgproto3.CopyData:
		return "d" + string(m.Data)
	}
	return fmt.Sprintf("%T", m)
}
