package arm

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// roleCheck answers GET /primary with 200 while a server says that it is out of recovery, and with 503 else, as an
// agent beside the server would. It reaches the server the way clients do, so that what is cut off for them is cut off
// for it. It knows of no leader's lock: of two primaries both are.
type roleCheck struct {
	url    string
	ln     net.Listener
	server *http.Server

	mu   sync.Mutex // guards conn, over a query: checks come one a second
	conn *pgx.Conn
}

// roleLimit is shorter than HAProxy's own patience.
const roleLimit = 800 * time.Millisecond

func checkRole(url string) (*roleCheck, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &roleCheck{url: url, ln: ln}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: time.Second}
	go c.server.Serve(ln) //nolint:errcheck // ends by close
	return c, nil
}

func (c *roleCheck) addr() string { return c.ln.Addr().String() }

func (c *roleCheck) close() {
	c.server.Close() //nolint:errcheck // it closes what there is
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// ServeHTTP implements http.Handler.
func (c *roleCheck) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), roleLimit)
	defer cancel()
	if req.URL.Path != "/primary" || !c.primary(ctx) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (c *roleCheck) primary(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 2 { // a connection that was left behind by a restart is found out by its use
		if c.conn == nil {
			conn, err := pgx.Connect(ctx, c.url)
			if err != nil {
				return false
			}
			c.conn = conn
		}
		var standby bool
		if err := c.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err == nil {
			return !standby
		}
		c.drop()
	}
	return false
}

func (c *roleCheck) drop() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), roleLimit)
	defer cancel()
	c.conn.Close(ctx)
	c.conn = nil
}
