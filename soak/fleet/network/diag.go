package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel's answers about one socket (sock_diag(7)): to read all of /proc/net/tcp for each connection takes a while where
// there are thousands.
const (
	byFamily   = 20 // SOCK_DIAG_BY_FAMILY
	requestLen = 16 + 56
	answerLen  = 16 + 72
	inodeAt    = 16 + 68
)

var errNoSocket = errors.New("no such socket")

// diag is the one socket to the kernel; one question at a time.
var diag struct {
	sync.Mutex
	fd  int
	err error
	on  bool
}

// diagnose asks for the inode of the socket with these ports, both on 127.0.0.1; 0 if its process has closed it.
func diagnose(local, remote int) (inode uint32, err error) {
	diag.Lock()
	defer diag.Unlock()
	if !diag.on {
		diag.on = true
		diag.fd, diag.err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	}
	if diag.err != nil {
		return 0, diag.err
	}
	native := binary.NativeEndian
	q := make([]byte, 0, requestLen)
	q = native.AppendUint32(q, requestLen)
	q = native.AppendUint16(q, byFamily)
	q = native.AppendUint16(q, unix.NLM_F_REQUEST)
	q = append(q, make([]byte, 8)...) // number, sender
	q = append(q, unix.AF_INET, unix.IPPROTO_TCP, 0, 0)
	q = native.AppendUint32(q, ^uint32(0)) // in whatever state
	q = binary.BigEndian.AppendUint16(q, uint16(local))
	q = binary.BigEndian.AppendUint16(q, uint16(remote))
	loopback := append([]byte{127, 0, 0, 1}, make([]byte, 12)...)
	q = append(append(q, loopback...), loopback...)
	q = native.AppendUint32(q, 0)                   // on whatever interface
	q = append(q, bytes.Repeat([]byte{0xff}, 8)...) // with whatever cookie
	if err := unix.Sendto(diag.fd, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	a := make([]byte, 4096)
	size, _, err := unix.Recvfrom(diag.fd, a, 0)
	switch {
	case err != nil:
		return 0, err
	case size >= 20 && native.Uint16(a[4:]) == unix.NLMSG_ERROR:
		if n := unix.Errno(-int32(native.Uint32(a[16:]))); n != unix.ENOENT {
			return 0, os.NewSyscallError("sock_diag", n)
		}
		return 0, errNoSocket
	case size < answerLen || native.Uint16(a[4:]) != byFamily:
		return 0, fmt.Errorf("sock_diag: an answer of %d bytes", size)
	}
	return native.Uint32(a[inodeAt:]), nil
}
