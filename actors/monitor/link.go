package monitor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/auth"
	"fencepost/role"
	"fencepost/wire"
)

// maxMessage bounds the body of one message of a server, in bytes.
const maxMessage = 1 << 20

// past is a deadline that interrupts a Read at once.
var past = time.Unix(1, 0)

// link is a connection that is logged in. It belongs to one goroutine; only closing conn is allowed to others.
type link struct {
	conn    net.Conn
	fe      *pgproto3.Frontend
	pid     uint32
	secret  []byte
	prober  prober
	better  prober    // the prober that was refused for lack of privilege; nil: none
	refused time.Time // when it was
	warned  string    // SQLSTATE of the last warning that announces an end
	limit   time.Duration
	release func() bool // stops the watch over the owner's life
}

// prober knows how to ask one flavour of server.
type prober interface {
	query() string
	// denied is the prober to fall back to when the server refused the query for lack of privilege; nil: none.
	denied() prober
}

type (
	postgres  struct{} // PostgreSQL
	noControl struct{} // PostgreSQL without the right to call pg_control_system()
	aurora    struct{} // Amazon Aurora
)

func (postgres) query() string   { return role.IdentityQuery }
func (postgres) denied() prober  { return noControl{} }
func (noControl) query() string  { return role.IdentityQueryNoControl }
func (noControl) denied() prober { return nil }
func (aurora) query() string     { return role.AuroraQuery }
func (aurora) denied() prober    { return nil }

// connect dials and logs in. It blocks until that is done or has failed, at the latest for cfg.Login; the end of life
// ends it, and later closes the link.
func connect(life context.Context, cfg *Config) (*link, *failure) {
	ctx, cancel := context.WithTimeout(life, cfg.Login)
	defer cancel()
	password, err := cfg.Password(ctx)
	if err != nil {
		return nil, &failure{kind: Local, err: fmt.Errorf("credentials for %s: %w", cfg.User, err)}
	}
	pc, err := pgconnConfig(cfg, password)
	if err != nil {
		return nil, &failure{kind: Local, err: err}
	}
	var conn *heardConn
	var dialError error
	pc.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.Connect)
		defer cancel()
		raw, err := cfg.Dial(ctx, network, address)
		if dialError = err; err != nil {
			return nil, err
		}
		conn = &heardConn{Conn: raw}
		return conn, nil
	}
	c, err := pgconn.ConnectConfig(ctx, pc)
	switch {
	case dialError != nil:
		return nil, dialFailure(dialError)
	case err != nil:
		return nil, loginFailure(err, conn != nil && conn.heard.Load())
	}
	h, err := c.Hijack()
	if err != nil {
		conn.Close()
		return nil, &failure{kind: Local, err: err}
	}
	l := &link{conn: h.Conn, fe: h.Frontend, pid: h.PID, secret: h.SecretKey, limit: cfg.Unanswered}
	l.release = context.AfterFunc(life, func() { l.conn.Close() })
	if f := l.choose(); f != nil {
		l.close()
		return nil, f
	}
	return l, nil
}

// pgconnConfig builds the configuration field by field: nothing of the process's environment or of password files may
// leak into a login.
func pgconnConfig(cfg *Config, password string) (*pgconn.Config, error) {
	host, portText, err := splitHost(cfg.Host)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", cfg.Host, err)
	}
	pc, err := pgconn.ParseConfig("host=localhost port=5432 user=x dbname=x password=x sslmode=disable")
	if err != nil {
		return nil, err
	}
	pc.Host, pc.Port, pc.User, pc.Database, pc.Password = host, uint16(port), cfg.User, cfg.Database, password
	pc.RuntimeParams = map[string]string{"application_name": "fencepost monitor"}
	pc.Fallbacks, pc.TLSConfig, pc.ValidateConnect = nil, nil, nil
	pc.MaxProtocolVersion = "3.2" // long cancel keys where the server has them; older ones negotiate 3.0
	pc.MaxProtocolMessageBodyLen = maxMessage
	pc.ConnectTimeout = 0 // the context bounds it
	if password == "" {
		pc.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
			return pgproto3.NewFrontend(auth.Passwordless(r, cfg.User), w)
		}
	}
	pc.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	return pc, nil
}

// splitHost splits a host into its address (or socket directory) and port.
func splitHost(h role.Host) (host, port string, err error) {
	if addr := string(h); strings.HasPrefix(addr, "/") {
		i := strings.LastIndexByte(addr, ':')
		if i < 0 {
			return addr, "5432", nil
		}
		return addr[:i], addr[i+1:], nil
	}
	return net.SplitHostPort(string(h))
}

// heardConn remembers whether the peer has sent anything. Atomic, since pgconn drains what it gives up on a goroutine.
type heardConn struct {
	net.Conn
	heard atomic.Bool
}

// Read implements net.Conn.
func (c *heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

// close ends the link.
func (l *link) close() {
	l.release()
	l.conn.Close()
}

// cancel asks the server to give up a query that was not answered, as far as that is possible within limit: so that
// backends that hang (on a locked catalog, for one) do not pile up with every new connection of the monitor.
func (l *link) cancel(ctx context.Context, cfg *Config, limit time.Duration) {
	if l.pid == 0 {
		return
	}
	host, port, err := splitHost(cfg.Host)
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	number, _ := strconv.ParseUint(port, 10, 16)
	network, address := pgconn.NetworkAddress(host, uint16(number))
	conn, err := cfg.Dial(ctx, network, address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	packet := wire.AppendCancelRequest(nil, wire.CancelKey{PID: l.pid, Secret: l.secret})
	if _, err := conn.Write(packet); err == nil {
		_, _ = conn.Read(packet) // the server closes when it has sent the signal
	}
}
