package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		after := func(n int, err error) func() (bool, error) {
			asked, began = 0, time.Now()
			return func() (bool, error) {
				asked++
				return asked == n && err == nil, err
			}
		}
		if err := Until(t.Context(), time.Second, after(3, nil)); err != nil || asked != 3 || time.Since(began) != 2*time.Second {
			t.Errorf("asked %d times in %v, %v", asked, time.Since(began), err)
		}
		broken := errors.New("broken")
		if err := Until(t.Context(), time.Second, after(3, broken)); err != broken || asked != 1 {
			t.Errorf("asked %d times, %v", asked, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := Until(ctx, time.Second, after(9, nil)); err != context.DeadlineExceeded || asked != 2 {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}

func TestAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, began := make(chan struct{}), time.Now()
		if !At(began.Add(-time.Second), over) || !At(began.Add(time.Minute), over) || time.Since(began) != time.Minute {
			t.Errorf("waited %s", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { close(over) })
		if At(time.Now().Add(time.Minute), over) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("over, waited %s", time.Since(began))
		}
	})
}
