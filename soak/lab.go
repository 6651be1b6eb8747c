package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/pgcluster"
	"fencepost/soak/ledger"
)

// database is one of Fencepost's, in front of a database of its own on the one server.
type database struct {
	index  int
	name   string // in Fencepost
	server string // on the server
	mode   string
	weight int  // parts of the sessions that go there
	scarce bool // so few connections and so short a wait that refusals are part of the day

	poolSize    int
	maxConns    int    // max_db_connections, 0 for none
	minPoolSize int    //
	wait        string // query_wait_timeout
}

// allows reports whether something is for the database's mode: t, s, or m for statement mode.
func (d *database) allows(modes string) bool {
	letter := map[string]string{"transaction": "t", "session": "s", "statement": "m"}[d.mode]
	return strings.Contains(modes, letter)
}

// users work in every database; ops has the console.
var users = []string{"alice", "bob"}

const opsUser = "ops"

// databases are those of a run.
func databases() []database {
	all := []database{
		{name: "tx", server: "soak_tx", mode: "transaction", weight: 45, poolSize: 5, maxConns: 8, minPoolSize: 1, wait: "40s"},
		{name: "session", server: "soak_session", mode: "session", weight: 25, poolSize: 8, wait: "40s"},
		{name: "statement", server: "soak_statement", mode: "statement", weight: 15, poolSize: 3, wait: "40s"},
		{name: "small", server: "soak_small", mode: "transaction", weight: 15, poolSize: 2, wait: "500ms", scarce: true},
	}
	for i := range all {
		all[i].index = i
	}
	return all
}

// backendLimit is how many server connections a database may have.
func (d *database) backendLimit() int {
	n := d.poolSize * len(users)
	if d.maxConns > 0 {
		n = min(n, d.maxConns)
	}
	return n
}

// startServer starts PostgreSQL with the run's databases.
func startServer(ctx context.Context, version string, dbs []database) (*pgcluster.Cluster, error) {
	o := pgcluster.Options{Version: version, Auth: "scram-sha-256",
		Conf: map[string]string{
			"autovacuum": "on", "max_connections": "120", "max_wal_size": "256MB", "wal_keep_size": "0", "log_min_messages": "error",
			"log_min_error_statement": "panic", "log_connections": "off",
		},
		HBA: []string{"host all " + pgcluster.Superuser + " 127.0.0.1/32 trust"},
	}
	if version == "12" {
		delete(o.Conf, "wal_keep_size") // since 13
	}
	for _, u := range users {
		o.Roles = append(o.Roles, pgcluster.Role{Name: u, Password: password(u)})
	}
	for _, d := range dbs {
		o.Databases = append(o.Databases, d.server)
	}
	c, err := pgcluster.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	for _, d := range dbs {
		if err := layTables(ctx, c.Primary(), d.server); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare %s: %w", d.server, err), c.Stop())
		}
	}
	return c, nil
}

func layTables(ctx context.Context, n *pgcluster.Node, db string) error {
	c, err := n.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for _, sql := range []string{
		`CREATE TABLE ledger (client int, n int, part int, parts int, tag text, PRIMARY KEY (client, n, part))`,
		`CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL) WITH (fillfactor = 20)`,
		fmt.Sprintf(`INSERT INTO accounts SELECT i, %d FROM generate_series(1, %d) i`, accountBalance, accounts),
		`GRANT ALL ON ledger, accounts TO ` + strings.Join(users, ", "),
		`GRANT TEMP ON DATABASE ` + name(db) + ` TO ` + strings.Join(users, ", "),
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// readLedger reads what is in a database's ledger.
func readLedger(ctx context.Context, n *pgcluster.Node, d *database, into map[ledger.Key]ledger.Rows) (sum int64, err error) {
	c, err := n.Connect(ctx, d.server)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	if err := c.QueryRow(ctx, "SELECT sum(balance) FROM accounts").Scan(&sum); err != nil {
		return 0, err
	}
	rows, err := c.Query(ctx, "SELECT client, n, count(*)::int, max(parts) FROM ledger GROUP BY client, n")
	if err != nil {
		return 0, err
	}
	var k ledger.Key
	var r ledger.Rows
	_, err = pgx.ForEachRow(rows, []any{&k.Client, &k.N, &r.Count, &r.Of}, func() error {
		k.Place = d.index
		into[k] = r
		return nil
	})
	return sum, err
}
