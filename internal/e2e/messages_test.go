package e2e

import (
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// The protocol's messages under short names, so that a test reads like the conversation it is about.

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

func parse(name, sql string) pgproto3.FrontendMessage { return &pgproto3.Parse{Name: name, Query: sql} }

// bind gives the parameters as text.
func bind(portal, statement string, params ...string) pgproto3.FrontendMessage {
	m := &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement}
	for _, p := range params {
		m.Parameters = append(m.Parameters, []byte(p))
	}
	return m
}

func describeStatement(name string) pgproto3.FrontendMessage {
	return &pgproto3.Describe{ObjectType: wire.ObjectStatement, Name: name}
}

func describePortal(name string) pgproto3.FrontendMessage {
	return &pgproto3.Describe{ObjectType: wire.ObjectPortal, Name: name}
}

func execute(portal string, rows uint32) pgproto3.FrontendMessage {
	return &pgproto3.Execute{Portal: portal, MaxRows: rows}
}

func closeStatement(name string) pgproto3.FrontendMessage {
	return &pgproto3.Close{ObjectType: wire.ObjectStatement, Name: name}
}

func closePortal(name string) pgproto3.FrontendMessage {
	return &pgproto3.Close{ObjectType: wire.ObjectPortal, Name: name}
}

func copyData(s string) pgproto3.FrontendMessage { return &pgproto3.CopyData{Data: []byte(s)} }

func copyFail(why string) pgproto3.FrontendMessage { return &pgproto3.CopyFail{Message: why} }

var (
	sync_    = &pgproto3.Sync{}
	flush    = &pgproto3.Flush{}
	copyDone = &pgproto3.CopyDone{}
)

// run is Parse, Bind and Execute of one statement, all unnamed.
func run(sql string, params ...string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{parse("", sql), bind("", "", params...), execute("", 0)}
}

// script joins messages and lists of messages.
func script(parts ...any) []pgproto3.FrontendMessage {
	var all []pgproto3.FrontendMessage
	for _, p := range parts {
		switch p := p.(type) {
		case pgproto3.FrontendMessage:
			all = append(all, p)
		case []pgproto3.FrontendMessage:
			all = append(all, p...)
		default:
			panic("neither a message nor a list of messages")
		}
	}
	return all
}
