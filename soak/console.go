package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// consoleError is the SQLSTATE and text of an error that the console itself answered, "" for any other.
func consoleError(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code + " " + pe.Message
	}
	return ""
}

// clientsNow is what the console shows and what the goroutines do, for the report of something that hangs.
func (r *run) clientsNow() string {
	c := r.product.OpenConsole()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var b strings.Builder
	for _, show := range []string{"SHOW POOLS", "SHOW SERVERS", "SHOW CLIENTS"} {
		t, err := c.Run(ctx, show)
		fmt.Fprintf(&b, "%s: %v\n", show, err)
		for _, m := range t {
			fmt.Fprintf(&b, "  %v\n", m)
		}
	}
	stacks, err := r.product.Get(ctx, "/debug/pprof/goroutine?debug=2")
	fmt.Fprintf(&b, "goroutines: %v\n%s", err, stacks)
	return r.attach("console", b.String())
}
