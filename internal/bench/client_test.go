package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// server answers logins and queries until the test ends; it counts both.
type server struct {
	addr            string
	logins, queries atomic.Int32
	refuse          bool
}

func startTestServer(t *testing.T, refuse bool) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &server{addr: ln.Addr().String(), refuse: refuse}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	be := pgproto3.NewBackend(conn, conn)
	if _, err := be.ReceiveStartupMessage(); err != nil {
		return
	}
	if s.refuse {
		be.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "53300", Message: "too many"})
		_ = be.Flush()
		return
	}
	s.logins.Add(1)
	be.Send(&pgproto3.AuthenticationOk{})
	be.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for be.Flush() == nil {
		msg, err := be.Receive()
		if err != nil {
			return
		}
		if _, ok := msg.(*pgproto3.Query); !ok {
			return
		}
		s.queries.Add(1)
		be.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		be.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

func TestIdleClientsWaitForTheEndOfInput(t *testing.T) {
	s := startTestServer(t, false)
	in, end := io.Pipe()
	said, say := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- idleClients([]string{"-addr", s.addr, "-n", "40"}, in, say)
		say.Close()
	}()
	line := make([]byte, 64)
	n, err := said.Read(line)
	if err != nil || string(line[:n]) != "idle 40\n" || s.logins.Load() != 40 || s.queries.Load() != 40 {
		t.Fatalf("said %q (%v) after %d logins and %d queries", line[:n], err, s.logins.Load(), s.queries.Load())
	}
	end.Close()
	rest, _ := io.ReadAll(said)
	if err := <-done; err != nil || string(rest) != "alive 40\n" || s.queries.Load() != 80 {
		t.Errorf("ended with %v, said %q, %d queries", err, rest, s.queries.Load())
	}
}

func TestIdleClientsSayWhyTheyCannotConnect(t *testing.T) {
	s := startTestServer(t, true)
	var out bytes.Buffer
	err := idleClients([]string{"-addr", s.addr, "-n", "3"}, strings.NewReader(""), &out)
	if err == nil || !strings.Contains(err.Error(), "53300") || out.Len() != 0 {
		t.Errorf("%v, said %q", err, out.String())
	}
}
