package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fencepost/internal/poll"
)

// Loss says what is lost between all members, both ways, and what happens meanwhile.
type Loss struct {
	Percent int
	Rounds  int // of a crash of the primary, and a split brain
	Cancels int // in all rounds together
	Seed    uint64
}

// LossResult is what came of it.
type LossResult struct {
	Loss
	Cancels CancelResult
	Knew    []time.Duration // after the first member every other one had elected the new primary, too, in each crash; sorted
	Told    []time.Duration // after it was seen, those who could reach the old one alone had heard of the new one; sorted
	Untold  int             // who had not heard of it within seconds
	Late    int             // writes that the old primary acknowledged later than seenLimit
	Gone    int             // times that a member took another one for dead
}

// String is a line of figures.
func (r LossResult) String() string {
	return fmt.Sprintf("%d %% loss between members, %d crashes: all had elected the new primary p50 %s max %s after the first one; %s; %d split brains: those left behind heard of the new primary p50 %s max %s after it was seen, %d did not (%d writes acknowledged by the old one later than %s); %d times a member was taken for dead",
		r.Percent, len(r.Knew), quantile(r.Knew, 0.5), quantile(r.Knew, 1), r.Cancels, r.Rounds, quantile(r.Told, 0.5), quantile(r.Told, 1), r.Untold, r.Late, seenLimit, r.Gone)
}

// Lossy has members lose what they send each other, and in each round kills the primary, while cancels go on at all members,
// and splits the fleet, with another member on its own each time.
func (l *Lab) Lossy(ctx context.Context, c Loss) (LossResult, error) {
	r := LossResult{Loss: c}
	began := time.Now()
	defer l.Net.HealAll() //nolint:errcheck // only when something else has failed
	for i := range c.Rounds {
		if err := l.lossyCrash(ctx, i, &r); err != nil {
			return r, err
		}
		if err := l.Mend(ctx); err != nil {
			return r, err
		}
		if err := l.lose(c.Percent); err != nil {
			return r, err
		}
		s, err := l.SplitBrain(ctx, Split{One: i % len(l.Members), Ahead: i/len(l.Members)%2 == 1})
		if err != nil {
			return r, err
		}
		r.Told, r.Untold, r.Late = append(r.Told, s.Told...), r.Untold+s.Untold, r.Late+s.Later500
		if err := l.Mend(ctx); err != nil {
			return r, err
		}
	}
	slices.Sort(r.Knew)
	slices.Sort(r.Told)
	for _, m := range l.Members {
		r.Gone += len(m.Lines(began, "fleet: member gone"))
	}
	return r, nil
}

// lose has every member lose some of what it sends to every other.
func (l *Lab) lose(percent int) error {
	for _, a := range l.Members {
		for _, b := range l.Members {
			if a == b {
				continue
			}
			if err := l.Net.Lose(a.Name, b.Name, percent); err != nil {
				return err
			}
		}
	}
	return nil
}

// lossyCrash kills the primary, and promotes its standby, while cancels go on.
func (l *Lab) lossyCrash(ctx context.Context, round int, r *LossResult) error {
	if err := l.lose(r.Percent); err != nil {
		return err
	}
	cancels := make(chan error, 1)
	count := (r.Loss.Cancels + r.Rounds - 1) / r.Rounds
	go func() { // ends when they have been sent, or with ctx
		got, err := l.RandomCancels(ctx, Cancels{Count: count, Seed: r.Seed + uint64(round), Failover: true})
		r.Cancels.add(got)
		cancels <- err
	}()
	knew, err := l.crash(ctx)
	if err = firstOf(err, <-cancels); err == nil {
		r.Knew = append(r.Knew, knew)
	}
	return err
}

// firstOf is the first error that is one.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// crash kills the primary a moment from now, promotes its standby, and measures how long it takes, once a member has elected
// that, until all have.
func (l *Lab) crash(ctx context.Context) (time.Duration, error) {
	const moment = 300 * time.Millisecond
	if err := until(ctx, time.Now().Add(moment)); err != nil {
		return 0, err
	}
	old, next := l.Primary(), l.standbys()[0]
	began := time.Now()
	if err := old.Kill(); err != nil {
		return 0, err
	}
	if err := next.Promote(ctx); err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var first, last time.Time
	err := poll.Until(bounded, 10*time.Millisecond, func() (bool, error) {
		first, last = time.Time{}, time.Time{}
		for _, m := range l.Members {
			lines := m.elections(began, next.Front)
			if len(lines) == 0 {
				return false, nil
			}
			if at := lines[0].At; first.IsZero() || at.Before(first) {
				first = at
			}
			if lines[0].At.After(last) {
				last = lines[0].At
			}
		}
		return true, nil
	})
	if err != nil {
		return 0, fmt.Errorf("not all members have elected the new primary: %w", err)
	}
	return last.Sub(first), nil
}
