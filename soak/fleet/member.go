package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/product"
)

// Member is one Fencepost.
type Member struct {
	*product.Fencepost
	PeerID int

	addr        string // for clients
	http        string // admin_http
	bind, front string // for the fleet: where it listens, and where others reach it
}

// Front is where other members reach it.
func (m *Member) Front() string { return m.front }

// end ends the member, unless it has ended. The error says what it left behind or logged as an error.
func (m *Member) end() error {
	if m.Running() {
		return m.End()
	}
	return m.Errors()
}

// Connect logs in to a database of the member, "session" or "transaction". Whatever the environment says of other servers,
// and prepared statements, are left out of it.
func (m *Member) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	return connect(ctx, database, m.Addr)
}

func connect(ctx context.Context, database string, addrs ...string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=10", User, strings.Join(addrs, ","), database))
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, cfg)
}

// Fleet are the rows of SHOW FLEET.
func (m *Member) Fleet(ctx context.Context) ([]map[string]string, error) {
	rows, err := m.Console(ctx, "SHOW FLEET")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return rows, nil
}

// Problems is what SHOW FLEET says that is wrong.
func (m *Member) Problems(ctx context.Context) (string, error) {
	rows, err := m.Fleet(ctx)
	var all []string
	for _, r := range rows {
		if r["problems"] != "NULL" {
			all = append(all, r["member"]+": "+r["problems"])
		}
	}
	return strings.Join(all, "\n"), err
}
