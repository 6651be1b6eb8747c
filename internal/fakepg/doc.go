// Package fakepg is a PostgreSQL server for tests, over in-memory connections: no file, no process, no real time, so that
// it runs inside a testing/synctest bubble, as fast as the test and the same way each time.
//
// It follows PostgreSQL's message loop (tcop/postgres.c) as far as a pooler can see it: simple and extended protocol,
// errors that skip to the Sync, implicit transactions from one Sync to the next, COPY both ways with what the server
// ignores or refuses meanwhile, portals executed in slices, parameters that are reported and rolled back. The SQL it
// understands is a handful of statements that PostgreSQL understands in the same way (see parse), so that what it does
// can be compared with the real one (TestAsPostgreSQL). To an identity query (package role) it answers what it was told to
// (Server.SetIdentity); one that is in recovery or read-only refuses writes.
//
//	Engine  one session's message loop: messages in, messages out; no I/O, no time
//	Server  accepts logins and runs an Engine per connection, with faults on request
package fakepg
