//go:build !linux

package eventloop

import (
	"errors"
	"net"
	"net/netip"
)

// There are no Epoll loops here; nothing below is reached by a Portable loop.

const defaultKind = Portable

var errNoEpoll = errors.New("eventloop: epoll loops exist on Linux only")

func newEpoll(*loop) (poller, error)          { return nil, errNoEpoll }
func fdSocket(nc net.Conn) (*socket, error)   { nc.Close(); return nil, errNoEpoll }
func fdRecv(int32, []byte) (int, error)       { return 0, errNoEpoll }
func fdSend(int32, []byte) (int, error)       { return 0, errNoEpoll }
func fdQuiet(int32) bool                      { return false }
func fdFailure(int32) error                   { return errNoEpoll }
func closeFD(int32) error                     { return errNoEpoll }
func fdLocalAddr(int32) (none netip.AddrPort) { return none }
