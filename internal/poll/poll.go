// Package poll waits for what nobody tells of, by asking again and again, and for times.
package poll

import (
	"context"
	"time"
)

// Until asks at once, and then every so often, until it is so or asking fails, whose error is the result, or ctx ends, whose
// error is it then.
func Until(ctx context.Context, every time.Duration, so func() (bool, error)) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// At waits for a time. It reports false if over is closed before.
func At(due time.Time, over <-chan struct{}) bool {
	d := time.Until(due)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
		return false
	}
}

// For waits for as long as d. Its error is that of ctx, if ctx has ended.
func For(ctx context.Context, d time.Duration) error {
	At(time.Now().Add(d), ctx.Done())
	return ctx.Err()
}

// Each does something at once, and then every so often, until ctx ends.
func Each(ctx context.Context, every time.Duration, do func()) {
	Until(ctx, every, func() (bool, error) { //nolint:errcheck // ctx ends it
		if ctx.Err() == nil {
			do()
		}
		return ctx.Err() != nil, nil
	})
}
