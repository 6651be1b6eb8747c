package role

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The identity queries ask a server who it is and what it can do. Each is one statement for the simple query protocol,
// gives exactly one row that ParseIdentity reads, and writes nothing. Probes and fences use the same text.
//
// What they rest on was tried on PostgreSQL 12 to 18: every function here may be called by a role without any privilege,
// and so may pg_settings and pg_stat_wal_receiver be read, but of the latter a role that is not a member of pg_read_all_stats
// (or pg_monitor) sees only that a receiver exists, so the received timeline is unknown to it. pg_walfile_name and
// pg_current_wal_insert_lsn fail with 55000 in recovery, on all these versions: whether the server is in recovery is
// therefore asked once, in front of everything else (a server may be promoted while the query runs), and CASE keeps the
// two branches apart.
//
// The timeline of a server out of recovery is that of the file it writes to. The control file is not asked: after a
// promotion it shows the old timeline until the first checkpoint has ended.
const (
	// IdentityQuery is for PostgreSQL 12 and newer.
	IdentityQuery = identityHead + `(SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c)` + identityWAL + `, ` + controlTimeline + `)` + identityTail

	// IdentityQueryNoControl is for a server where EXECUTE on pg_control_system() was revoked from PUBLIC (IdentityQuery
	// fails there with 42501): the system identifier stays unknown.
	IdentityQueryNoControl = identityHead + `NULL` + identityWAL + `)` + identityTail

	// AuroraQuery is for Amazon Aurora, which has no WAL of its own to ask about: no identifier, no timeline, no
	// comparable LSN. The writer is the server that says so of itself in aurora_replica_status() and is not in recovery.
	// The row for the reader asked gives the lag.
	AuroraQuery = `WITH self AS MATERIALIZED (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery,` +
		` pg_catalog.aurora_db_instance_identifier() AS id),` +
		` status AS MATERIALIZED (SELECT server_id, session_id, replica_lag_in_msec FROM pg_catalog.aurora_replica_status())` +
		` SELECT 'aurora', self.in_recovery OR NOT EXISTS (SELECT FROM status WHERE server_id = self.id AND session_id = 'MASTER_SESSION_ID'),` +
		readOnlyColumns +
		` NULL, NULL, NULL, NULL,` +
		` (SELECT (pg_catalog.max(replica_lag_in_msec) * 1000)::bigint FROM status WHERE server_id = self.id AND session_id <> 'MASTER_SESSION_ID'),` +
		` NULL, pg_catalog.pg_backend_pid(),` + startColumn + ` FROM self`

	// AuroraCheck tells Aurora from PostgreSQL: one row with one boolean. It fails on neither.
	AuroraCheck = `SELECT pg_catalog.to_regprocedure('pg_catalog.aurora_replica_status()') IS NOT NULL`
)

const (
	// default_transaction_read_only, and where its value comes from if it is on. pg_settings is read only then: it lists
	// some 350 settings to find one.
	readOnlyColumns = ` pg_catalog.current_setting('default_transaction_read_only'),` +
		` CASE WHEN pg_catalog.current_setting('default_transaction_read_only') = 'on'` +
		` THEN (SELECT s.source FROM pg_catalog.pg_settings AS s WHERE s.name = 'default_transaction_read_only') END,`

	startColumn = ` (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint`

	identityHead = `WITH self AS MATERIALIZED (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery)` +
		` SELECT 'postgres', self.in_recovery,` + readOnlyColumns + ` `

	// The timeline that a server in recovery receives, which not everybody may see, or that of its control file, whichever is higher: the
	// latter is at least the highest one on which the server was out of recovery since its data came from another server.
	identityWAL = `,` +
		` CASE WHEN NOT self.in_recovery THEN pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END,` +
		` CASE WHEN self.in_recovery THEN greatest((SELECT w.received_tli FROM pg_catalog.pg_stat_wal_receiver AS w)`

	controlTimeline = `nullif(greatest((pg_catalog.pg_control_checkpoint()).timeline_id, (pg_catalog.pg_control_recovery()).min_recovery_end_timeline), 0)`

	identityTail = ` END,` +
		` CASE WHEN self.in_recovery THEN wal.received ELSE pg_catalog.pg_current_wal_insert_lsn() END,` +
		` CASE WHEN NOT self.in_recovery THEN 0` +
		` WHEN wal.received > wal.replayed THEN (extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) * 1000000)::bigint` +
		` WHEN EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver) THEN 0 END,` +
		` CASE WHEN self.in_recovery THEN wal.replayed END,` +
		` pg_catalog.pg_backend_pid(),` + startColumn +
		` FROM self, (SELECT greatest(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn()) AS received,` +
		` pg_catalog.pg_last_wal_replay_lsn() AS replayed) AS wal`
)

// columns of the identity queries.
const (
	colKind = iota
	colInRecovery
	colReadOnly
	colReadOnlySource
	colSystemID
	colWALFile
	colReceivedTimeline
	colLSN
	colLag
	colReplayed
	colBackendPID
	colStarted
	columns
)

// Identity is what a server said of itself in answer to an identity query.
type Identity struct {
	InRecovery bool
	// ReadOnly: new transactions cannot write by the server's own settings, that is, default_transaction_read_only is on
	// and comes from the configuration file (ALTER SYSTEM included) or the command line. A value set for a role or a
	// database is the client's own wish and does not count; it also hides the server's own value, so a monitor's role
	// should have none.
	ReadOnly bool
	// ReadOnlySource is pg_settings.source of default_transaction_read_only if it is on for this session, else "".
	ReadOnlySource string
	SystemID       uint64 // 0: not known
	// Timeline is the one written to, or in recovery the one received, if the role may see it; 0: not known.
	Timeline uint32
	// LSN is where the next record goes; in recovery the furthest position received or replayed. 0: not known.
	LSN uint64
	// Replayed is the position up to which a server in recovery has replayed; 0 out of recovery or not known.
	Replayed uint64
	// Lag is how old what was replayed last is, while there is something to replay; 0 when all that was received is
	// replayed and a receiver runs. By the two servers' clocks; below zero is taken for zero.
	Lag      time.Duration
	LagKnown bool
	// NoTimelines: Aurora. SystemID, Timeline and LSN are 0.
	NoTimelines bool
	BackendPID  uint32 // of the session that was asked
	// Started is when the server's postmaster started, by its own clock: equal for two addresses of one server.
	Started time.Time
}

