package e2e

import (
	"bufio"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A drain waits for a statement; whoever sent it can cancel it, and admins on the Unix socket get in, until the end. Nobody
// else does, and a console that is open does not keep the process from ending.
func TestDrainServesCancelsAndAdmins(t *testing.T) {
	t.Parallel()
	node, db := newDatabase(t, "15")
	p, at := startOnUnix(t, settings{host: node.Addr(), dbname: db})
	dir, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	unix := func(user, database string) (*raw, string) {
		nc, err := net.Dial("unix", dir+"/.s.PGSQL."+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &raw{nc: nc, r: bufio.NewReader(nc), params: map[string]string{}}
		got, err := c.startup(version30, "user", user, "database", database)
		if err != nil && !gone(err) {
			t.Fatal(err)
		}
		return c, got
	}
	running, err := loginKey(p.addr, "transaction", version30)
	if err != nil {
		t.Fatal(err)
	}
	defer running.nc.Close()
	if err := running.begun("held", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := poll(patience, func() (bool, error) {
		c, err := login(p.addr, "transaction")
		if err == nil {
			c.close()
		} else if !strings.Contains(err.Error(), "E[57P01]") {
			return false, err
		}
		return err != nil, nil
	}); err != nil {
		t.Fatalf("clients are let in while it drains, or find nobody: %v", err)
	}
	for _, who := range [][2]string{{anyUser, "transaction"}, {anyUser, "fencepost"}} {
		if _, got := unix(who[0], who[1]); !strings.HasPrefix(got, "E[57P01]") {
			t.Errorf("%s of %s: %s", who[0], who[1], got)
		}
	}
	if c, err := dial(p.addr); err != nil {
		t.Error(err)
	} else if got, _ := c.startup(version30, "user", "ops", "database", "fencepost"); !strings.HasPrefix(got, "E[57P01]") {
		t.Errorf("an admin over TCP: %s", got)
	}
	console, got := unix("ops", "fencepost")
	if !strings.HasSuffix(got, "Z[I]") {
		t.Fatalf("an admin on the Unix socket: %s", got)
	}
	if got, err := console.query("SHOW VERSION"); err != nil || !strings.HasPrefix(got, "Fencepost") {
		t.Errorf("the console says %q, %v", got, err)
	}
	if err := running.cancel(p.addr); err != nil {
		t.Fatal(err)
	}
	if err := running.expect("E[57014] Z[I] " + administrator); err != nil {
		t.Error(err)
	}
	if err := poll(patience, func() (bool, error) { return !p.Running(), nil }); err != nil {
		t.Error("Fencepost does not end")
	}
}
