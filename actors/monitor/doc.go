// Package monitor has the actor that watches the role of one PostgreSQL server, and Names, the one that follows the
// addresses of a shard's host names.
//
// A monitor keeps one connection, logged in as the monitor's own user, and asks one query per probe (role.IdentityQuery).
// It tells its shard what it saw (Observed), that an answer is late (Late), that the connection is gone (Lost), and how an
// attempt to connect failed (Refused, Failed); State says how the host can be reached whenever that changes. It decides
// nothing about the host. Between probes it listens, so that the end of the connection is heard at once.
//
//	resting      --the time has come, ProbeNow--> dialing   after a back-off; right after most losses there is none
//	dialing      --logged in------------------->  asking    the first probe follows at once
//	dialing      --Refused, Failed------------->  resting   the back-off doubles, up to the Mode's
//	asking       --Observed, Failed------------>  idle      Late comes before it, once, and changes nothing
//	idle         --the time has come, ProbeNow--> asking    an interval after the last probe was asked
//	asking, idle --Lost------------------------>  resting   the next attempt is the one that is AfterLoss
//
// The actor runs a machine (machine.go) and one goroutine, the worker, which connects, listens and asks, one thing at a
// time, and answers each by message. The worker ends when the actor stops or restarts, whatever it was doing: its context
// ends, and with it the connection. Everything it waits for has a limit: 3 s to connect, 10 s to log in, 10 s for the answer
// to a probe (then Lost, and a cancel for what may hang in the server, on a goroutine that lives for a second at most).
//
// # What a monitor's user may see
//
// Tried on PostgreSQL 12 to 18, which do not differ in this. A role without any privilege sees: recovery, the default for
// read-only and where it comes from, the system identifier (pg_control_system() is open to everybody; where it was closed
// the identifier stays unknown), the timeline and the position of a server out of recovery, the positions received and
// replayed in recovery, and when the server started. The received timeline needs pg_read_all_stats (or pg_monitor). It is
// for display and order.
//
// A setting default_transaction_read_only of the monitor's own role or database is not the server's own and counts for
// nothing, but it hides the server's: do not give the monitor's user one.
//
// What servers say when they end a connection, on all these versions: a fast shutdown or a
// pg_terminate_backend() sends FATAL 57P01 and closes; an immediate shutdown and the crash of another process send a warning
// (57P01, 57P02) or nothing at all, which is a race within the server; a killed server closes without a word. While it shuts
// down or recovers it answers with 57P03; when it has gone connects are refused.
//
// After a promotion the control file showed the old timeline for about a second on an idle server, until its checkpoint was
// done; the name of the WAL file written to is right from the first moment out of recovery.
//
// Aurora is recognised by its function aurora_replica_status() and asked with role.AuroraQuery. That was tested against
// scripted servers and against PostgreSQL with functions of the same names, not against Aurora.
package monitor
