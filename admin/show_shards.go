package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"fencepost/actors/shard"
	"fencepost/actors/shard/election"
	"fencepost/role"
)

// noAnswer stands in the row of a shard whose actor did not answer in time, under reason or note; all else is NULL.
const noAnswer = "no answer in time from the shard's actor"

// What a host is now, in SHOW REPLICATION and metrics.
const (
	rolePrimary  = "primary"   // elected
	roleStandby  = "standby"   // in recovery
	roleReadOnly = "read-only" // out of recovery, but read-only by its own settings
	roleWritable = "writable"  // says it could be the primary, and is not elected
	roleForeign  = "foreign"   // of another cluster
	roleUnknown  = "unknown"   // has not answered, or something failed since it did
)

func hostRole(h *shard.HostRow) string {
	switch {
	case h.Elected:
		return rolePrimary
	case h.Last.Asked.IsZero(), h.Failure.At.After(h.Last.Asked):
		return roleUnknown
	case h.Foreign:
		return roleForeign
	}
	switch h.Last.Verdict {
	case role.Writable:
		return roleWritable
	case role.ReadOnly:
		return roleReadOnly
	case role.InRecovery:
		return roleStandby
	}
	return roleUnknown
}

// lag is how far a standby is behind; ok is false for other hosts, which have none.
func lag(h *shard.HostRow) (behind time.Duration, behindBytes uint64, ok bool) {
	o := &h.Last
	if o.Asked.IsZero() || o.Verdict != role.InRecovery {
		return 0, 0, false
	}
	return o.Lag, o.LagBytes, true
}

// showReplication is SHOW REPLICATION, which PgBouncer has not: what is known of each host. read_only is whether it
// said that it takes no writes, for whatever reason; evidence_age_ms is how long ago it was asked for what is shown.
func showReplication(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	t := &table{columns: "ssssssqsqqqssssss", names: []string{"shard", "host", "address", "role", "configured_role", "strength",
		"timeline", "lsn", "lag_ms", "lag_bytes", "evidence_age_ms", "source", "system_identifier", "read_only", "reads", "monitor", "note"}}
	now := time.Now()
	for _, d := range askShards(x.ops, x.ops.Shards()...).answers(ctx) {
		switch {
		case d.row == nil:
			t.blank(map[string]any{"shard": d.name, "note": noAnswer})
		case d.row.Static:
			t.blank(map[string]any{"shard": d.name, "host": d.row.View.Elected, "address": d.row.View.Elected, "role": roleUnknown,
				"configured_role": election.Any.String(), "reads": yesNo(true), "note": "role any: it has no monitor"})
		default:
			for i := range d.row.Hosts {
				t.host(d.name, &d.row.Hosts[i], now)
			}
		}
	}
	return t, nil
}

// host adds a host's row.
func (t *table) host(name string, h *shard.HostRow, now time.Time) {
	o := &h.Last
	var lsn, age, source, readOnly, lagTime, lagBytes any = null{}, null{}, null{}, null{}, null{}, null{}
	if o.LSN != 0 {
		lsn = logPosition(o.LSN)
	}
	if !o.Asked.IsZero() {
		age, source = h.Age.Milliseconds(), o.Source.String()
		if o.Verdict != role.Unknown {
			readOnly = yesNo(o.Verdict != role.Writable)
		}
	}
	if behind, behindBytes, ok := lag(h); ok {
		if o.LagKnown {
			lagTime = behind.Milliseconds()
		}
		if o.LSN != 0 {
			lagBytes = behindBytes
		}
	}
	t.row(name, cmp.Or(h.Name, string(h.Host)), string(h.Host), hostRole(h), h.Role.String(), h.Strength.String(),
		orNone(uint64(o.Timeline)), lsn, lagTime, lagBytes, age, source, orNone(o.SystemID), readOnly, yesNo(h.Reads),
		h.Monitor.String(), orNull(note(h, now)))
}

// note is what else there is to say of a host: what speaks against it as a primary, why it serves no reads, and what
// its monitor ran into. Each is said once.
func note(h *shard.HostRow, now time.Time) string {
	var said, notes []string
	say := func(s, prefix string) {
		if s != "" && !slices.Contains(said, s) {
			said, notes = append(said, s), append(notes, prefix+s)
		}
	}
	say(h.Why, "")
	say(h.Objection, "")
	if h.AddressGone {
		say("its name no longer resolves to this address", "")
	}
	switch {
	case h.Reads, h.Elected:
	case h.BannedUntil.After(now):
		say("banned until "+timestamp(h.BannedUntil), "no reads: ")
	default:
		say(h.ReadsWhy, "no reads: ")
	}
	failure := h.MonitorErr
	if !strings.Contains(failure, h.MonitorCode) {
		failure = h.MonitorCode + " " + failure
	}
	say(failure, "monitor: ")
	return strings.Join(notes, "; ")
}

// showShards is SHOW SHARDS, which PgBouncer has not. since and reason are those of the state; elected_since and
// elected_reason those of the view. waiting are clients that wait for a server connection of the shard's pools.
func showShards(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	question := askShards(x.ops, x.ops.Shards()...)
	rows, err := lanes(ctx, x.ops)
	if err != nil { // shards are worth showing all the same
		x.notice("the column waiting is empty: " + err.Error())
	}
	waiting := map[string]int{}
	for i := range rows {
		if spec := rows[i].Spec; spec != nil && spec.Shard != nil {
			waiting[spec.Shard.Name] += rows[i].Waiting
		}
	}
	t := &table{columns: "sssqqqssiisssss", names: []string{"name", "state", "elected", "epoch", "floor", "generation",
		"system_identifier", "doubt", "waiting", "connections", "since", "reason", "elected_since", "elected_reason", "hint"}}
	for _, d := range question.answers(ctx) {
		var n any = waiting[d.name]
		if err != nil {
			n = null{}
		}
		r := d.row
		if r == nil {
			t.blank(map[string]any{"name": d.name, "waiting": n, "reason": noAnswer})
			continue
		}
		var generation any = r.Floor.Generation
		if r.Static {
			generation = null{}
		}
		t.row(d.name, r.State.String(), orNull(r.View.Elected), r.View.Epoch, orNone(uint64(r.Floor.Timeline)), generation,
			orNone(r.Floor.SystemID), orNull(r.Doubt), n, r.Connections, orNull(timestamp(r.StateSince)),
			orNull(r.StateReason), orNull(timestamp(r.View.Since)), orNull(r.View.Why), orNull(r.View.Hint))
	}
	return t, nil
}

// maxTransitions bounds SHOW ELECTIONS.
const maxTransitions = 100

// showElections is SHOW ELECTIONS, which PgBouncer has not: the last transitions of all shards, oldest first.
func showElections(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	type line struct {
		shard string
		shard.Transition
	}
	var lines []line
	t := &table{columns: "ssqsssss", names: []string{"at", "shard", "epoch", "kind", "host", "elected", "state", "reason"}}
	for _, d := range askShards(x.ops, x.ops.Shards()...).answers(ctx) {
		if d.row == nil {
			t.blank(map[string]any{"shard": d.name, "reason": noAnswer})
			continue
		}
		for _, tr := range d.row.Transitions {
			lines = append(lines, line{d.name, tr})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
	for _, l := range lines[max(len(lines)-maxTransitions, 0):] {
		t.row(l.At.Local().Format("2006-01-02 15:04:05.000 MST"), l.shard, l.Epoch, l.Kind, orNull(l.Host), orNull(l.Elected),
			l.State.String(), orNull(l.Reason))
	}
	return t, nil
}
