package supervisor

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fencepost/config"
)

// control sets the options of a listening socket; on Linux accepted sockets inherit those of TCP.
func control(c syscall.RawConn, f *config.Fencepost) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = setOptions(int(fd), f, true) }); cerr != nil {
		return cerr
	}
	return err
}

func setOptions(fd int, f *config.Fencepost, listening bool) error {
	set := func(on bool, level, name, value int) error {
		if !on {
			return nil
		}
		return unix.SetsockoptInt(fd, level, name, value)
	}
	for _, o := range []struct {
		on                 bool
		level, name, value int
	}{
		{listening && f.SoReuseport, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		{f.TCPKeepalive, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{f.TCPKeepalive && f.TCPKeepIdle > 0, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(f.TCPKeepIdle / time.Second)},
		{f.TCPKeepalive && f.TCPKeepIntvl > 0, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(f.TCPKeepIntvl / time.Second)},
		{f.TCPKeepalive && f.TCPKeepCnt > 0, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, f.TCPKeepCnt},
		{f.TCPUserTimeout > 0, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(f.TCPUserTimeout / time.Millisecond)},
	} {
		if err := set(o.on, o.level, o.name, o.value); err != nil {
			return err
		}
	}
	return nil
}

// tune sets the same options on a connection to a server.
func tune(f *config.Fencepost) func(net.Conn) {
	return func(c net.Conn) {
		t, ok := c.(*net.TCPConn)
		if !ok {
			return
		}
		if rc, err := t.SyscallConn(); err == nil {
			// Without its options the connection serves all the same; one that is closed already is found out by who uses it.
			_ = rc.Control(func(fd uintptr) { _ = setOptions(int(fd), f, false) })
		}
	}
}

// setBacklog repeats listen with the configured backlog: package net always asks for the system's.
func setBacklog(ln net.Listener, backlog int) error {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { err = unix.Listen(int(fd), backlog) }); cerr != nil {
		return cerr
	}
	return err
}
