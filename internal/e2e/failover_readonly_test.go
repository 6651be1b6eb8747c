package e2e

import (
	"testing"
	"time"
)

// A primary that is read-only by its own settings takes no writes and is not the primary until that ends. A new one that is
// kept read-only for a while, as some cluster managers do, gets the writes when that is over, and not one before.
func TestReadOnlyBySettings(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 1, lines: shortWait})
	old, next := g.nodes[0], g.nodes[1]
	g.writes(old)
	idle := mustLogin(t, g.session())
	idle.where(true)
	g.must(old.Configure(map[string]string{"default_transaction_read_only": "on"}))
	g.elects(nil, "unhealthy")
	g.notes(old.Addr(), "role=read-only")
	g.ends("idle, in session mode", idle, "", "57P01", "No transaction was open")
	g.noPrimary(old.Addr() + ": it is read-only by its own settings")
	g.must(old.Configure(map[string]string{"default_transaction_read_only": "off"}))
	g.elects(old, "healthy")

	w := g.startWriters("transaction", 2)
	g.must(next.Configure(map[string]string{"default_transaction_read_only": "on"}))
	g.must(old.Kill())
	g.promote(next)
	g.notes(next.Addr(), "role=read-only", "timeline=2")
	g.elects(nil, "unhealthy failover")
	g.noPrimary(next.Addr() + ": it is read-only by its own settings")
	since := time.Now()
	g.must(next.Configure(map[string]string{"default_transaction_read_only": "off"}))
	w.all("promoted read-only", since, next)
	w.verdict(lossCodes + " 57P03")
}
