package e2e

import (
	"testing"
	"time"

	"fencepost/internal/pgcluster"
)

// What a session may be told when its server goes away: a shutdown, a crash, a lost connection, with or without an
// unanswered request.
const lossCodes = "57P01 57P02 08006 08007 " + unheard

// Clients in transaction mode write through a switchover, a demotion in place, a crash and a restart: each new transaction
// is on a server that takes writes, none fails for having been read-only, and every client goes on at the new primary.
func TestFailoverTransactionMode(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 1})
	ctx := t.Context()
	g.elects(g.nodes[0], "healthy")
	w := g.startWriters("transaction", 4)
	gap := func(what string, since time.Time) {
		first, last := w.all(what, since, g.node)
		t.Logf("%s: after the primary took writes the first client wrote after %s, the last after %s", what, first.Round(time.Millisecond), last.Round(time.Millisecond))
		if last > 5*time.Second {
			t.Errorf("%s: a client waited %s for a primary that took writes", what, last)
		}
	}

	old, next := g.nodes[0], g.nodes[1]
	g.must(old.Stop(ctx, pgcluster.Fast))
	gap("switchover", g.promote(next))
	g.must(old.Follow(ctx, next))
	g.must(old.Start(ctx))
	g.must(g.cluster.CatchUp(ctx))

	// The old primary answers as a standby before there is a new one.
	old, next = next, old
	g.must(old.Stop(ctx, pgcluster.Fast))
	g.must(old.Follow(ctx, next))
	g.must(old.Start(ctx))
	gap("demotion in place", g.promote(next))
	g.must(g.cluster.CatchUp(ctx))

	old, next = next, old
	g.must(old.Kill())
	gap("crash", g.promote(next))
	g.must(old.Rebuild(ctx, next))

	g.must(next.Restart(ctx))
	gap("restart", time.Now())

	w.verdict(lossCodes)
	g.elects(next, "healthy")
	g.none()
}
