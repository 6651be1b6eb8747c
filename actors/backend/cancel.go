package backend

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"fencepost/wire"
)

// errCancelUnanswered says that the server did not close a cancel connection in time.
var errCancelUnanswered = errors.New("the server did not answer the cancel request in time")

// Cancel sends a CancelRequest to the server behind a backend and waits until the server has closed the connection:
// only then has the signal been sent. It blocks for at most limit.
func (PasswordDialer) Cancel(remote net.Addr, key wire.CancelKey, limit time.Duration) error {
	c, err := net.DialTimeout(remote.Network(), remote.String(), limit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write(wire.AppendCancelRequest(nil, key)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return errCancelUnanswered
		}
	}
	return nil
}

// cancelAddr is the address a cancel goes to: the very server the backend is connected to, whatever its name resolves to
// by now.
func cancelAddr(nc net.Conn) net.Addr {
	a := nc.RemoteAddr()
	if u, ok := a.(*net.UnixAddr); ok && u.Name != "" {
		return u
	}
	return a
}

// hostPort is a as far as it is an IP address.
func hostPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
