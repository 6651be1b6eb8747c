package admin

import (
	"maps"
	"slices"
	"time"

	"fencepost/config"
)

func showVersion(x *execution) (*table, error) {
	t := &table{columns: "s", names: []string{"version"}}
	t.row("Fencepost " + x.ops.Version())
	return t, nil
}

func showConfig(x *execution) (*table, error) {
	t := &table{columns: "ssss", names: []string{"key", "value", "default", "changeable"}}
	for _, r := range x.ops.Config().Rows() {
		t.row(r.Key, r.Value, r.Default, yesNo(r.Changeable))
	}
	return t, nil
}

// showPeers is SHOW PEERS: those in the settings. Members of a fleet are in SHOW FLEET. pool_size has no meaning here.
func showPeers(x *execution) (*table, error) {
	t := &table{columns: "isii", names: []string{"peer_id", "host", "port", "pool_size"}}
	peers := x.ops.Config().Peers
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		host, port := config.Host{Addr: peers[id].Addr}.HostPort()
		t.row(id, host, int(port), null{})
	}
	return t, nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// showState is SHOW STATE. paused is a PAUSE of everything; SHOW DATABASES has those of one database.
func showState(x *execution) (*table, error) {
	paused := x.c.isPaused("")
	t := &table{columns: "ss", names: []string{"key", "value"}}
	t.row("active", yesNo(!paused))
	t.row("paused", yesNo(paused))
	t.row("suspended", yesNo(false))
	return t, nil
}

// showLoops is SHOW LOOPS, which PgBouncer has not: what each event loop has counted since start. heartbeat_age_us is
// how long ago it was last seen alive.
func showLoops(x *execution) (*table, error) {
	t := &table{columns: "iqqqqqqqqqqqqqqqq", names: []string{"loop", "heartbeat_age_us", "connections", "timers", "queued_bytes",
		"turns", "waits", "wakeups", "posted", "reads", "writes", "short_writes", "bytes_read", "bytes_written", "panics",
		"stale_events", "accept_failures"}}
	for _, l := range x.ops.Loops() {
		s := l.Stats()
		t.row(l.Index(), max(time.Since(s.Heartbeat), 0).Microseconds(), s.Conns, s.Timers, s.QueuedBytes, s.Turns, s.Waits, s.Wakeups,
			s.Posted, s.Reads, s.Writes, s.ShortWrites, s.BytesRead, s.BytesWritten, s.Panics, s.StaleEvents, s.AcceptFailures)
	}
	return t, nil
}