// Proof is what a server said of itself on a connection in answer to an identity query. It holds for the life of the
// connection, as far as it says that the server is out of recovery: recovery begins only when a server starts.
type Proof struct {
	Identity
	Asked, Answered time.Time
	Dialled         time.Time // see Observation
}

// Observation makes one of the proof, for a host.
func (p *Proof) Observation(h Host, source Source) Observation {
	o := p.Identity.Observation(h, source, p.Asked, p.Answered)
	o.Dialled = p.Dialled
	return o
}

// ParseIdentity reads the row of an identity query, in text format, nil for NULL. A row that lacks what every server can
// say, or that contradicts itself, is an error: nothing is ever filled in.
func ParseIdentity(row [][]byte) (Identity, error) {
	if len(row) != columns {
		return Identity{}, fmt.Errorf("identity: %d columns instead of %d", len(row), columns)
	}
	p := identityParser{row: row}
	id := Identity{
		NoTimelines: p.word(colKind, "postgres", "aurora"),
		InRecovery:  p.word(colInRecovery, "f", "t"),
		BackendPID:  uint32(p.number(colBackendPID, 10, 32, true)),
		Started:     time.UnixMicro(int64(p.number(colStarted, 10, 63, true))),
	}
	if p.word(colReadOnly, "off", "on") {
		id.ReadOnlySource = p.text(colReadOnlySource, true)
		id.ReadOnly = id.ReadOnlySource == "configuration file" || id.ReadOnlySource == "command line"
	}
	if !id.NoTimelines {
		p.wal(&id)
	}
	if p.text(colLag, false) != "" {
		id.LagKnown = true
		id.Lag = p.lag()
	}
	if p.err != nil {
		return Identity{}, p.err
	}
	return id, nil
}

// wal reads what is about the write-ahead log.
func (p *identityParser) wal(id *Identity) {
	id.SystemID = p.systemID()
	id.LSN = p.lsn(colLSN, !id.InRecovery)
	id.Replayed = p.lsn(colReplayed, false)
	if id.InRecovery {
		id.Timeline = uint32(p.number(colReceivedTimeline, 10, 32, false))
		return
	}
	file := p.text(colWALFile, true)
	if len(file) != 24 && p.err == nil {
		p.fail(colWALFile, errors.New("not the name of a WAL file"))
		return
	}
	timeline, err := strconv.ParseUint(file[:min(8, len(file))], 16, 32)
	if err == nil && timeline == 0 {
		err = errors.New("timeline 0")
	}
	if err != nil {
		p.fail(colWALFile, err)
	}
	id.Timeline = uint32(timeline)
}

// identityParser keeps the first error.
type identityParser struct {
	row [][]byte
	err error
}

func (p *identityParser) fail(col int, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("identity: column %d is %q: %w", col, clip(p.row[col]), err)
	}
}

// clip bounds what an error says of a value that a server made up.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }

func (p *identityParser) text(col int, required bool) string {
	if required && len(p.row[col]) == 0 {
		p.fail(col, errors.New("missing"))
	}
	return string(p.row[col])
}

// word reads a value that is one of two.
func (p *identityParser) word(col int, no, yes string) bool {
	switch s := p.text(col, true); s {
	case yes:
		return true
	case no:
		return false
	}
	p.fail(col, errors.New("unknown value"))
	return false
}

func (p *identityParser) number(col, base, bits int, required bool) uint64 {
	s := p.text(col, required)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, base, bits)
	if err == nil && n == 0 {
		err = errors.New("zero")
	}
	if err != nil {
		p.fail(col, err)
	}
	return n
}

// systemID is shown as a signed number: those made from 2038 on are negative.
func (p *identityParser) systemID() uint64 {
	s := p.text(colSystemID, false)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n == 0 {
		err = errors.New("zero")
	}
	if err != nil {
		p.fail(colSystemID, err)
	}
	return uint64(n)
}

func (p *identityParser) lag() time.Duration {
	const limit = int64(1) << 52 // microseconds; far below what overflows a Duration
	n, err := strconv.ParseInt(string(p.row[colLag]), 10, 64)
	if err != nil {
		p.fail(colLag, err)
	}
	return time.Duration(max(0, min(n, limit))) * time.Microsecond
}

func (p *identityParser) lsn(col int, required bool) uint64 {
	s := p.text(col, required)
	if s == "" {
		return 0
	}
	n, err := ParseLSN(s)
	if err != nil {
		p.fail(col, err)
	}
	return n
}

// ParseLSN reads a position in the write-ahead log as PostgreSQL writes it: two hexadecimal numbers with a slash between.
func ParseLSN(s string) (uint64, error) {
	i := 0
	for i < len(s) && s[i] != '/' {
		i++
	}
	if i == len(s) {
		return 0, fmt.Errorf("LSN %q has no slash", clip([]byte(s)))
	}
	high, err := strconv.ParseUint(s[:i], 16, 32)
	if err != nil {
		return 0, err
	}
	low, err := strconv.ParseUint(s[i+1:], 16, 32)
	return high<<32 | low, err
}
