package eventloop

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A stop-the-world is not held up by a loop that is just about to block. With unix.Syscall6 in waitBlocked this test meets a
// stop that lasts until the next Go timer, which is the one below. No other timer must be there: each would end it.
func TestStopTheWorldMeetsALoopThatBlocks(t *testing.T) {
	const stops, late = 150_000, 5 * time.Second
	const enough = 10 * time.Second                                             // where other programs hold the processors, fewer stops have to do
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // each of the two needs a processor
	rescue := time.AfterFunc(2*late, func() {})
	defer rescue.Stop()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	wake, entering := eventfd(t, unix.EFD_NONBLOCK), eventfd(t, unix.EFD_NONBLOCK)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var over atomic.Bool
	go func() { // A signal ends a wait too: then there is one word more that it is about to block, and one stop and wake more.
		defer close(ended)
		runtime.LockOSThread()
		var batch [1]unix.EpollEvent
		for !over.Load() {
			count(unix.SYS_WRITE, entering, 1)
			if n, _ := waitBlocked(epfd, batch[:], millis(-1)); n == 1 {
				count(unix.SYS_READ, wake, 0)
			}
		}
	}()
	var stats runtime.MemStats
	moment, start := uint32(1), time.Now()
	for range stops {
		if time.Since(start) > enough {
			break
		}
		for count(unix.SYS_READ, entering, 0) == 0 { // asked, not waited for: a collection has to be able to stop this goroutine
		}
		// The goroutine above is about to block.
		moment = moment*1664525 + 1013904223
		for range moment >> 16 % 3000 {
		}
		began := time.Now()
		runtime.ReadMemStats(&stats) // stops the world
		took := time.Since(began)
		if took > late {
			t.Errorf("the world took %v to stop", took)
			break
		}
		if took > time.Millisecond { // seldom, so that the timer is left alone
			rescue.Reset(2 * late)
		}
		count(unix.SYS_WRITE, wake, 1)
	}
	over.Store(true)
	count(unix.SYS_WRITE, wake, 1)
	<-ended
}

// A stop-the-world gets through to a loop that waits without telling the scheduler.
func TestStopTheWorldMeetsTheRawWait(t *testing.T) {
	g := newGroup(t, Options{Kind: Epoll, Loops: 2})
	var stats runtime.MemStats
	for range 200 {
		for i := range 2 {
			on(g.Loop(i), func() {}) // it waits raw from now on
		}
		began := time.Now()
		runtime.ReadMemStats(&stats)
		if took := time.Since(began); took > time.Second {
			t.Fatalf("the world took %v to stop", took)
		}
	}
}

func eventfd(t *testing.T, flags int) int {
	t.Helper()
	fd, err := unix.Eventfd(0, flags|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// count reads or writes an eventfd without telling the scheduler.
func count(call uintptr, fd int, n uint64) uint64 {
	unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&n)), 8)
	return n
}
