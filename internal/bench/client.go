package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// client is a connection that knows just enough of the protocol to log in without a password and to run a query.
type client struct {
	conn net.Conn
	fe   *pgproto3.Frontend
}

// answerLimit is how long an answer may take on a busy machine before the measurement is given up.
const answerLimit = 60 * time.Second

// dial connects to a server or pooler and logs in.
func dial(ctx context.Context, addr string) (*client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, fe: pgproto3.NewFrontend(conn, conn)}
	c.fe.Send(&pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersion30,
		Parameters:      map[string]string{"user": role, "database": database},
	})
	if err := c.roundTrip(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("log in at %s: %w", addr, err)
	}
	return c, nil
}

// query runs sql and drops its result.
func (c *client) query(sql string) error {
	c.fe.Send(&pgproto3.Query{String: sql})
	return c.roundTrip()
}

// roundTrip flushes and reads up to ReadyForQuery.
func (c *client) roundTrip() error {
	if err := c.conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	if err := c.fe.Flush(); err != nil {
		return err
	}
	var failed error
	for {
		msg, err := c.fe.Receive()
		if err != nil {
			if failed != nil { // a fatal error, then the end of the connection
				return failed
			}
			return err
		}
		switch m := msg.(type) {
		case *pgproto3.ErrorResponse:
			failed = fmt.Errorf("%s %s: %s", m.Severity, m.Code, m.Message)
		case *pgproto3.ReadyForQuery:
			return failed
		case *pgproto3.AuthenticationOk:
		case pgproto3.AuthenticationResponseMessage:
			return fmt.Errorf("asked for a password (%T)", m)
		}
	}
}

// close says goodbye as a well-behaved client does.
func (c *client) close() {
	c.fe.Send(&pgproto3.Terminate{})
	_ = c.fe.Flush()
	c.conn.Close()
}

// drop closes the socket without a word, as a client that crashed.
func (c *client) drop() { c.conn.Close() }
