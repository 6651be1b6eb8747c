package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/auth"
	"fencepost/pgerr"
	"fencepost/role"
	"fencepost/wire"
)

// Target says where and as whom a backend logs in.
type Target struct {
	Host     string // "name:port", "1.2.3.4:port", or "/directory:port" for a unix socket
	Database string
	User     string
	Source   CredentialSource
	Timeout  time.Duration // for connect and login together (server_connect_timeout)
	// Identify: after the login the server is asked who it is, before the backend is handed over (Backend.Proof). The host
	// has a role.
	Identify bool
	// Lost, if not nil, raises doubt about the host in the moment an unexpected loss of an opened backend is seen, before
	// the message that says so. Doubt does the same for hints; it returns false if there was one lately, and then nothing
	// is sent. Both are called on the loop and do not block.
	Lost  func(at time.Time)
	Doubt func(at time.Time) bool
	// Tune sets socket options on the fresh connection; may be nil.
	Tune func(net.Conn)
}

// CredentialSource gives the secret for one login. Asked anew for each, so that a source may rotate it. It may block
// until ctx ends.
type CredentialSource interface {
	Password(ctx context.Context) (string, error)
}

// FixedPassword is a CredentialSource for a password from the settings; "" for servers that ask for none: at
// others a login fails with pgerr.NoServerPassword.
type FixedPassword string

// Password returns the password.
func (p FixedPassword) Password(context.Context) (string, error) { return string(p), nil }

// String hides the password.
func (FixedPassword) String() string { return "***" }

// Login is a server connection that is logged in and at rest. Whoever receives it owns Conn.
type Login struct {
	Conn   net.Conn
	Params map[string]string // as reported by ParameterStatus
	PID    uint32
	Secret []byte
	Proof  *Proof // if Target.Identify
	// Query is the identity query the server understood (package role), which a Fence sends again; "": it was not asked.
	Query string
}

// discard closes the connection of a login that no backend has adopted; l may be nil.
func (l *Login) discard() {
	if l != nil && l.Conn != nil {
		l.Conn.Close()
	}
}

// Proof is what a server said of itself on a connection, at login or in answer to a Fence.
type Proof = role.Proof

// Dialer opens server connections and sends cancels. Both methods block until they are done, failed, or their time is
// over; they are called on goroutines.
type Dialer interface {
	Dial(ctx context.Context, t Target) (*Login, error)
	Cancel(remote net.Addr, key wire.CancelKey, limit time.Duration) CancelResult
}

// CancelResult is how a CancelRequest ended. Err is nil when the server closed the connection, which it does after it has
// sent the signal. Sent: a byte may have left.
type CancelResult struct {
	Sent, Timeout bool
	Err           error
}

// PasswordDialer logs in with pgconn: trust, password, md5 and SCRAM-SHA-256.
type PasswordDialer struct{}

// Dial implements Dialer.
func (PasswordDialer) Dial(ctx context.Context, t Target) (*Login, error) {
	password, err := t.Source.Password(ctx)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", t.User, err)
	}
	cfg, err := pgconnConfig(t, password)
	if err != nil {
		return nil, err
	}
	c, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := c.SyncConn(ctx); err != nil {
		c.Close(ctx)
		return nil, fmt.Errorf("synchronise: %w", err)
	}
	var proof *Proof
	var query string
	if t.Identify {
		if proof, query, err = identify(ctx, c); err != nil {
			c.Close(ctx)
			return nil, err
		}
	}
	h, err := c.Hijack()
	if err != nil {
		c.Close(ctx)
		return nil, err
	}
	if n := h.Frontend.ReadBufferLen(); n != 0 || h.TxStatus != wire.TxIdle {
		h.Conn.Close()
		return nil, fmt.Errorf("server is not at rest after login (%d bytes unread, status %c)", n, h.TxStatus)
	}
	if err := h.Conn.SetDeadline(time.Time{}); err != nil {
		h.Conn.Close()
		return nil, err
	}
	return &Login{Conn: h.Conn, Params: h.ParameterStatuses, PID: h.PID, Secret: h.SecretKey, Proof: proof, Query: query}, nil
}

// pgconnConfig builds the configuration field by field: nothing of the process's environment or of password files may
// leak into a server login.
func pgconnConfig(t Target, password string) (*pgconn.Config, error) {
	host, portText, err := SplitHost(t.Host)
	if err != nil {
		return nil, err
	}
	cfg, err := pgconn.ParseConfig("host=localhost port=5432 user=x dbname=x password=x sslmode=disable")
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", t.Host, err)
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Database, cfg.Password = host, uint16(port), t.User, t.Database, password
	cfg.RuntimeParams = map[string]string{}
	cfg.Fallbacks, cfg.TLSConfig = nil, nil
	cfg.MaxProtocolVersion = "3.2" // long cancel keys where the server has them; older ones negotiate 3.0
	cfg.ConnectTimeout = t.Timeout
	if password == "" {
		cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
			return pgproto3.NewFrontend(auth.Passwordless(r, t.User), w)
		}
	}
	dial := (&net.Dialer{}).DialContext
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil && t.Tune != nil {
			t.Tune(c)
		}
		return c, err
	}
	return cfg, nil
}

// SplitHost splits a host of the settings into its name (or socket directory) and port.
func SplitHost(addr string) (host, port string, err error) {
	if strings.HasPrefix(addr, "/") {
		i := strings.LastIndexByte(addr, ':')
		if i < 0 {
			return addr, "5432", nil
		}
		return addr[:i], addr[i+1:], nil
	}
	return net.SplitHostPort(addr)
}

// loginError turns a failed Dial into what a client is told, and says whether the server itself answered.
func loginError(err error) (e *pgerr.Error, rejected bool) {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pgerr.FromServer("FATAL", pe.Code, pe.Message, pe.Detail, pe.Hint), true
	}
	if errors.As(err, &e) { // it asks for a password that we do not have
		return e, true
	}
	return pgerr.CannotConnect(err), false
}
