// Package e2e tests Fencepost as its users meet it: a built process in front of real PostgreSQL, with real drivers (psql,
// pgbench, pgx, psycopg), with a raw client that sends what no driver would, and with servers that misbehave.
//
// Whatever can be is done twice, once straight against the server and once through Fencepost, and what came back is
// compared. docs/testing.md says how the tests are run and what they need.
package e2e
