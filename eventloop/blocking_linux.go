package eventloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The two halves of a system call that is known to block: the processor (P) is given away before the call. The runtime
// keeps both for callers outside of it, with these names and types (go.dev/issue/67401).
//
//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// waitBlocked is epoll_pwait for as long as it takes.
//
// It is not unix.Syscall6, which keeps the processor and trusts the runtime to take it away. In Go 1.26 and 1.27 a
// stop-the-world that begins while a thread enters such a call overlooks it: entersyscall looks for a stop before it
// declares itself in a system call, and the stop looks through the system calls once. Then the thread that would repair
// it, sysmon, sleeps because the world is to be stopped, and everything stands still until the call returns or a Go timer is
// due, at most 60 s (docs/decisions/0009-stop-the-world.md). A processor that is given away first cannot be overlooked:
// the scheduler's lock is held for it.
//
//go:noinline
func waitBlocked(epfd int, batch []unix.EpollEvent, timeout uintptr) (int, syscall.Errno) {
	fd, events, size := uintptr(epfd), uintptr(unsafe.Pointer(&batch[0])), uintptr(len(batch))
	entersyscallblock() // from here to exitsyscall the stack must not grow, and nothing may allocate
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, events, size, timeout, 0, 0)
	exitsyscall()
	return int(n), e
}
