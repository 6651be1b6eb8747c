package eventloop

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls on descriptors. They cannot block, so they do without the scheduler's bookkeeping (RawSyscall).

// fdRecv reads; 0 and nil is the end, errAgain says that nothing is there.
func fdRecv(fd int32, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, errAgain
		case unix.EINTR:
		default:
			return 0, os.NewSyscallError("recv", e)
		}
	}
}

// fdSend writes what the kernel takes now.
func fdSend(fd int32, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, os.NewSyscallError("send", e)
		}
	}
}

// fdQuiet sees a peer's close also behind bytes that were not read yet.
func fdQuiet(fd int32) bool {
	p := unix.PollFd{Fd: fd, Events: unix.POLLIN | unix.POLLRDHUP}
	var zero unix.Timespec
	_, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return e != 0 || p.Revents == 0
}

// fdFailure is the socket's pending error, nil if there is none or it cannot be asked for.
func fdFailure(fd int32) error {
	if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && n != 0 {
		return os.NewSyscallError("recv", syscall.Errno(n))
	}
	return nil
}

func closeFD(fd int32) error {
	// The descriptor is gone also when close was interrupted.
	if err := unix.Close(int(fd)); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("close", err)
	}
	return nil
}

func fdLocalAddr(fd int32) netip.AddrPort {
	sa, err := unix.Getsockname(int(fd))
	if err != nil {
		return netip.AddrPort{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(addr6(sa.Addr, sa.ZoneId), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func addr6(ip [16]byte, scope uint32) netip.Addr {
	a := netip.AddrFrom16(ip).Unmap()
	if scope != 0 && a.Is6() {
		a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return a
}

// accepted is the peer's address as the kernel filled it in.
func acceptedAddr(sa *unix.RawSockaddrAny) (addr netip.AddrPort, isUnix bool) {
	port := func(p uint16) uint16 {
		b := (*[2]byte)(unsafe.Pointer(&p))
		return uint16(b[0])<<8 | uint16(b[1])
	}
	switch sa.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(in.Port)), false
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(addr6(in.Addr, in.Scope_id), port(in.Port)), false
	}
	return netip.AddrPort{}, true
}
