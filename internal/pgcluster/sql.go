package pgcluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Addr is host:port.
func (n *Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.Port)) }

// URL is a connection string over TCP. An empty password is left out.
func (n *Node) URL(user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: n.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// Exec runs statements on the server as Superuser in the database postgres, each on its own.
func (n *Node) Exec(ctx context.Context, sql ...string) error {
	conn, err := n.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, s := range sql {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name, s, err)
		}
	}
	return nil
}

// QueryRow runs one query as Superuser in the database postgres and scans its only row.
func (n *Node) QueryRow(ctx context.Context, sql string, into ...any) error {
	conn, err := n.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(into...); err != nil {
		return fmt.Errorf("%s: %s: %w", n.Name, sql, err)
	}
	return nil
}

// Connect opens a connection as Superuser over the unix socket, which no pg_hba line of a test's affects unless it is a
// "local" one. The caller closes it.
func (n *Node) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	q := url.Values{"host": {n.SocketDir}, "port": {strconv.Itoa(n.Port)}, "user": {Superuser}, "sslmode": {"disable"}}
	conn, err := pgx.Connect(ctx, "postgres:///"+url.PathEscape(database)+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	return conn, nil
}
