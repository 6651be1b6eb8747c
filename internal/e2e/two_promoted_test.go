package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fencepost/soak/fleet"
)

// Two standbys are promoted at once, on one timeline. Members that have chosen different ones come to one and the same, say so, and stay
// there; one that cannot reach it has none.
func TestTwoPromotedAtOnce(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut %t", cut), func(t *testing.T) {
			t.Parallel()
			l := startFleet(t, fleet.Config{Standbys: 2, Lines: []string{`query_wait_timeout = "2s"`}})
			one, two := l.Servers[1], l.Servers[2]
			began := time.Now()
			var all []*fleet.Writers
			for _, m := range l.Members {
				w := l.Write("transaction", 3, m.Addr)
				defer w.End()
				all = append(all, w)
				if err := w.Await(t.Context(), 3, l.Servers[0], began); err != nil {
					t.Fatal(err)
				}
			}
			// The first and the second member see one of them, the third the other one.
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			for i, m := range l.Members {
				blind := two
				if i == 2 {
					blind = one
				}
				must(l.Net.Cut(m.Name, l.ServerName(blind)))
			}
			// Before they hear of each other's choice each is to have made its own.
			for _, m := range l.Members[:2] {
				must(l.Net.Cut(m.Name, l.Members[2].Name))
			}
			promoted := time.Now()
			var g errgroup.Group
			for _, s := range []*fleet.Server{one, two} {
				g.Go(func() error { return s.Promote(t.Context()) })
			}
			must(g.Wait())
			for i, s := range []*fleet.Server{one, one, two} {
				must(all[i].Await(t.Context(), 3, s, promoted))
			}
			healed := time.Now()
			for i, m := range l.Members {
				if i < 2 {
					must(l.Net.Heal(m.Name, l.Members[2].Name))
				}
				for _, s := range []*fleet.Server{one, two} {
					if !cut {
						must(l.Net.Heal(m.Name, l.ServerName(s)))
					}
				}
			}
			// However the members find each other again, from the moment at which one has changed its mind all are of one mind.
			elected := func() (all []string) {
				for _, m := range l.Members {
					row, err := m.Shard(t.Context())
					must(err)
					all = append(all, row["elected"])
				}
				return all
			}
			agreed := func() bool {
				got := elected()
				some := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s == "NULL" })
				return len(slices.Compact(slices.Sorted(slices.Values(some)))) == 1 && (cut || len(some) == len(got))
			}
			if err := poll(patience, func() (bool, error) { return agreed(), nil }); err != nil {
				t.Fatalf("the members have elected %v", elected())
			}
			since := time.Now()
			t.Logf("agreed %s after they could hear each other: %v", since.Sub(healed).Round(time.Millisecond), elected())
			rows := []string{}
			for end := since.Add(3 * time.Second); time.Now().Before(end); {
				if err := poll(100*time.Millisecond, func() (bool, error) { return !agreed(), nil }); err == nil {
					t.Fatalf("they have elected %v", elected())
				}
			}
			for i, w := range all {
				w.End()
				doubts := len(l.Members[i].Lines(since, `"shard: doubt"`))
				t.Logf("member %d: %d doubts since, errors %v", i+1, doubts, w.Codes())
				if doubts > 1 {
					t.Errorf("member %d was in doubt %d times within 3 s", i+1, doubts)
				}
				row, err := l.Members[i].Shard(t.Context())
				must(err)
				rows = append(rows, fmt.Sprint(row))
			}
			var ports []int
			for _, w := range all {
				for _, a := range w.Acks() {
					if a.Began.After(since.Add(500*time.Millisecond)) && !slices.Contains(ports, a.Port) {
						ports = append(ports, a.Port)
					}
				}
			}
			if len(ports) != 1 {
				t.Errorf("writes went to %v", ports)
			}
			said := false
			for i, m := range l.Members {
				for _, line := range m.Lines(healed, "outranked") {
					said = said || strings.Contains(line.Text, "before") && strings.Contains(line.Text, "is not on")
					t.Log(line.Text)
				}
				if !cut && !strings.Contains(rows[i], "Stop or demote all but one") {
					t.Errorf("SHOW SHARDS at member %d: %s", i+1, rows[i])
				}
			}
			if !said {
				t.Error("no member says that it has followed another one")
			}
			explained := slices.ContainsFunc(all, func(w *fleet.Writers) bool {
				return slices.ContainsFunc(w.Failures(), func(f fleet.Failure) bool {
					return f.Code == "57P03" && strings.Contains(f.Text, "as the primary of timeline 2 since")
				})
			})
			if cut && !explained {
				t.Error("no client of a member without a primary is told why")
			}
		})
	}
}
