package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fencepost/internal/poll"
)

// OneWay says how the first member is heard and does not hear, or the reverse.
type OneWay struct {
	Deaf  bool          // it is heard but does not hear; else it hears and is not heard
	Lasts time.Duration // 0: 30 s
	After time.Duration // when the failover comes
}

// OneWayResult is what came of it.
type OneWayResult struct {
	OneWay
	Split SplitResult
	Alive []string      // how many members each knew to be there when the failover came
	Whole time.Duration // after the network was back: every member knows of every other
}

// String is a line of figures.
func (r OneWayResult) String() string {
	how := "hears and is not heard"
	if r.Deaf {
		how = "is heard and does not hear"
	}
	return fmt.Sprintf("m1 %s for %s; failover after %s, when members knew of %s; %s; whole again after %s", how, r.Lasts, r.After.Round(time.Millisecond), strings.Join(r.Alive, ", "), r.Split,
		r.Whole.Round(10*time.Millisecond))
}

// OneWay has everything lost that goes one way between the first member and the others, and a failover meanwhile that only
// those see who are still heard: the others are left with the old primary, as in SplitBrain, and with what they hear.
func (l *Lab) OneWay(ctx context.Context, o OneWay) (OneWayResult, error) {
	if o.Lasts == 0 {
		o.Lasts = 30 * time.Second
	}
	r := OneWayResult{OneWay: o}
	s := Split{Ahead: o.Deaf}
	behind, ahead := l.sides(s)
	began := time.Now()
	defer l.Net.HealAll() //nolint:errcheck // only when something else has failed
	for _, b := range behind {
		for _, a := range ahead {
			if err := l.Net.CutWay(b.Name, a.Name); err != nil {
				return r, err
			}
		}
	}
	if err := until(ctx, began.Add(o.After)); err != nil {
		return r, err
	}
	for _, m := range l.Members {
		alive, err := m.alive(ctx)
		if err != nil {
			return r, err
		}
		r.Alive = append(r.Alive, fmt.Sprintf("%s %d", m.Name, alive))
	}
	var err error
	if r.Split, err = l.SplitBrain(ctx, s); err != nil {
		return r, err
	}
	if err := until(ctx, began.Add(o.Lasts)); err != nil {
		return r, err
	}
	healed := time.Now()
	if err := l.Net.HealAll(); err != nil {
		return r, err
	}
	err = l.Whole(ctx, l.Primary())
	r.Whole = time.Since(healed)
	return r, err
}

// until waits for a time.
func until(ctx context.Context, at time.Time) error {
	return poll.For(ctx, time.Until(at))
}
