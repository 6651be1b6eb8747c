package standstill

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep: CLOCK_BOOTTIME goes on while the machine sleeps, CLOCK_MONOTONIC, which Go uses, does not.
func asleep() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0 // a kernel or sandbox without these clocks: sleep is not seen
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
