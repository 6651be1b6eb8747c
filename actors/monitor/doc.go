// Package monitor has the actor that watches the role of one PostgreSQL server, and the one that follows the addresses of
// a shard's host names.
package monitor
