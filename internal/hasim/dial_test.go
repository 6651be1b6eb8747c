package hasim

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/role"
	"fencepost/wire"
)

// dialer is a backend.Dialer over the simulated network: the login of backend.PasswordDialer as far as a server can see
// it, without pgconn's cost.
type dialer struct{ w *world }

var _ backend.Dialer = dialer{}

// Dial implements backend.Dialer.
func (d dialer) Dial(ctx context.Context, t backend.Target) (*backend.Login, error) {
	c, s, err := d.w.connectTo(ctx, t.Host)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { c.Close(); close(ended) })
	l, err := login(c, t)
	if !stop() {
		<-ended
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	d.w.mu.Lock()
	d.w.logins[l] = s
	d.w.mu.Unlock()
	return l, nil
}

func login(c net.Conn, t backend.Target) (*backend.Login, error) {
	f := pgproto3.NewFrontend(c, c)
	l := &backend.Login{Conn: c, Params: map[string]string{}, Query: role.IdentityQuery}
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: 3 << 16, Parameters: map[string]string{"user": t.User, "database": t.Database}})
	if _, err := answer(f, l); err != nil {
		return nil, err
	}
	asked := time.Now()
	f.Send(&pgproto3.Query{String: role.IdentityQuery})
	row, err := answer(f, l)
	if err != nil {
		return nil, err
	}
	id, err := role.ParseIdentity(row)
	if err != nil {
		return nil, err
	}
	if f.ReadBufferLen() != 0 {
		return nil, errors.New("the server is not at rest after login")
	}
	l.Proof = &backend.Proof{Identity: id, Asked: asked, Answered: time.Now()}
	return l, nil
}

// answer sends what is queued and reads up to ReadyForQuery.
func answer(f *pgproto3.Frontend, l *backend.Login) (row [][]byte, err error) {
	if err := f.Flush(); err != nil {
		return nil, err
	}
	for {
		m, err := f.Receive()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			return nil, &pgconn.PgError{Severity: m.Severity, Code: m.Code, Message: m.Message}
		case *pgproto3.ParameterStatus:
			l.Params[m.Name] = m.Value
		case *pgproto3.BackendKeyData:
			l.PID, l.Secret = m.ProcessID, append([]byte(nil), m.SecretKey...)
		case *pgproto3.DataRow:
			for _, v := range m.Values {
				row = append(row, append([]byte(nil), v...))
			}
		case *pgproto3.ReadyForQuery:
			return row, nil
		}
	}
}

// Cancel implements backend.Dialer.
func (d dialer) Cancel(remote net.Addr, key wire.CancelKey, limit time.Duration) backend.CancelResult {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	c, _, err := d.w.connectTo(ctx, remote.String())
	if err != nil {
		return backend.CancelResult{Err: err, Timeout: ctx.Err() != nil}
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(wire.AppendCancelRequest(nil, key)); err != nil {
		return backend.CancelResult{Sent: true, Err: err}
	}
	if _, err := io.Copy(io.Discard, c); err != nil || ctx.Err() != nil {
		return backend.CancelResult{Sent: true, Timeout: ctx.Err() != nil, Err: errors.Join(err, ctx.Err())}
	}
	return backend.CancelResult{Sent: true}
}
