package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"fencepost/pgerr"
	"fencepost/wire"

	"github.com/jackc/pgx/v5/pgconn"
)

// serve is the smallest server that can log a client in: startup message,
// exchange, ReadyForQuery. It ends when the client hangs up.
func serve(conn net.Conn, exchange func(user string) *Exchange) error {
	defer func() { _ = conn.Close() }()
	var startup wire.Startup
	for received := []byte(nil); ; {
		chunk := make([]byte, 512)
		n, err := conn.Read(chunk)
		if err != nil {
			return err
		}
		received = append(received, chunk[:n]...)
		if startup, n, err = wire.ParseStartup(received); err != nil {
			return err
		} else if n > 0 {
			break
		}
	}
	e := exchange(startup.User)
	out := e.Start(nil)
	for !e.Done() {
		if _, err := conn.Write(out); err != nil {
			return err
		}
		body, err := readPassword(conn)
		if err != nil {
			return err
		}
		if out, _, err = e.Step(nil, body); err != nil {
			_, _ = conn.Write(wire.AppendError(nil, pgerr.As(err)))
			return nil
		}
	}
	if _, err := conn.Write(wire.AppendReadyForQuery(wire.AppendAuthenticationOk(out), wire.TxIdle)); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn)
	return nil
}

func readPassword(r io.Reader) ([]byte, error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if header[0] != wire.MsgPasswordResponse || n < 4 || n > 4+MaxMessage {
		return nil, errors.New("not a message of type 'p'")
	}
	body := make([]byte, n-4)
	_, err := io.ReadFull(r, body)
	return body, err
}

// connect logs pgx's pgconn in at such a server.
func connect(t *testing.T, exchange func(user string) *Exchange, user, password string) error {
	t.Helper()
	config, err := pgconn.ParseConfig("host=server sslmode=disable dbname=d")
	if err != nil {
		t.Fatal(err)
	}
	config.User, config.Password = user, password
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	served := make(chan error, 1)
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { served <- serve(server, exchange) }()
		return client, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		_ = conn.Close(ctx)
	}
	if err := <-served; err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("server: %v", err)
	}
	return err
}

// TestPgconn logs a real client in. Passwords that only PostgreSQL's own
// SASLprep gets right are left to TestVerifiersOfPostgreSQL: pgx prepares them
// otherwise and fails with PostgreSQL itself too.
func TestPgconn(t *testing.T) {
	for _, password := range []string{`p$:,=\"'`, "pass\u00a0word", "\U0001F511 key"} {
		verifier := verifierOf(t, password, []byte("sixteen bytes it"), DefaultIterations)
		for _, text := range []string{password, md5Of("u=,1", password), verifier} {
			s := mustParse(t, "u=,1", text)
			for _, m := range []Method{Trust, Password, MD5, SCRAM} {
				users := func(user string) *Exchange {
					if user != "u=,1" {
						return NewExchange(m, user, nil)
					}
					return NewExchange(m, user, s)
				}
				if err := connect(t, users, "u=,1", password); (err == nil) != s.Usable(m) {
					t.Errorf("%v with %+q against %q: %v", m, password, text, err)
				}
				if m == Trust {
					continue
				}
				for _, wrong := range [][2]string{{"u=,1", password + "x"}, {"nobody", password}, {"u=,1", ""}} {
					err := connect(t, users, wrong[0], wrong[1])
					var refused *pgconn.PgError
					if !errors.As(err, &refused) || refused.Code != pgerr.InvalidPassword || refused.Severity != pgerr.SeverityFatal {
						t.Errorf("%v with %+q against %q: %v", m, wrong, text, err)
					}
				}
			}
		}
	}
}
