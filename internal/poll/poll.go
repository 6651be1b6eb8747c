// Package poll waits for what nobody tells of, by asking again and again.
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
