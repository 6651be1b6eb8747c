package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
)

// play has the clients work, says once a second how they fare, and does failovers.
func (s *stage) play(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i := range s.options.writers() {
		clients.Go(func() { s.client(work, writer, i) })
	}
	for i := range s.options.readers() {
		clients.Go(func() { s.client(work, reader, i) })
	}
	var due <-chan time.Time
	if s.options.Failover > 0 {
		due = time.After(s.options.Failover)
	}
	var over chan error // of a failover that is under way
	begin := func() {
		over = make(chan error, 1)
		go func() { over <- s.failover(ctx) }() // ends with the failover or ctx
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		again := s.options.Again
		if over != nil {
			again = nil // one at a time
		}
		select {
		case <-ctx.Done():
			if over != nil {
				// Nothing may be started once everything is being stopped.
				if err := <-over; err != nil {
					s.say("the failover was cut short: %v", err)
				}
			}
			stop()
			clients.Wait()
			return s.settle()
		case <-second.C:
			s.say("%s", s.tally.line())
		case <-due:
			due = nil
			begin()
		case _, open := <-again:
			if !open {
				s.options.Again = nil
				continue
			}
			due = nil
			begin()
		case err := <-over:
			if over = nil; err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// settle checks at the end that no transfer was done by half. Without a primary there is nothing to check.
func (s *stage) settle() error {
	if !s.cluster.Primary().Running() {
		return nil
	}
	return checkSum(s.port(0))
}

// detection is how long the demo takes to notice that the primary is dead, where a cluster manager has its time limits.
const detection = time.Second

// failover kills the primary and promotes a standby, as a cluster manager would. Fencepost is told nothing. In the end the
// killed server is a standby of the new primary.
func (s *stage) failover(ctx context.Context) error {
	c := s.cluster
	old := c.Primary()
	s.tally.forget()
	began := time.Now()
	s.say("\n*** %s  kill -9 %s, the primary. In %s a standby will be promoted. Fencepost gets no notice of either.", began.Format("15:04:05.000"), old.Addr(), detection)
	if err := old.Kill(); err != nil {
		return err
	}
	if err := poll.For(ctx, detection); err != nil {
		return err
	}
	next, err := mostWAL(ctx, c.Standbys())
	if err != nil {
		return err
	}
	if err := next.Promote(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	for _, n := range c.Standbys() {
		if n != old {
			if err := n.Follow(ctx, next); err != nil {
				return err
			}
		}
	}
	if err := s.awaitWrites(ctx, next); err != nil {
		return err
	}
	s.say(`
*** %s was promoted: there was no primary for %s. What the clients of all members noticed:
      %d that write:  %s
      %d that read from standbys:  %s
    A transaction that was under way at the kill fails, and its client reconnects; all others waited in Fencepost. Now try:
      export PGPASSWORD=%[7]s
      psql -h 127.0.0.1 -p %[8]d -U app fencepost -c 'SHOW SHARDS' -c 'SHOW FLEET' -c 'SHOW EVIDENCE' -c 'SHOW ELECTIONS'
      psql -h 127.0.0.1 -p %[8]d -U app app -c 'SELECT inet_server_port(), pg_is_in_recovery()'
`, next.Addr(), took.Round(time.Millisecond), s.options.writers(), s.tally.since(writer), s.options.readers(), s.tally.since(reader), password, s.port(0))
	if err := old.Rebuild(ctx, next); err != nil {
		return fmt.Errorf("make %s a standby of %s: %w", old.Addr(), next.Addr(), err)
	}
	s.say("*** %s is a standby of %s now.", old.Addr(), next.Addr())
	return nil
}

// mostWAL is the standby that has received most: the other one can follow it.
func mostWAL(ctx context.Context, standbys []*pgcluster.Node) (best *pgcluster.Node, err error) {
	most := int64(-1)
	for _, n := range standbys {
		if !n.Running() {
			continue
		}
		var received int64
		if err := n.QueryRow(ctx, "SELECT coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn", &received); err != nil {
			return nil, err
		}
		if received > most {
			best, most = n, received
		}
	}
	if best == nil {
		return nil, errors.New("no standby is left to promote")
	}
	return best, nil
}

// awaitWrites waits until clients have written at the new primary for a while, so that each had its turn.
func (s *stage) awaitWrites(ctx context.Context, next *pgcluster.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	served := func() (bool, error) { return s.tally.servedBy(writer, next.Port), nil }
	if err := poll.Until(ctx, 50*time.Millisecond, served); err != nil {
		return fmt.Errorf("no client wrote at %s after it was promoted: %w", next.Addr(), err)
	}
	return poll.For(ctx, 2*time.Second)
}
