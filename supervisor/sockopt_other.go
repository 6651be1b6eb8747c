//go:build !linux

package supervisor

import (
	"net"
	"syscall"

	"fencepost/config"
)

func control(syscall.RawConn, *config.Fencepost) error { return nil }

func tune(f *config.Fencepost) func(net.Conn) {
	return func(c net.Conn) {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetKeepAlive(f.TCPKeepalive)
		}
	}
}

func setBacklog(net.Listener, int) error { return nil }
