package e2e

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/cluster"
	"fencepost/internal/product"
	"fencepost/soak/fleet"
)

// shows waits until SHOW FLEET of a member names a problem.
func shows(t *testing.T, m *fleet.Member, parts ...string) {
	t.Helper()
	said := ""
	err := poll(patience, func() (ok bool, err error) {
		said, err = m.Problems(t.Context())
		for _, p := range parts {
			if !strings.Contains(said, p) {
				return false, err
			}
		}
		return true, err
	})
	if err != nil {
		t.Errorf("SHOW FLEET of %s does not name %q: %v\n%s", m.Name, parts, err, said)
	}
}

// Members that should not be there, or not like this, are named, and logged once, and the others go on.
func TestFleetMisfits(t *testing.T) {
	t.Parallel()
	l := startFleet(t, fleet.Config{Change: func(i int, s product.Settings) {
		if i == 1 { // settings of the shard that differ
			s["shards"]["main"].(product.Section)["evidence_ttl"] = "2500ms"
		}
	}})
	for _, m := range l.Members {
		m.Tolerate("two members")
	}
	first := l.Members[0]
	joinFleet(t, l, "wrong-key", func(c *cluster.Config) { c.Keys = [][]byte{bytes.Repeat([]byte{9}, 32)} })
	joinFleet(t, l, "wrong-label", func(c *cluster.Config) { c.Name = "another" })
	joinFleet(t, l, "namesake", func(c *cluster.Config) { c.Member, c.TwinAfter = first.Name, time.Second })
	joinFleet(t, l, "same-number", func(c *cluster.Config) { c.PeerID = uint32(l.Members[2].PeerID) })
	shows(t, first, "its settings differ: shards.main.evidence_ttl")
	shows(t, first, "two members have peer_id 3: m3 and same-number; cancels for it are dropped")
	shows(t, first, "two members are named m1")
	shows(t, first, "fleet_size is 3")
	shows(t, first, "no installed keys could decrypt the message")
	shows(t, first, "unacceptable label") // of another fleet
	if text, err := first.Problems(t.Context()); err != nil {
		t.Error(err)
	} else {
		t.Logf("SHOW FLEET: %s", text)
	}
	// A cancel for a number that two have is nobody's.
	goesOn(t, l, l.Members[2], func(own fleet.CancelKey) {
		if err := first.Cancel(t.Context(), own); err != nil {
			t.Error(err)
		}
	})
	for _, what := range []string{"members are named m1", "cancels for it are dropped"} {
		n := 0
		if err := poll(patience, func() (bool, error) { n = len(first.Lines(time.Time{}, what)); return n > 0, nil }); err != nil || n != 1 {
			t.Errorf("the log has %d lines about %q, want one", n, what)
		}
	}
	w := l.Write("transaction", 2, first.Addr)
	defer w.End()
	if err := w.Await(t.Context(), 2, l.Servers[0], time.Now()); err != nil {
		t.Error(err)
	}
}

// Cancels by [peers], without a fleet; one for a peer that is down is dropped within its time.
func TestPeers(t *testing.T) {
	t.Parallel()
	l := startFleet(t, fleet.Config{Alone: true, Peers: true, Lines: []string{`cancel_ack_timeout = "500ms"`}})
	r, err := l.RandomCancels(t.Context(), fleet.Cancels{Count: 40, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Missed > 0 || r.Foreign > 0 || len(r.Errors) > 0 || r.Far == 0 {
		t.Errorf("%s; %v", r, r.Errors)
	}
	down := l.Members[1]
	c := openSession(t, down)
	if err := down.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := l.Members[0].Cancel(t.Context(), fleet.CancelKey{PID: c.PID, Secret: c.Secret}); err != nil {
		t.Errorf("a cancel for a peer that is down: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it was closed after %s", took)
	}
	said := func() (bool, error) {
		return len(l.Members[0].Lines(began.Add(-time.Second), "cancel request could not be passed on")) == 1, nil
	}
	if err := poll(patience, said); err != nil {
		t.Errorf("the log does not say so: %v", err)
	}
}

// A fleet of one grants writes at once, and a transaction costs what it costs without [fleet]: no allocation. Not parallel:
// it counts what the whole process allocates.
func TestFleetOfOne(t *testing.T) {
	n, db := newDatabase(t, "15")
	for _, c := range []struct{ name, section string }{
		{"without [fleet]", ""},
		// It has no reason to wait for fleet_join_wait.
		{"in a fleet of one", "[fleet]\nname = \"one\"\nmember = \"m1\"\npeer_id = 1\nbind = \"" + freeUDP(t) + "\"\nfleet_join_wait = \"1m\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := allocations(t, settings{shard: hosts(n), dbname: db, sections: c.section})
			t.Logf("allocations of the process per transaction: %.3f", got)
			if got > 0.5 { // monitors and gossip allocate now and then
				t.Error("a transaction allocates")
			}
		})
	}
}

// allocations runs Fencepost within this process, and returns what it allocates for each transaction of a client.
func allocations(t *testing.T, s settings) float64 {
	t.Helper()
	const count = 4000
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // Fencepost sets its own
	_, addr := startInside(t, s)
	began := time.Now()
	c := mustLogin(t, place{"transaction", addr, "transaction"})
	defer c.close()
	if took := time.Since(began); took > patience {
		t.Errorf("the first client was served after %s", took)
	}
	ask, err := encode(&pgproto3.Query{String: "SELECT 1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for range count / 4 {
		answered(t, c, ask, buf)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range count {
		answered(t, c, ask, buf)
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / count
}

// answered sends a query and reads its answer into buf, without an allocation.
func answered(t *testing.T, c *raw, ask, buf []byte) {
	if _, err := c.nc.Write(ask); err != nil {
		t.Fatal(err)
	}
	for got := 0; ; {
		n, err := c.nc.Read(buf[got:])
		if err != nil {
			t.Fatal(err)
		}
		if got += n; got > 6 && buf[got-6] == 'Z' && buf[got-1] == 'I' {
			return
		}
	}
}
