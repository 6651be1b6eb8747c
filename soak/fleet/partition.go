package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fencepost/internal/poll"
)

// PartitionResult is what came of Partition.
type PartitionResult struct {
	Lasted  time.Duration
	Noticed time.Duration // after which each side had given the other up; 0: it did not within Lasted
	Whole   time.Duration // after the network was back: every member knows of every other, and of what happened meanwhile
}

// String is a line of figures.
func (r PartitionResult) String() string {
	return fmt.Sprintf("a partition of %s, %s; whole again %s after its end", r.Lasted.Round(time.Second), r.noticed(), r.Whole.Round(10*time.Millisecond))
}

func (r PartitionResult) noticed() string {
	if r.Noticed == 0 {
		return "not noticed"
	}
	return "noticed after " + r.Noticed.Round(100*time.Millisecond).String()
}

// Partition cuts the first member off from the others for a while, in which FORGET is given on another, and measures how
// long it takes until the fleet is whole and in one generation.
func (l *Lab) Partition(ctx context.Context, lasts time.Duration) (r PartitionResult, err error) {
	first, others := l.Members[0], l.Members[1:]
	began := time.Now()
	for _, m := range others {
		if err := l.Net.Cut(first.Name, m.Name); err != nil {
			return r, err
		}
	}
	defer l.Net.HealAll() //nolint:errcheck // only when something else has failed
	if _, err := others[0].Console(ctx, "FORGET main"); err != nil {
		return r, err
	}
	bounded, cancel := context.WithDeadline(ctx, began.Add(lasts))
	defer cancel()
	err = poll.Until(bounded, 50*time.Millisecond, func() (bool, error) {
		for _, m := range l.Members {
			want := len(others)
			if m == first {
				want = 1
			}
			if alive, err := m.alive(ctx); err != nil || alive != want {
				return false, err
			}
		}
		return true, nil
	})
	if err == nil {
		r.Noticed = time.Since(began)
	}
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-bounded.Done():
	}
	healed := time.Now()
	r.Lasted = healed.Sub(began)
	if err := l.Net.HealAll(); err != nil {
		return r, err
	}
	if err := l.Whole(ctx, l.Primary()); err != nil {
		return r, err
	}
	err = l.generations(ctx, func(all []string) bool { return len(slices.Compact(all)) == 1 })
	r.Whole = time.Since(healed)
	return r, err
}

// generations waits until those of the shard at all members are as they should be.
func (l *Lab) generations(ctx context.Context, ok func([]string) bool) error {
	bounded, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	var all []string
	err := poll.Until(bounded, 20*time.Millisecond, func() (bool, error) {
		all = all[:0]
		for _, m := range l.Members {
			row, err := m.Shard(ctx)
			if err != nil {
				return false, err
			}
			all = append(all, row["generation"])
		}
		return ok(slices.Clone(all)), nil
	})
	if err != nil {
		return fmt.Errorf("the members are in the generations %v: %w", all, err)
	}
	return nil
}

// alive is how many members the member knows to be there, itself included.
func (m *Member) alive(ctx context.Context) (n int, err error) {
	rows, err := m.Fleet(ctx)
	for _, r := range rows {
		if r["state"] == "alive" {
			n++
		}
	}
	return n, err
}

// Forget gives FORGET on one member and measures how long it takes until all are in the next generation.
func (l *Lab) Forget(ctx context.Context, on *Member) (time.Duration, error) {
	row, err := on.Shard(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := on.Console(ctx, "FORGET main"); err != nil {
		return 0, err
	}
	err = l.generations(ctx, func(all []string) bool { return all[0] != row["generation"] && len(slices.Compact(all)) == 1 })
	return time.Since(began), err
}
