package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/pgcluster"
	"fencepost/soak/fleet"
)

// holdBound is how long the writes of a member may wait for a SWITCHOVER that it does not hear of any more: 2 s, and what a
// busy machine adds.
const holdBound = 2*time.Second + time.Second

// each is the number of writers of each member.
const each = 2

// planned is a fleet with writers of every member, and the SWITCHOVER that its first member was given.
type planned struct {
	*fleet.Lab
	t       *testing.T
	writers []*fleet.Writers
	order   *order
}

// order is one SWITCHOVER.
type order struct {
	paused chan struct{} // closed when writes are
	ended  chan struct{} // closed with the answer
	err    error         // of the answer
	conn   *pgconn.PgConn
}

// startPlanned starts a fleet with writers, and returns when the first member says that writes are paused everywhere.
func startPlanned(t *testing.T, c fleet.Config) *planned {
	p := &planned{Lab: startFleet(t, c), t: t}
	for _, m := range p.Members {
		w := p.Write("transaction", each, m.Addr)
		t.Cleanup(w.End)
		p.writers = append(p.writers, w)
	}
	p.write(p.Servers[0], p.writers...)
	p.order = p.give(p.Members[0], "SWITCHOVER main 60")
	p.await("writes are paused", p.order.paused)
	return p
}

// give gives an order at a member's console.
func (p *planned) give(m *fleet.Member, sql string) *order {
	p.t.Helper()
	cfg, err := pgconn.ParseConfig(fmt.Sprintf("postgres://%s@%s/fencepost?sslmode=disable&connect_timeout=10", fleet.Admin, m.Addr))
	if err != nil {
		p.t.Fatal(err)
	}
	o := &order{paused: make(chan struct{}), ended: make(chan struct{})}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "are paused") {
			close(o.paused)
		}
	}
	conn, err := pgconn.ConnectConfig(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	o.conn = conn
	p.t.Cleanup(func() { conn.Conn().Close() })
	go func() { // ends with the answer, or the connection
		defer close(o.ended)
		_, o.err = conn.Exec(p.t.Context(), sql).ReadAll()
	}()
	return o
}

func (p *planned) await(what string, done <-chan struct{}) {
	p.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatalf("waiting until %s", what)
	}
}

// write waits until each writer has written to a server, from now on.
func (p *planned) write(s *fleet.Server, writers ...*fleet.Writers) {
	p.t.Helper()
	since := time.Now()
	for _, w := range writers {
		if err := w.Await(p.t.Context(), each, s, since); err != nil {
			p.t.Fatal(err)
		}
	}
}

// resumed waits until the writes of members go on by themselves, and checks that they did not go on at once, nor later than
// they may, after the starter was lost.
func (p *planned) resumed(lost time.Time, writers ...*fleet.Writers) {
	p.t.Helper()
	p.write(p.Servers[0], writers...)
	for _, w := range writers {
		for _, a := range w.Acks() {
			waited := a.At.Sub(lost)
			if waited < 100*time.Millisecond { // what was written before
				continue
			}
			p.t.Logf("writes of %s went on %s after the starter was lost", a.Who, waited.Round(time.Millisecond))
			if waited < time.Second || waited > holdBound {
				p.t.Errorf("writes went on after %s", waited)
			}
			break
		}
	}
}

// free waits until nothing is paused at members: their shard has its primary, they have nobody in a queue.
func (p *planned) free(s *fleet.Server, members ...*fleet.Member) {
	p.t.Helper()
	for _, m := range members {
		var row map[string]string
		waiting := 0
		err := poll(patience, func() (bool, error) {
			var err error
			if row, err = m.Shard(p.t.Context()); err != nil {
				return false, err
			}
			pools, err := m.Console(p.t.Context(), "SHOW POOLS")
			waiting = 0
			for _, pool := range pools {
				n, _ := strconv.Atoi(pool["cl_waiting"])
				waiting += n
			}
			return row["elected"] == s.Front && waiting == 0, err
		})
		if err != nil {
			p.t.Errorf("%s: %v; %d clients wait; %v", m.Name, err, waiting, row)
		}
	}
}

// say waits until the log of each member has so many lines with a text.
func (p *planned) say(n int, text string, members ...*fleet.Member) {
	p.t.Helper()
	for _, m := range members {
		if err := poll(patience, func() (bool, error) { return len(m.Lines(time.Time{}, text)) >= n, nil }); err != nil {
			p.t.Fatalf("%s does not say %q: %v", m.Name, text, err)
		}
	}
}

