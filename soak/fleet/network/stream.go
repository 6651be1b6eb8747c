package network

import (
	"errors"
	"io"
	"net"
	"time"
)

// accept takes connections for a port until that is closed.
func (n *Network) accept(p *port) {
	for {
		c, err := p.tcp.Accept()
		if err != nil {
			return
		}
		n.running.Go(func() { n.carry(c, p) })
	}
}

// keep notes a connection, so that Close can end it; false once the network has ended.
func (n *Network) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *Network) drop(c net.Conn) {
	c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// dialLimit bounds a connect to what is behind a port.
const dialLimit = 5 * time.Second

// carry is one connection from its beginning to its end.
func (n *Network) carry(client net.Conn, p *port) {
	defer n.drop(client)
	if !n.keep(client) {
		return
	}
	from := n.owner(client)
	cut := n.gateOf(from, p.name) != nil
	switch {
	case from == "", from == orphan && n.cutOff(p.name), !n.passes(from, p.name):
		return
	case cut && p.udp != nil: // or a fleet would be whole sooner than on a real network
		return
	}
	server, err := net.DialTimeout("tcp4", p.target, dialLimit)
	if err != nil {
		if t, ok := client.(*net.TCPConn); ok {
			t.SetLinger(0) //nolint:errcheck // else it ends in another way
		}
		return
	}
	defer n.drop(server)
	if !n.keep(server) {
		return
	}
	done := make(chan struct{})
	go func() { // ends with the connection
		defer close(done)
		n.copy(server, client, from, p.name)
	}()
	n.copy(client, server, p.name, from)
	<-done
}

// copy passes bytes on until one end is over, and then that.
func (n *Network) copy(dst, src net.Conn, from, to string) {
	buf := make([]byte, 16<<10)
	for {
		size, err := src.Read(buf)
		if !n.passes(from, to) {
			break
		}
		if size > 0 {
			if _, werr := dst.Write(buf[:size]); werr != nil {
				break
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if t, ok := dst.(*net.TCPConn); ok && t.CloseWrite() == nil {
				return
			}
		case err == nil:
			continue
		}
		break
	}
	// A reset, or the end of whoever does not read any more: both ends are over.
	for _, c := range []net.Conn{dst, src} {
		c.Close()
	}
}
