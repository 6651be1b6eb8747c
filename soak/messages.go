package soak

import (
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The messages of the frontend, in short.

func query(sql string) *pgproto3.Query { return &pgproto3.Query{String: sql} }

func parse(name, sql string) *pgproto3.Parse { return &pgproto3.Parse{Name: name, Query: sql} }

func bind(statement string, params ...string) *pgproto3.Bind {
	b := &pgproto3.Bind{PreparedStatement: statement}
	for _, p := range params {
		b.Parameters = append(b.Parameters, []byte(p))
	}
	return b
}

func describePortal() *pgproto3.Describe { return &pgproto3.Describe{ObjectType: 'P'} }

func describeStatement(name string) *pgproto3.Describe {
	return &pgproto3.Describe{ObjectType: 'S', Name: name}
}

func execute(rows uint32) *pgproto3.Execute { return &pgproto3.Execute{MaxRows: rows} }

func syncMessage() *pgproto3.Sync { return &pgproto3.Sync{} }

func flush() *pgproto3.Flush { return &pgproto3.Flush{} }

// extended is a statement by the extended protocol, without its Sync.
func extended(sql string, params ...string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{parse("", sql), bind("", params...), execute(0)}
}

// row is the answer to a query that returns one row.
func row(values ...string) string { return "T " + data(values...) + " C[SELECT 1]" }

func data(values ...string) string { return "D[" + strings.Join(values, "|") + "]" }

// literal quotes a string for SQL.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// name quotes an identifier.
func name(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
