package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/pgerr"
	"fencepost/role"
)

// identify asks a server that has just been logged in to who it is, and returns which query it understood. The question
// whether it is Aurora travels with the query for PostgreSQL, so that one round trip is enough where it is not: whether
// Aurora answers that query, and how it fails, need not be known.
func identify(ctx context.Context, c *pgconn.PgConn) (*Proof, string, error) {
	query, asked := role.IdentityQuery, time.Now()
	results, err := c.Exec(ctx, role.AuroraCheck+";"+query).ReadAll()
	var said *pgconn.PgError
	switch {
	case len(results) > 0 && isTrue(results[0]):
		query = role.AuroraQuery
	case errors.As(err, &said) && said.Code == pgerr.InsufficientPrivilege:
		query = role.IdentityQueryNoControl
	}
	if query != role.IdentityQuery {
		asked = time.Now()
		results, err = c.Exec(ctx, query).ReadAll()
	}
	answered := time.Now()
	if err != nil {
		return nil, "", fmt.Errorf("identity: %w", err)
	}
	if len(results) == 0 || len(results[len(results)-1].Rows) != 1 {
		return nil, "", fmt.Errorf("identity: %w", errNotOneRow)
	}
	id, err := role.ParseIdentity(results[len(results)-1].Rows[0])
	if err != nil {
		return nil, "", err
	}
	return &Proof{Identity: id, Asked: asked, Answered: answered}, query, nil
}

var errNotOneRow = errors.New("the answer is not one row")

// isTrue reports whether r is one true boolean.
func isTrue(r *pgconn.Result) bool {
	return r.Err == nil && len(r.Rows) == 1 && len(r.Rows[0]) == 1 && string(r.Rows[0][0]) == "t"
}
