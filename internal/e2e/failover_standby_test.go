package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/wire"
)

// A session that asks for a standby does not stay on a server that was promoted: in session mode it ends between two transactions, in
// transaction mode its next one runs elsewhere. Who only prefers a standby stays.
func TestStandbyPromoted(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 2, shard: []string{`standby_balance = "round_robin"`}})
	g.elects(g.nodes[0], "healthy")
	for _, n := range g.nodes[1:] {
		g.notes(n.Addr(), "reads=yes")
	}
	next, other := g.nodes[1], g.nodes[2]
	// at logs in until the session has a connection to the server that is to be promoted.
	at := func(where place, target string) *raw {
		for range 20 {
			c := mustLogin(t, where, "options", "-c fencepost.target="+target)
			switch by, err := c.where(false); {
			case err != nil:
				t.Fatal(err)
			case by == fmt.Sprint(next.Port):
				return c
			}
		}
		t.Fatal("no session is served by " + next.Addr())
		return nil
	}
	idle, busy, prefers, moves := at(g.session(), "standby"), at(g.session(), "standby"), at(g.session(), "prefer-standby"), at(g.transaction(), "standby")
	if got, err := busy.exchange(1, query("BEGIN; SELECT 1")); err != nil || !strings.HasSuffix(got, "Z[T]") {
		t.Fatalf("%s, %v", got, err)
	}
	since := g.promote(next)
	g.ends("idle", idle, "", "57P01", "no longer a standby")
	t.Logf("an idle session heard of it after %s", time.Since(since).Round(time.Millisecond))
	if got, err := busy.exchange(1, query("SELECT 2")); err != nil || got != "T D[2] C[SELECT 1] Z[T]" {
		t.Errorf("in the transaction: %s, %v", got, err)
	}
	if got, err := busy.exchange(1, query("COMMIT")); err != nil || got != "C[COMMIT] Z[I]" {
		t.Errorf("at its end: %s, %v", got, err)
	}
	g.ends("behind the transaction", busy, "", "57P01", "no longer a standby")
	if got, err := moves.where(false); err != nil || got != fmt.Sprint(other.Port) {
		t.Errorf("in transaction mode: %s, %v", got, err)
	}
	if got, err := prefers.where(false); err != nil || got != fmt.Sprint(next.Port) {
		t.Errorf("a session that prefers a standby: %s, %v", got, err)
	}
}

// A standby that is frozen gets no reads any more as soon as its monitor has waited a second for an answer and another server is well;
// what it leaves unanswered ends when nothing was heard from it for unhealthy_after, on a new connection neither.
func TestFrozenStandby(t *testing.T) {
	t.Parallel()
	for _, standbys := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d standbys", standbys), func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, front{standbys: standbys, shard: []string{`unhealthy_after = "3s"`}, lines: []string{`query_wait_timeout = "2s"`}})
			g.elects(g.nodes[0], "healthy")
			for _, n := range g.nodes[1:] {
				g.notes(n.Addr(), "reads=yes")
			}
			frozen, well := g.nodes[1], g.nodes[len(g.nodes)-1]
			if standbys == 1 {
				well = g.nodes[0]
			}
			const clients = 30
			var all []*raw
			for i := range clients {
				at := g.transaction()
				if i%2 == 0 {
					at = g.session()
				}
				c := mustLogin(t, at, "options", "-c fencepost.target=prefer-standby")
				if _, err := c.where(false); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			g.must(frozen.Freeze())
			began := time.Now()
			// Each reads until it has been answered by the server that is well.
			type end struct {
				code string
				took time.Duration
				err  error
			}
			ends := make([]end, clients)
			if err := together(clients, func(i int) error {
				c := all[i]
				for time.Since(began) < patience {
					if err := c.send(query("SELECT inet_server_port()")); err != nil {
						return err
					}
					for {
						m, err := c.nextWithin(patience)
						switch {
						case err != nil:
							return fmt.Errorf("after %s: %w", time.Since(began).Round(time.Millisecond), err)
						case m.typ == wire.MsgErrorResponse:
							ends[i] = end{code: field(m.body, wire.FieldCode), took: time.Since(began)}
							return nil
						case m.typ == wire.MsgDataRow && strings.Contains(string(m.body), fmt.Sprint(well.Port)):
							ends[i] = end{took: time.Since(began)}
							return nil
						}
						if m.typ == wire.MsgReadyForQuery {
							break
						}
					}
				}
				return fmt.Errorf("it was served for %s", time.Since(began))
			}); err != nil {
				t.Error(err)
			}
			codes, last := map[string]int{}, time.Duration(0)
			for _, e := range ends {
				codes[e.code]++
				last = max(last, e.took)
			}
			t.Logf("the last of %d clients had its answer or its error after %s; errors %v", clients, last.Round(time.Millisecond), codes)
			if last > 8*time.Second || codes["08006"] == 0 || codes["08006"]+codes[""] != clients {
				t.Errorf("errors %v", codes)
			}
			g.logs("shard: silent", frozen.Addr())
			g.notes(frozen.Addr(), "reads=no", "note=nothing was heard from it")
			g.reads("prefer-standby", well)
			if standbys == 2 {
				g.reads("standby", well)
			} else if _, err := served(g.transaction(), false, "options", "-c fencepost.target=standby"); err == nil || !strings.Contains(err.Error(), "57P03") {
				t.Errorf("without a standby: %v", err)
			}
			g.must(frozen.Thaw())
			g.notes(frozen.Addr(), "reads=yes")
		})
	}
}

// As soon as its monitor waits for an answer, a standby is not offered to anybody new while another server is well.
func TestLateStandbyIsNotOffered(t *testing.T) {
	t.Parallel()
	g := newGroup(t, front{standbys: 2})
	g.elects(g.nodes[0], "healthy")
	for _, n := range g.nodes[1:] {
		g.notes(n.Addr(), "reads=yes")
	}
	frozen, well := g.nodes[1], g.nodes[2]
	began := time.Now()
	g.must(frozen.Freeze())
	g.notes(frozen.Addr(), "reads=no", "note=its monitor waits for an answer")
	if took := time.Since(began); took > 5*time.Second { // about one; the monitor gives up after 10
		t.Errorf("it was offered for %s", took)
	}
	for _, target := range slices.Repeat([]string{"standby", "prefer-standby"}, 5) {
		g.reads(target, well)
	}
	g.must(frozen.Thaw())
}
