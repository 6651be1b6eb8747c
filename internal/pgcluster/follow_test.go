package pgcluster

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fencepost/internal/poll"
)

// A running standby turns to another primary without a restart (13 and newer), a standby takes settings while it runs, and
// nodes follow each other by the address they were given for it.
func TestStandbyTurns(t *testing.T) {
	for _, version := range []string{"12", "15"} {
		t.Run(version, func(t *testing.T) {
			ctx := t.Context()
			names := map[string]string{}
			c := New(t, Options{Version: version, Standbys: 2, Upstream: func(n *Node) (string, error) {
				names[n.Name] = net.JoinHostPort("localhost", strconv.Itoa(n.Port))
				return names[n.Name], nil
			}})
			old, next, third := c.Nodes[0], c.Nodes[1], c.Nodes[2]
			before := third.PID()
			must(t, old.Stop(ctx, Fast))
			must(t, third.Follow(ctx, next))
			must(t, old.Follow(ctx, next))
			if c.Primary() != next {
				t.Errorf("after the primary was told to follow, the primary is %s", c.Primary().Name)
			}
			must(t, next.Promote(ctx))
			must(t, old.Start(ctx))
			must(t, c.CatchUp(ctx))
			if (third.PID() == before) != (version != "12") {
				t.Errorf("the standby's postmaster was %d and is %d", before, third.PID())
			}
			info := query[string](t, third, "SHOW primary_conninfo")
			if !strings.Contains(info, "host=localhost port="+strconv.Itoa(next.Port)) {
				t.Errorf("the standby follows %s, want %s", info, names[next.Name])
			}
			must(t, third.Configure(map[string]string{"default_transaction_read_only": "on"}))
			must(t, poll.Until(ctx, pollEvery, func() (bool, error) {
				return query[string](t, third, "SHOW default_transaction_read_only") == "on", nil
			}))
		})
	}
}

// The processes of a server are those that its pid file and its children tell of, and none once it was stopped.
func TestProcesses(t *testing.T) {
	c := New(t, Options{})
	n := c.Primary()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var pids []int
	must(t, poll.Until(ctx, pollEvery, func() (bool, error) { // one may have ended since it was listed: a worker that had nothing to do
		pids = n.Processes()
		return len(pids) >= 4 && len(Alive(pids)) == len(pids), nil
	}))
	log, err := os.ReadFile(n.LogFile())
	if err != nil || !bytes.Contains(log, []byte("ready to accept connections")) {
		t.Errorf("log: %v\n%s", err, log)
	}
	must(t, n.Stop(ctx, Fast))
	must(t, poll.Until(ctx, pollEvery, func() (bool, error) { return len(Alive(pids)) == 0, nil }))
	if len(n.Processes()) > 0 {
		t.Error("a stopped server has processes")
	}
}

// A port that is kept is nobody else's although nobody listens there; given back it is free.
func TestPorts(t *testing.T) {
	port, held, err := ReservePort()
	must(t, err)
	ln, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	must(t, err)
	must(t, ln.Close())
	cache, err := cacheDir()
	must(t, err)
	others, err := os.OpenFile(filepath.Join(cache, "ports.lock"), os.O_RDWR, 0)
	must(t, err)
	defer others.Close()
	lock := func() error { // as another process would
		return unix.FcntlFlock(others.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(port), Len: 1})
	}
	if lock() == nil {
		t.Errorf("port %d is kept from nobody", port)
	}
	must(t, held.Close())
	must(t, lock())
	addr, free, err := FreeAddr()
	must(t, err)
	if addr != net.JoinHostPort("127.0.0.1", strconv.Itoa(free)) {
		t.Errorf("%s, port %d", addr, free)
	}
	ln, err = net.Listen("tcp4", addr)
	must(t, err)
	must(t, ln.Close())
}
