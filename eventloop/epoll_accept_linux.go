package eventloop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// acceptBatch is how many connections one listener may bring per turn.
const acceptBatch = 32

// fdAcceptor is a listening socket watched level-triggered: what a turn leaves is announced again.
type fdAcceptor struct {
	p      *epoll
	fd     int // -1 when closed
	accept func(Socket)
	failed func(error)
	rest   Timer
	path   string // of a unix socket, to be removed at the end if it is still the file of inode
	inode  os.FileInfo
	from   unix.RawSockaddrAny
}

func (p *epoll) listen(nl net.Listener, accept func(Socket), failed func(error)) (Acceptor, error) {
	sc, ok := nl.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("eventloop: no descriptor in a %T", nl)
	}
	fd, err := dupFD(sc)
	if err != nil {
		return nil, err
	}
	a := &fdAcceptor{p: p, fd: fd, accept: accept, failed: failed}
	a.rest.Fire = a.resume
	if ul, ok := nl.(*net.UnixListener); ok {
		a.path = ul.Addr().String()
		a.inode, _ = os.Lstat(a.path)
		ul.SetUnlinkOnClose(false) // the original's close comes now, ours at the end
	} else if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil { // accepted sockets inherit it
		err = os.NewSyscallError("setsockopt", err)
	}
	err = errors.Join(err, unix.SetNonblock(fd, true))
	if err == nil {
		err = p.ctl(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, 0)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	nl.Close()
	return a, nil
}

// ready accepts what waits, within bounds.
func (a *fdAcceptor) ready() {
	for range acceptBatch {
		if a.fd < 0 || a.rest.Armed() {
			return
		}
		size := uint32(unix.SizeofSockaddrAny)
		fd, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(a.fd), uintptr(unsafe.Pointer(&a.from)), uintptr(unsafe.Pointer(&size)),
			unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch e {
		case 0:
			addr, isUnix := acceptedAddr(&a.from)
			a.p.l.accepted(&socket{fd: int32(fd), unix: isUnix, remote: addr}, a.accept)
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
			unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
			// The connection was lost before we had it (accept(2)); the next one may be well.
		default:
			a.pause(os.NewSyscallError("accept4", e))
		}
	}
}

// pause stops watching for AcceptPause: the listener stays ready as long as nobody accepts.
func (a *fdAcceptor) pause(err error) {
	a.p.ctl(unix.EPOLL_CTL_MOD, a.fd, 0, 0)
	a.p.l.SetTimer(&a.rest, AcceptPause)
	a.p.l.acceptFailed(err, a.failed)
}

func (a *fdAcceptor) resume() {
	if a.fd >= 0 {
		a.p.ctl(unix.EPOLL_CTL_MOD, a.fd, unix.EPOLLIN, 0)
	}
}

// Close stops accepting.
func (a *fdAcceptor) Close() {
	if a.fd < 0 {
		return
	}
	a.p.l.StopTimer(&a.rest)
	a.p.l.dropAcceptor(a)
	a.p.ctl(unix.EPOLL_CTL_DEL, a.fd, 0, 0)
	unix.Close(a.fd)
	a.fd = -1
	if a.inode == nil {
		return
	}
	if now, err := os.Lstat(a.path); err == nil && os.SameFile(a.inode, now) {
		os.Remove(a.path)
	}
}
