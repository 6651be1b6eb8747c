package cancelrace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/poll"
	"fencepost/soak/raw"
)

// victim is a client whose statements nobody cancels.
type victim struct {
	c    *cell
	n    int
	rng  *rand.Rand
	conn *raw.Conn
	did  int
}

// patience bounds the wait for an answer: longer than query_wait_timeout would be needed by nobody.
const patience = time.Minute

// run loops until ctx ends. It fails only if it cannot go on.
func (v *victim) run(ctx context.Context) error {
	defer func() {
		if v.conn != nil {
			v.conn.Terminate()
		}
	}()
	for ctx.Err() == nil {
		if v.conn == nil {
			var err error
			if v.conn, err = v.c.login(v.n); err != nil {
				return fmt.Errorf("login of a victim: %w", err)
			}
		}
		if err := v.statement(); err != nil {
			v.c.fault("victim: %v", err)
			v.conn.Close()
			v.conn = nil
		}
		pause(ctx, v.rng, v.c.set.pause(v.c.o.Victims))
	}
	return nil
}

// pause waits for up to most, or until ctx ends.
func pause(ctx context.Context, rng *rand.Rand, most time.Duration) {
	if most > 0 {
		poll.For(ctx, time.Duration(rng.Int64N(int64(most)))) //nolint:errcheck // the caller looks at ctx
	}
}

// statement runs one statement, alone or in a transaction, and checks what comes back. An error means that the session
// cannot be used any more.
func (v *victim) statement() error {
	v.did++
	tag := fmt.Sprintf("v%d.%d", v.n, v.did)
	sleep := time.Duration(v.rng.Int64N(int64(v.c.set.target())))
	sql := fmt.Sprintf("SELECT '%s', pg_sleep(%f)", tag, sleep.Seconds())
	row := "D[" + tag + "|] C[SELECT 1]"
	switch v.rng.IntN(6) {
	case 0, 1:
		return v.exchange("1 2 "+row+" Z[I]", &pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	case 2:
		for _, step := range []struct{ sql, want string }{
			{"BEGIN", "C[BEGIN] Z[T]"}, {sql, "T " + row + " Z[T]"}, {"ROLLBACK", "C[ROLLBACK] Z[I]"},
		} {
			if err := v.exchange(step.want, &pgproto3.Query{String: step.sql}); err != nil {
				return err
			}
			if v.conn.Status == 'E' { // a foreign cancel, already counted
				return v.exchange("C[ROLLBACK] Z[I]", &pgproto3.Query{String: "ROLLBACK"})
			}
			if v.conn.Status == 'I' {
				break
			}
		}
		return nil
	}
	return v.exchange("T "+row+" Z[I]", &pgproto3.Query{String: sql})
}

func (v *victim) exchange(want string, msgs ...pgproto3.FrontendMessage) error {
	until := time.Now().Add(patience)
	if err := v.conn.Send(until, msgs...); err != nil {
		return err
	}
	r, err := v.conn.Collect(until, 1, nil)
	if err != nil {
		return err
	}
	v.c.statements.Add(1)
	if r.String() == want {
		return nil
	}
	if errs := r.Segments[0].Errors; len(errs) > 0 && errs[0].Code == queryCanceled {
		v.c.foreign.Add(1)
		return nil
	} else if len(errs) > 0 {
		v.c.fault("victim: %s", errs[0].Error())
		return nil
	}
	return fmt.Errorf("got %.200s, wanted %.200s", r, want)
}

// queryCanceled is the SQLSTATE of a cancelled statement.
const queryCanceled = "57014"
