package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"fencepost/internal/relay"
)

// wired is a lab with a relay between Fencepost and the server, which knows cancel requests from sessions.
type wired struct {
	*lab
	wire *relay.Relay
}

// newWired makes a database and starts Fencepost in front of it, behind a relay.
func newWired(t testing.TB, version string, lines ...string) *wired {
	t.Helper()
	n, db := newDatabase(t, version)
	w := startWired(t, n.Addr(), db, lines...)
	w.node, w.db = n, db
	return w
}

// startWired starts Fencepost behind a relay in front of any server.
func startWired(t testing.TB, server, db string, lines ...string) *wired {
	t.Helper()
	r := startRelay(t, server)
	w := &wired{lab: &lab{t: t}, wire: r}
	w.pooler = startPooler(t, settings{host: r.Addr(), dbname: db, lines: lines})
	return w
}

// startRelay starts a relay that ends with the test.
func startRelay(t testing.TB, server string) *relay.Relay {
	t.Helper()
	r, err := relay.Listen(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// lead makes a relay an address behind which servers come and go: what was open to the former one is reset. To nobody:
// connections are closed at once.
func lead(r *relay.Relay, server string) {
	r.Lead(server)
	r.Reset()
}

// treat has all cancel requests treated alike from now on.
func (w *wired) treat(t relay.Treatment) {
	w.wire.Treat(func() relay.Treatment { return t })
}

// outcomes are the cancels by outcome, those that are not zero, as "delivered 2, queue 1".
func (w *wired) outcomes() string {
	w.t.Helper()
	m, err := w.pooler.Metrics(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	sums := m.By("fencepost_pool_cancels_total", "outcome")
	var all []string
	for _, name := range []string{"delivered", "not_sent", "uncertain", "timed_out", "dropped", "queue", "idle"} {
		if sums[name] > 0 {
			all = append(all, fmt.Sprintf("%s %v", name, sums[name]))
		}
	}
	return strings.Join(all, ", ")
}

// counted waits until the outcomes are as wanted.
func (w *wired) counted(want string) {
	w.t.Helper()
	got := ""
	if err := poll(10*time.Second, func() (bool, error) { got = w.outcomes(); return got == want, nil }); err != nil {
		w.t.Errorf("cancels by outcome: %q, want %q", got, want)
	}
}

// sleepy is a statement that says when it begins and runs for so long. The tag makes it unique.
func sleepy(tag string, runs time.Duration) string {
	return fmt.Sprintf("DO $$BEGIN RAISE NOTICE '%s'; PERFORM pg_sleep(%f); END$$", tag, runs.Seconds())
}

// begun sends a sleepy statement and waits until it runs.
func (c *raw) begun(tag string, runs time.Duration) error {
	if err := c.send(query(sleepy(tag, runs))); err != nil {
		return err
	}
	return c.expect("N[" + tag + "]")
}

// loginKey logs in with a version of the protocol.
func loginKey(addr, database string, version uint32) (*raw, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	got, err := c.startup(version, "user", anyUser, "database", database)
	if err == nil && got != "R[0] Z[I]" {
		err = fmt.Errorf("login: %s", got)
	}
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	return c, nil
}

// startOnUnix starts Fencepost with a unix socket beside its TCP port, and returns the socket's address as libpq would
// have it: folder and port.
func startOnUnix(t testing.TB, s settings) (*pooler, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.lines = append(s.lines, fmt.Sprintf("unix_socket_dir = %q", dir))
	p := startPooler(t, s)
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	return p, net.JoinHostPort(dir, port)
}
