package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/internal/product"
	"fencepost/soak/fleet"
)

// leftBehind is a fleet in front of an old primary that lives beside the one that was promoted.
type leftBehind struct {
	*fleet.Lab
	t         *testing.T
	dir       string
	old, next *fleet.Server
}

// startLeftBehind starts a fleet of three, each member with a state file. change may change the settings of a member.
func startLeftBehind(t *testing.T, change func(i int, s product.Settings)) *leftBehind {
	t.Helper()
	l := &leftBehind{t: t, dir: t.TempDir()}
	l.Lab = startFleet(t, fleet.Config{Lines: []string{`query_wait_timeout = "1s"`}, Change: func(i int, s product.Settings) {
		s["shards"]["main"].(product.Section)["state_file"] = l.state(i)
		if change != nil {
			change(i, s)
		}
	}})
	l.old, l.next = l.Servers[0], l.Servers[1]
	return l
}

func (l *leftBehind) state(i int) string { return filepath.Join(l.dir, fmt.Sprintf("m%d.state", i+1)) }

func (l *leftBehind) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// floor waits until members have this floor, and their state files say so.
func (l *leftBehind) floor(n string, members ...int) {
	l.t.Helper()
	for _, i := range members {
		m, file := l.Members[i], ""
		err := poll(patience, func() (bool, error) {
			row, err := m.Shard(l.t.Context())
			text, _ := os.ReadFile(l.state(i))
			file = string(text)
			return row["floor"] == n && strings.Contains(file, `"timeline":`+n), err
		})
		if err != nil {
			l.t.Fatalf("%s has not the floor %s: %v; its file: %s", m.Name, n, err, file)
		}
	}
}

// unwritten has clients write through members for a while, and checks that the old primary acknowledges nothing.
func (l *leftBehind) unwritten(d time.Duration, members ...int) {
	l.t.Helper()
	began := time.Now()
	var all []*fleet.Writers
	for _, i := range members {
		all = append(all, l.Write("session", 2, l.Members[i].Addr), l.Write("transaction", 2, l.Members[i].Addr))
	}
	select {
	case <-l.t.Context().Done():
	case <-time.After(d):
	}
	for _, w := range all {
		w.End()
		late := 0
		var last fleet.Ack
		for _, a := range w.Acks() {
			if a.Port == l.old.Port {
				late++
				last = a
			}
		}
		if late > 0 {
			l.t.Errorf("the old primary acknowledged %d writes (%s), the last %s after the start", late, last.Who, last.At.Sub(began).Round(time.Millisecond))
		}
		l.t.Logf("errors: %v", w.Codes())
	}
}

// A member that returns with a higher generation, which nobody ordered, lowers no floor: neither that of the others nor, when
// it has heard them, its own.
func TestGenerationOfAStateFile(t *testing.T) {
	t.Parallel()
	l := startLeftBehind(t, nil)
	l.must(l.Members[2].Kill())
	row, err := l.Members[0].Shard(t.Context())
	l.must(err)
	l.must(l.next.Promote(t.Context()))
	l.floor("2", 0, 1)
	l.must(l.next.Freeze())
	l.must(os.WriteFile(l.state(2), []byte(fmt.Sprintf(`{"system_identifier":%q,"generation":1,"timeline":1}`, row["system_identifier"])), 0o600))
	l.must(l.Members[2].Start(t.Context()))
	l.unwritten(4*time.Second, 0, 1, 2)
	l.floor("2", 0, 1, 2)
	// An order is another matter.
	if _, err := l.Members[2].Console(t.Context(), "FORGET main"); err != nil {
		t.Fatal(err)
	}
	l.must(l.Whole(t.Context(), l.old))
	l.must(l.next.Thaw())
}

// A floor that is known from a member outlives that member: who accepted it keeps it in the state file and repeats it.
func TestClaimOutlivesItsObserver(t *testing.T) {
	t.Parallel()
	l := startLeftBehind(t, nil)
	for _, m := range l.Members[1:] {
		l.must(l.Net.Cut(m.Name, l.ServerName(l.next)))
	}
	l.must(l.Members[2].Kill())
	l.must(l.next.Promote(t.Context()))
	l.floor("2", 0)
	l.elected("NULL", 1)
	l.floor("2", 1)
	l.must(l.Members[0].Kill())
	l.must(l.Members[1].Kill())
	l.must(l.Members[1].Start(t.Context()))
	l.unwritten(2*time.Second, 1)
	l.must(os.Remove(l.state(2)))
	l.must(l.Members[2].Start(t.Context()))
	l.unwritten(4*time.Second, 1, 2)
	// What is seen is what counts in the end.
	for _, m := range l.Members[1:] {
		l.must(l.Net.Heal(m.Name, l.ServerName(l.next)))
	}
	l.elected(l.next.Front, 1, 2)
}

// elected waits until members have elected a server.
func (l *leftBehind) elected(front string, members ...int) {
	l.t.Helper()
	for _, i := range members {
		var row map[string]string
		err := poll(patience, func() (_ bool, err error) {
			row, err = l.Members[i].Shard(l.t.Context())
			return row["elected"] == front, err
		})
		if err != nil {
			l.t.Fatalf("%s has not elected %s: %v; %v", l.Members[i].Name, front, err, row)
		}
	}
}

// The member that the others join by waits for them as they do, and finds them by its state file.
func TestSeedWaitsForItsFleet(t *testing.T) {
	t.Parallel()
	l := startLeftBehind(t, func(i int, s product.Settings) {
		if i == 0 {
			s["fleet"]["join"] = []string{}
		}
	})
	l.must(poll(patience, func() (bool, error) {
		text, err := os.ReadFile(l.state(0))
		return strings.Contains(string(text), l.Members[1].Front()) && strings.Contains(string(text), l.Members[2].Front()), err
	}))
	l.must(l.Members[0].Kill())
	l.must(l.next.Promote(t.Context()))
	l.floor("2", 1, 2)
	l.must(l.next.Freeze())
	l.must(l.Members[0].Start(t.Context()))
	l.unwritten(4*time.Second, 0)
	l.must(l.next.Thaw())
}
