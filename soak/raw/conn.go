// Package raw is a PostgreSQL client for tests that sends exactly what it is told to, writes down what comes back, and
// leaves as it is told to: politely, by closing, by a reset, by closing one direction only, in the middle of a message.
//
// It logs in with pgconn and takes the connection over from there, so that SCRAM is pgx's and all that follows is ours.
package raw

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Login says where and as whom to log in.
type Login struct {
	Addr     string // host:port
	User     string
	Password string
	Database string
	Params   map[string]string // startup parameters
	Protocol string            // highest version to ask for: "3.0" or "3.2"; "" is 3.0
	// ReceiveBuffer is the size asked for the socket's receive buffer, for a client that takes slowly; 0 is the system's.
	ReceiveBuffer int
}

// Config is the pgconn configuration of a login over m's connections. Nothing of the environment gets into it.
func (l Login) Config(m *Meter) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig("host=localhost port=5432 user=x dbname=x password=x sslmode=disable")
	if err != nil {
		return nil, err
	}
	return cfg, l.Apply(cfg, m)
}

// Apply changes a configuration, which may be part of a pgx.ConnConfig, to that of the login.
func (l Login) Apply(cfg *pgconn.Config, m *Meter) error {
	host, portText, err := net.SplitHostPort(l.Addr)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return fmt.Errorf("port of %s: %w", l.Addr, err)
	}
	cfg.Host, cfg.Port = host, uint16(port)
	cfg.User, cfg.Password, cfg.Database = l.User, l.Password, l.Database
	cfg.TLSConfig, cfg.Fallbacks, cfg.ConnectTimeout = nil, nil, dialLimit
	cfg.RuntimeParams = map[string]string{}
	for k, v := range l.Params {
		cfg.RuntimeParams[k] = v
	}
	cfg.MaxProtocolVersion = "3.0"
	if l.Protocol != "" {
		cfg.MaxProtocolVersion = l.Protocol
	}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := m.Dial(ctx, network, addr)
		if err == nil && l.ReceiveBuffer > 0 {
			err = nc.(*metered).SetReadBuffer(l.ReceiveBuffer)
		}
		return nc, err
	}
	return nil
}

// Conn is a session. It is for one goroutine; only Close, Reset and Cancel may be called from others.
type Conn struct {
	PID    uint32            // the key for cancel requests
	Secret []byte            // its other half
	Params map[string]string // the last ParameterStatus of each name
	Status byte              // of the last ReadyForQuery: 'I', 'T' or 'E'
	// Notified, if set, is told of every NotificationResponse.
	Notified func(channel, payload string)

	addr string
	m    *Meter
	nc   *metered
	fe   *pgproto3.Frontend
}

// Open connects and logs in. A refusal is a *pgconn.PgError in the error's chain.
func Open(ctx context.Context, l Login, m *Meter) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	cfg, err := l.Config(m)
	if err != nil {
		return nil, err
	}
	pc, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h, err := pc.Hijack()
	if err != nil {
		return nil, err
	}
	return &Conn{PID: h.PID, Secret: h.SecretKey, Params: h.ParameterStatuses, Status: h.TxStatus,
		addr: l.Addr, m: m, nc: h.Conn.(*metered), fe: h.Frontend}, nil
}

// Send writes messages in one go. It blocks until they are with the kernel or until is over.
func (c *Conn) Send(until time.Time, msgs ...pgproto3.FrontendMessage) error {
	if err := c.nc.SetWriteDeadline(until); err != nil {
		return err
	}
	for _, m := range msgs {
		c.fe.Send(m)
	}
	return c.fe.Flush()
}

// SendPart writes the messages without their last cut bytes.
func (c *Conn) SendPart(until time.Time, cut int, msgs ...pgproto3.FrontendMessage) error {
	var b []byte
	for _, m := range msgs {
		var err error
		if b, err = m.Encode(b); err != nil {
			return err
		}
	}
	return c.Write(until, b[:max(len(b)-cut, 0)])
}

// Write writes bytes as they are.
func (c *Conn) Write(until time.Time, b []byte) error {
	if err := c.nc.SetWriteDeadline(until); err != nil {
		return err
	}
	_, err := c.nc.Write(b)
	return err
}

// Receive returns the next message, which is valid until the next call, waiting for it until the given time.
func (c *Conn) Receive(until time.Time) (pgproto3.BackendMessage, error) {
	if err := c.nc.SetReadDeadline(until); err != nil {
		return nil, err
	}
	m, err := c.fe.Receive()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *pgproto3.ReadyForQuery:
		c.Status = m.TxStatus
	case *pgproto3.ParameterStatus:
		c.Params[m.Name] = m.Value
	case *pgproto3.NotificationResponse:
		if c.Notified != nil {
			c.Notified(m.Channel, m.Payload)
		}
	}
	return m, nil
}

// LocalAddr is the client's end of the connection.
func (c *Conn) LocalAddr() string { return c.nc.LocalAddr().String() }

// Pace has the connection read no more than so many bytes a second from now on; 0 is no limit.
func (c *Conn) Pace(bytesPerSecond int) { c.nc.pace.Store(int64(bytesPerSecond)) }

// Close closes the socket without a word (the peer sees the end of the stream, or a reset if there was unread input).
func (c *Conn) Close() { c.nc.Close() }

// Reset closes the socket so that the peer gets a reset.
func (c *Conn) Reset() { c.nc.reset() } //nolint:errcheck // a socket that is gone needs no reset

// Terminate says goodbye and closes.
func (c *Conn) Terminate() {
	c.Send(time.Now().Add(time.Second), &pgproto3.Terminate{}) //nolint:errcheck // leaving anyway
	c.nc.Close()
}

// CloseWrite ends the sending direction only.
func (c *Conn) CloseWrite() error { return c.nc.TCPConn.CloseWrite() }

// Cancel sends a CancelRequest for the session with the given key and waits until the peer closes the connection: then
// the request has been dealt with.
func (c *Conn) Cancel(ctx context.Context, pid uint32, secret []byte) error {
	nc, err := c.m.DialUncounted(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(until); err != nil {
			return err
		}
	}
	b, err := (&pgproto3.CancelRequest{ProcessID: pid, SecretKey: secret}).Encode(nil)
	if err != nil {
		return err
	}
	if _, err := nc.Write(b); err != nil {
		return err
	}
	var one [1]byte
	if n, err := nc.Read(one[:]); n > 0 {
		return fmt.Errorf("a cancel request was answered with %q", one)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // of a socket's own read
		return fmt.Errorf("the connection of a cancel request was not closed: %w", err)
	}
	return nil // closed
}
