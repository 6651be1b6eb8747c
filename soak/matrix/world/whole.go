package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fencepost/internal/poll"
)

// streamPatience is how long a standby may take to stream from a server that it was told to follow. One that does not has
// WAL of its own that the other lacks, or lacks what the other has removed, and is rebuilt.
const streamPatience = 8 * time.Second

// whole waits until every standby streams from the primary and has replayed what it has written, the relays listen and the
// observer has seen it all and had a write acknowledged. Standbys that do not get there are rebuilt; rebuilt is told of each, if it is not nil.
func (w *World) whole(ctx context.Context, rebuilt func(*Server)) error {
	if err := w.stream(ctx, streamPatience); err != nil {
		missing, err := w.notStreaming(ctx)
		if err != nil {
			return err
		}
		for _, s := range missing {
			w.config.Log.Warn().Str("server", s.Name).Msg("standby does not stream; it is rebuilt")
			if err := s.rebuild(ctx, w.Primary()); err != nil {
				return err
			}
			if rebuilt != nil {
				rebuilt(s)
			}
		}
		if err := w.stream(ctx, 4*streamPatience); err != nil {
			return fmt.Errorf("standbys do not stream from %s: %w", w.Primary().Name, err)
		}
	}
	if err := w.cluster.CatchUp(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := poll.Until(ctx, pollEvery, func() (bool, error) { return w.listening() && w.seen(began), nil })
	if err != nil {
		return fmt.Errorf("relays and observer after everything is back: %w", err)
	}
	return nil
}

// stream waits until every standby streams.
func (w *World) stream(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return poll.Until(ctx, pollEvery, func() (bool, error) {
		missing, err := w.notStreaming(ctx)
		return len(missing) == 0, err
	})
}

// notStreaming are the standbys that do not stream from the primary.
func (w *World) notStreaming(ctx context.Context) ([]*Server, error) {
	var names []string
	err := w.Primary().node.QueryRow(ctx, `SELECT coalesce(array_agg(application_name), '{}') FROM pg_stat_replication
		WHERE state = 'streaming' AND NOT pg_is_in_recovery()`, &names)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(w.standbys(), func(s *Server) bool { return slices.Contains(names, s.Name) }), nil
}

func (w *World) listening() bool {
	for _, s := range w.servers {
		for _, r := range s.relays() {
			if !r.Listens() {
				return false
			}
		}
	}
	return true
}

// seen reports whether the observer has seen, after a time, one writer and nothing but standbys beside.
func (w *World) seen(after time.Time) bool {
	if _, ok := w.observer.FirstWrite(w.Primary().Name, after); !ok {
		return false
	}
	last := w.observer.At(time.Now())
	if len(last) < len(w.servers) {
		return false
	}
	for _, s := range last {
		ok := s.InRecovery
		if s.Server == w.Primary().Name {
			ok = s.Writable()
		}
		if !ok || !s.Answers || s.Until.Before(after) {
			return false
		}
	}
	return true
}

// rebuild makes the server a standby of another one from a copy of it.
func (s *Server) rebuild(ctx context.Context, from *Server) error {
	if err := s.stop(ctx); err != nil {
		return err
	}
	return s.node.Rebuild(ctx, from.node)
}
