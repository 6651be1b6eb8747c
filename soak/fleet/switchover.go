package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/pgcluster"
)

// SwitchoverResult is what came of Switchover.
type SwitchoverResult struct {
	Clients  int
	Errors   []Failure
	Paused   time.Duration // from the last write that the old primary acknowledged to the first one of the new
	Longest  time.Duration // the longest a client waited for one acknowledgement
	Switched time.Duration // from the stop of the old primary to the promotion
	Members  []string      // paused_ms of each member, as SWITCHOVER answered
	Acks     int
}

// String is a line of figures.
func (r SwitchoverResult) String() string {
	return fmt.Sprintf("%d clients, %d writes, %d errors; no write for %s, the longest wait of a client %s, while the primary was stopped and its standby promoted in %s; members say %s",
		r.Clients, r.Acks, len(r.Errors), r.Paused.Round(time.Millisecond), r.Longest.Round(time.Millisecond), r.Switched.Round(time.Millisecond), strings.Join(r.Members, ", "))
}

// Switchover has clients of all members write in transaction mode while SWITCHOVER is given on the first member; when that
// says that writes are paused, the primary is stopped in order and its standby promoted. The old primary follows then.
func (l *Lab) Switchover(ctx context.Context, each int) (SwitchoverResult, error) {
	old, next := l.Primary(), l.standbys()[0]
	r := SwitchoverResult{Clients: each * len(l.Members)}
	began := time.Now()
	var writers []*Writers
	for _, m := range l.Members {
		writers = append(writers, l.Write("transaction", each, m.Addr))
	}
	end := func() {
		for _, w := range writers {
			w.End()
		}
	}
	defer end()
	settled := func(s *Server, since time.Time) error {
		for _, w := range writers {
			if err := w.Await(ctx, each, s, since); err != nil {
				return err
			}
		}
		return nil
	}
	if err := settled(old, began); err != nil {
		return r, err
	}
	started := time.Now()
	if err := l.switchOver(ctx, old, next, &r); err != nil {
		return r, err
	}
	if err := settled(next, time.Now()); err != nil {
		return r, err
	}
	end()
	r.count(writers, old, next, started)
	if err := old.Follow(ctx, next.Node); err != nil {
		return r, err
	}
	if err := old.Start(ctx); err != nil {
		return r, err
	}
	return r, errors.Join(l.cluster.CatchUp(ctx), l.Whole(ctx, next))
}

// SlowSwitchover is Switchover with every server so far away from every member, in each direction.
func (l *Lab) SlowSwitchover(ctx context.Context, each int, delay time.Duration) (_ SwitchoverResult, err error) {
	slow := func(d time.Duration) (err error) {
		for _, s := range l.Servers {
			err = errors.Join(err, l.Net.Slow(l.ServerName(s), d))
		}
		return err
	}
	defer func() { err = errors.Join(err, slow(0)) }()
	if err := slow(delay); err != nil {
		return SwitchoverResult{}, err
	}
	return l.Switchover(ctx, each)
}

// switchOver gives the order, and does what it asks for.
func (l *Lab) switchOver(ctx context.Context, old, next *Server, r *SwitchoverResult) error {
	paused := make(chan struct{}, 8)
	cfg, err := pgconn.ParseConfig(fmt.Sprintf("postgres://%s@%s/fencepost?sslmode=disable", Admin, l.Members[0].Addr))
	if err != nil {
		return err
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "are paused") {
			paused <- struct{}{}
		}
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it goes in any case
	done := make(chan error, 1)
	go func() { // ends with the answer
		results, err := conn.Exec(ctx, "SWITCHOVER main").ReadAll()
		for _, result := range results {
			for _, row := range result.Rows {
				r.Members = append(r.Members, fmt.Sprintf("%s %s ms", row[0], row[1]))
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		return fmt.Errorf("SWITCHOVER ended before writes were paused: %w", err)
	case <-paused:
	}
	stopped := time.Now()
	if err := old.Stop(ctx, pgcluster.Fast); err != nil {
		return err
	}
	if err := next.Promote(ctx); err != nil {
		return err
	}
	r.Switched = time.Since(stopped)
	return <-done
}

// count looks at what the clients saw.
func (r *SwitchoverResult) count(writers []*Writers, old, next *Server, since time.Time) {
	var last, first time.Time
	for _, w := range writers {
		r.Errors = append(r.Errors, w.Failures()...)
		for _, a := range w.Acks() {
			r.Acks++
			switch {
			case a.Port == old.Port && a.At.After(last):
				last = a.At
			case a.Port == next.Port && (first.IsZero() || a.At.Before(first)):
				first = a.At
			}
			if a.At.After(since) {
				r.Longest = max(r.Longest, a.At.Sub(a.Began))
			}
		}
	}
	r.Paused = first.Sub(last)
}

// RollingResult is what came of Rolling.
type RollingResult struct {
	Clients    int
	Acks       int
	Reconnects int // sessions that were told to go between two transactions, and logins that found nobody
	Failed     []Failure
	Took       []time.Duration // each member's restart
}

// String is a line of figures.
func (r RollingResult) String() string {
	return fmt.Sprintf("%d clients, %d writes, %d reconnects, %d failed transactions; restarts took %v", r.Clients, r.Acks, r.Reconnects, len(r.Failed), r.Took)
}

// Rolling restarts the members in turn while clients, each of which knows all members, write in transaction mode.
func (l *Lab) Rolling(ctx context.Context, each int) (RollingResult, error) {
	r := RollingResult{Clients: each * len(l.Members)}
	began := time.Now()
	var writers []*Writers
	for i := range l.Members {
		var addrs []string
		for k := range l.Members {
			addrs = append(addrs, l.Members[(i+k)%len(l.Members)].Addr)
		}
		writers = append(writers, l.Write("transaction", each, addrs...))
	}
	end := func() {
		for _, w := range writers {
			w.End()
		}
	}
	defer end()
	settled := func(since time.Time) error {
		for _, w := range writers {
			if err := w.Await(ctx, each, l.Primary(), since); err != nil {
				return err
			}
		}
		return nil
	}
	if err := settled(began); err != nil {
		return r, err
	}
	for _, m := range l.Members {
		from := time.Now()
		if err := m.Stop(); err != nil {
			return r, err
		}
		if err := m.Start(ctx); err != nil {
			return r, err
		}
		if err := l.Whole(ctx, l.Primary()); err != nil {
			return r, err
		}
		r.Took = append(r.Took, time.Since(from).Round(10*time.Millisecond))
		if err := settled(time.Now()); err != nil {
			return r, err
		}
	}
	end()
	for _, w := range writers {
		r.Acks += len(w.Acks())
		for _, f := range w.Failures() {
			if f.Reconnect || f.Code == adminShutdown {
				r.Reconnects++
			} else {
				r.Failed = append(r.Failed, f)
			}
		}
	}
	return r, nil
}

// adminShutdown is what a session is told that ends between two transactions: nothing of it is lost.
const adminShutdown = "57P01"
