package relay

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// filling is what keeps the queue of a listening socket full, so that the kernel drops the packets that would open another
// connection, as a network does that is down: connections of our own that nobody accepts.
type filling struct {
	conns []net.Conn
	addrs map[string]bool // local addresses of conns
}

// Bounds on filling a queue. A queue of length 0 takes one connection.
const (
	fillPatience = 30 * time.Millisecond // a connect on the loopback interface that takes longer is not answered
	fillMost     = 64
)

// fill makes the queue of the listener as short as can be and fills it. Nobody may accept from it meanwhile. The caller
// ends the filling.
func fill(ln *net.TCPListener) (*filling, error) {
	f := &filling{addrs: map[string]bool{}}
	if err := shorten(ln, 0); err != nil {
		return nil, err
	}
	for range fillMost {
		c, err := net.DialTimeout("tcp", ln.Addr().String(), fillPatience)
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			return f, nil
		}
		if err != nil {
			f.end()
			return nil, fmt.Errorf("relay: fill the queue of %s: %w", ln.Addr(), err)
		}
		f.conns = append(f.conns, c)
		f.addrs[c.LocalAddr().String()] = true
	}
	f.end()
	return nil, fmt.Errorf("relay: the queue of %s takes more than %d connections", ln.Addr(), fillMost)
}

// widen lets the queue take connections again, those that keep asking among them.
func (f *filling) widen(ln *net.TCPListener) { shorten(ln, unix.SOMAXCONN) } //nolint:errcheck // it was possible before

// has reports whether an accepted connection is the other end of one of ours.
func (f *filling) has(c net.Conn) bool { return f != nil && f.addrs[c.RemoteAddr().String()] }

func (f *filling) end() {
	for _, c := range f.conns {
		c.Close()
	}
}

// shorten sets the length of a listening socket's queue, which listen(2) does also for one that listens already.
func shorten(ln *net.TCPListener, n int) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), n) })
	return errors.Join(err, failed)
}
