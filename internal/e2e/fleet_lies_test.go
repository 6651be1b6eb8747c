package e2e

import (
	"fmt"
	"testing"
	"time"

	"fencepost/cluster"
	"fencepost/internal/product"
	"fencepost/role"
	"fencepost/soak/fleet"
)

// A member that lies about roles and timelines makes the others careful, until they have looked for themselves.
func fleetLies(t *testing.T, l *fleet.Lab) { lies(t, l, 4) }

// A monitor without any privilege sees enough of a standby to refute a claim about it.
func TestFleetLiesWithoutRights(t *testing.T) {
	t.Parallel()
	lies(t, startFleet(t, fleet.Config{Members: 2, Lines: []string{`query_wait_timeout = "2s"`}, Change: func(_ int, s product.Settings) {
		s["shards"]["main"].(product.Section)["monitor_user"] = fleet.User
	}}), 2)
}

// lies tells the members of a fleet lies while clients write.
func lies(t *testing.T, l *fleet.Lab, clients int) {
	primary, standby := l.Servers[0], l.Servers[1]
	var id, generation uint64
	learnt := func() (bool, error) { // FORGET came before
		row, err := l.Members[0].Shard(t.Context())
		fmt.Sscan(row["system_identifier"], &id)  //nolint:errcheck // 0 is no shard's
		fmt.Sscan(row["generation"], &generation) //nolint:errcheck // likewise
		return id != 0, err
	}
	if err := poll(patience, learnt); err != nil {
		t.Fatal(err)
	}
	w := l.Write("transaction", clients, l.Members[0].Addr)
	defer w.End()
	since := time.Now()
	settled := func() {
		t.Helper()
		if err := w.Await(t.Context(), clients, primary, since); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	liar := joinFleet(t, l, "liar", nil)
	liar.sees(len(l.Members) + 1)
	floor := func(s *fleet.Server, timeline uint32) {
		liar.send(&cluster.PublishFloorClaim{Shard: "main", Host: role.Host(s.Front), Floor: role.Floor{SystemID: id, Generation: generation, Timeline: timeline}, At: time.Now()})
	}
	seen := func(s *fleet.Server, v role.Verdict, timeline uint32) {
		liar.send(&cluster.Publish{Shard: "main", Observation: role.Observation{Host: role.Host(s.Front), Verdict: v, SystemID: id, Timeline: timeline, Asked: time.Now()}})
	}
	for _, lie := range []struct {
		name string
		tell func()
		says string // in the log of a member
	}{
		{"the standby is writable", func() { seen(standby, role.Writable, 50) }, "doubt"},
		{"the primary is a standby", func() { seen(primary, role.InRecovery, 1) }, ""}, // at most one doubt a second
		{"the standby was writable on a later timeline", func() { floor(standby, 98) }, "a peer's claim was rejected"},
		{"the primary was, too", func() { floor(primary, 99) }, "a peer's claim was rejected"},
	} {
		since = time.Now()
		lie.tell()
		said := func() (bool, error) {
			return lie.says == "" || len(l.Members[0].Lines(since.Add(-10*time.Millisecond), lie.says)) > 0, nil
		}
		if err := poll(patience, said); err != nil {
			t.Errorf("%s: the log does not say %q", lie.name, lie.says)
		}
		told := since
		since = time.Now()
		settled()
		t.Logf("%s: no write for %s", lie.name, w.Gap(told).Round(time.Millisecond))
	}
	w.End()
	onlyAt(t, w, primary)
	liar.leave()
}

// onlyAt checks that writers wrote at one server, and saw no other errors than those of sessions that lies have ended.
func onlyAt(t *testing.T, w *fleet.Writers, s *fleet.Server) {
	t.Helper()
	for _, a := range w.Acks() {
		if a.Port != s.Port {
			t.Errorf("a write on %d", a.Port)
		}
	}
	for code, n := range w.Codes() {
		if code != "57P01" && code != "08007" {
			t.Errorf("%d errors %s of the clients", n, code)
		}
	}
	t.Logf("errors %v", w.Codes())
}
