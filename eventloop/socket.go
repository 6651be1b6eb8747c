package eventloop

import (
	"net"
	"net/netip"
)

// socket is a connected socket of no loop. It is used by one goroutine at a time.
type socket struct {
	stream *stream // of a Portable loop; nil: fd
	fd     int32
	taken  bool // adopted or closed
	unix   bool
	remote netip.AddrPort
}

var _ Socket = (*socket)(nil)

func (s *socket) RemoteAddr() netip.AddrPort { return s.remote }

func (s *socket) LocalAddr() netip.AddrPort {
	if s.taken {
		return netip.AddrPort{}
	}
	return localAddr(s.fd, s.stream)
}

func (s *socket) IsUnix() bool { return s.unix }

func (s *socket) Close() error {
	if s.taken {
		return nil
	}
	s.taken = true
	if s.stream != nil {
		s.stream.close()
		return nil
	}
	return closeFD(s.fd)
}

func localAddr(fd int32, s *stream) netip.AddrPort {
	if s != nil {
		return addrPort(s.nc.LocalAddr())
	}
	return fdLocalAddr(fd)
}

// addrPort is the address of a TCP socket, the zero AddrPort of any other.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func isUnix(a net.Addr) bool { return a != nil && a.Network() == "unix" }