// calm checks that a member has not begun to pause writes since then.
func (p *planned) calm(since time.Time, members ...*fleet.Member) {
	p.t.Helper()
	for _, m := range members {
		for _, l := range m.Lines(since, "writes wait for another primary") {
			p.t.Errorf("%s pauses writes again: %s", m.Name, l.Text)
		}
	}
}

// missed waits until members know that the first one is not there.
func (p *planned) missed(members ...*fleet.Member) {
	p.t.Helper()
	for _, m := range members {
		state := ""
		err := poll(patience, func() (bool, error) {
			rows, err := m.Fleet(p.t.Context())
			for _, r := range rows {
				if r["member"] == p.Members[0].Name {
					state = r["state"]
				}
			}
			return state == "dead", err
		})
		if err != nil {
			p.t.Errorf("%s does not miss the first member, which is %s: %v", m.Name, state, err)
		}
	}
}

// another gives SWITCHOVER on the second member, without the first one if that is missing, and does what it asks for. It returns the new primary.
func (p *planned) another(without bool) *fleet.Server {
	p.t.Helper()
	old, next := p.Servers[0], p.Servers[1]
	sql := "SWITCHOVER main 30"
	if without {
		sql += " WITHOUT " + p.Members[0].Name
	}
	o := p.give(p.Members[1], sql)
	select {
	case <-o.paused:
	case <-o.ended:
		p.t.Fatalf("another SWITCHOVER ended before writes were paused: %v", o.err)
	}
	if err := old.Stop(p.t.Context(), pgcluster.Fast); err != nil {
		p.t.Fatal(err)
	}
	if err := next.Promote(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.await("another SWITCHOVER is over", o.ended)
	if o.err != nil {
		p.t.Errorf("another SWITCHOVER: %v", o.err)
	}
	return next
}

// givenUp gives a SWITCHOVER that comes to nothing.
func (p *planned) givenUp(m *fleet.Member, sql string) {
	p.t.Helper()
	o := p.give(m, sql)
	p.await(sql+" has been given up", o.ended)
	p.t.Logf("%s: %s", sql, detail(o.err))
	if o.err == nil || !strings.Contains(o.err.Error(), "given up") {
		p.t.Errorf("%s: %v", sql, o.err)
	}
}

// detail is an error with all that a server says of it.
func detail(err error) string {
	if pe := new(pgconn.PgError); errors.As(err, &pe) {
		return fmt.Sprintf("%s (%s) %s", pe.Message, pe.Code, strings.ReplaceAll(pe.Detail, "\n", "; "))
	}
	return fmt.Sprint(err)
}

// unharmed ends writers and checks that none of them has seen an error.
func (p *planned) unharmed(writers ...*fleet.Writers) {
	p.t.Helper()
	for _, w := range writers {
		w.End()
		if all := w.Failures(); len(all) > 0 {
			p.t.Errorf("%d errors of clients, the first: %+v", len(all), all[0])
		}
	}
}

// While a member is not heard, which may go on writing, SWITCHOVER and PAUSE FLEET are refused, unless it is named.
func TestSwitchoverNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	p := &planned{Lab: startFleet(t, fleet.Config{}), t: t}
	m := p.Members[2]
	if err := m.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer m.Signal(syscall.SIGCONT) //nolint:errcheck // the test is over
	err := poll(patience, func() (bool, error) {
		rows, err := p.Members[0].Fleet(t.Context())
		return slices.ContainsFunc(rows, func(r map[string]string) bool { return r["member"] == m.Name && r["state"] == "dead" }), err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"SWITCHOVER main 5", "PAUSE FLEET", "SWITCHOVER main 5 WITHOUT m1", "PAUSE FLEET WITHOUT"} {
		_, err := p.Members[0].Console(t.Context(), sql)
		t.Logf("%s: %v", sql, detail(err))
		if err == nil {
			t.Errorf("%s is not refused", sql)
		} else if !strings.Contains(sql, "WITHOUT") && !strings.Contains(err.Error(), m.Name) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := p.Members[0].Console(t.Context(), "PAUSE FLEET WITHOUT m3"); err != nil {
		t.Error(err)
	}
	if _, err := p.Members[0].Console(t.Context(), "RESUME FLEET"); err != nil {
		t.Error(err)
	}
	o := p.give(p.Members[0], "SWITCHOVER main 30 WITHOUT m3")
	p.await("writes are paused", o.paused)
	o.conn.Conn().Close()
}
