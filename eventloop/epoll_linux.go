package eventloop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	defaultKind = Epoll

	// rawWait is how long the loop waits without telling the Go scheduler. While it does, sysmon has nothing to retake
	// and no other thread is woken; it is below the 10 ms after which sysmon would send a preemption signal. A
	// stop-the-world gets through because its signals, one each 100 us, interrupt the wait. What waits longer goes through
	// waitBlocked.
	rawWait = 8 * time.Millisecond

	// Everything is watched for always, edge-triggered, so that nothing has to be changed in the kernel when a
	// connection is paused or has bytes to write.
	watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | 1<<31 // EPOLLET, which unix has as a negative number

	batchSize = 256
)

// epoll is the poller of an Epoll loop.
type epoll struct {
	l     *loop
	fd    int
	table []*conn // by descriptor
	batch [batchSize]unix.EpollEvent
	n, at int // batch[at:n] is still to be worked off

	// wakeMu guards wfd against a wake that comes when the loop has ended and the number may belong to somebody else.
	wakeMu sync.Mutex
	wfd    int // -1 when closed
}

func newEpoll(l *loop) (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wfd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &epoll{l: l, fd: fd, wfd: wfd}
	if err := p.ctl(unix.EPOLL_CTL_ADD, wfd, unix.EPOLLIN, 0); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// ctl changes what is watched. gen is 0 for everything that is not a connection.
func (p *epoll) ctl(op, fd int, ev, gen uint32) error {
	e := unix.EpollEvent{Events: ev, Fd: int32(fd), Pad: int32(gen)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &e))
}

func (p *epoll) start() { runtime.LockOSThread() }

func (p *epoll) pending() bool { return false }

func (p *epoll) wake() {
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.wfd >= 0 {
		one := uint64(1)
		unix.RawSyscall(unix.SYS_WRITE, uintptr(p.wfd), uintptr(unsafe.Pointer(&one)), 8)
	}
}

func (p *epoll) wait(timeout time.Duration) {
	p.n, p.at = 0, 0
	first := timeout
	if timeout < 0 || timeout > rawWait {
		first = rawWait
	}
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.batch[0])), batchSize, millis(first), 0, 0)
	if e == 0 && n > 0 {
		p.n = int(n)
		return
	}
	if first == timeout && e == 0 {
		return
	}
	if timeout > 0 {
		if timeout = p.l.untilTimer(); timeout == 0 {
			return
		}
	}
	if n, e := waitBlocked(p.fd, p.batch[:], millis(timeout)); e == 0 {
		p.n = n
	}
}

// millis rounds up, so that a timer does not make the loop spin through its last millisecond.
func millis(d time.Duration) uintptr {
	if d < 0 {
		return ^uintptr(0)
	}
	return uintptr(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}

func (p *epoll) next() (*conn, events) {
	for p.at < p.n {
		e := &p.batch[p.at]
		p.at++
		fd, gen := int(e.Fd), uint32(e.Pad)
		if gen == 0 {
			p.special(fd)
			continue
		}
		c := p.table[fd]
		if c == nil || c.gen != gen {
			// Closed or handed on earlier in this batch; its number may belong to another connection by now.
			p.l.count.StaleEvents++
			continue
		}
		var ev events
		if e.Events&unix.EPOLLIN != 0 {
			ev |= evReadable
		}
		if e.Events&unix.EPOLLOUT != 0 {
			ev |= evWritable
		}
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			ev |= evHangup
		}
		return c, ev
	}
	return nil, 0
}

// special handles the events of what is not a connection.
func (p *epoll) special(fd int) {
	if fd == p.wfd {
		var n uint64
		unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), 8)
		p.l.count.Wakeups++
		return
	}
	for _, a := range p.l.acceptors {
		if a := a.(*fdAcceptor); a.fd == fd {
			a.ready()
			return
		}
	}
	p.l.count.StaleEvents++
}

func (p *epoll) add(c *conn) error {
	if c.stream != nil {
		return errForeign
	}
	if p.fd < 0 {
		return errStopped
	}
	if grow := int(c.fd) + 1 - len(p.table); grow > 0 {
		p.table = append(p.table, make([]*conn, grow+len(p.table)/4+64)...)
	}
	if err := p.ctl(unix.EPOLL_CTL_ADD, int(c.fd), watched, c.gen); err != nil {
		return err
	}
	p.table[c.fd] = c
	return nil
}

func (p *epoll) remove(c *conn) { p.ctl(unix.EPOLL_CTL_DEL, int(c.fd), 0, 0) }

func (p *epoll) forget(c *conn) { p.table[c.fd] = nil }

func (p *epoll) close() {
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	unix.Close(p.wfd)
	unix.Close(p.fd)
	p.wfd, p.fd = -1, -1
}

// fdSocket takes the descriptor of nc out of Go's netpoller. nc is closed in any case.
func fdSocket(nc net.Conn) (*socket, error) {
	defer nc.Close()
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("eventloop: no descriptor in a %T", nc)
	}
	fd, err := dupFD(sc)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: int32(fd), unix: isUnix(nc.LocalAddr()), remote: addrPort(nc.RemoteAddr())}
	// Go's sockets are non-blocking already unless somebody asked for their File.
	if err := unix.SetNonblock(fd, true); err != nil {
		s.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	if !s.unix {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			s.Close()
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	return s, nil
}

func dupFD(sc syscall.Conn) (fd int, err error) {
	rc, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = rc.Control(func(old uintptr) {
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, os.NewSyscallError("fcntl", dupErr)); err != nil {
		return -1, err
	}
	return fd, nil
}
