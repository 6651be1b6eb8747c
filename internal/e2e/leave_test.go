package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A departure is a way for a client to go.
type departure struct {
	name string
	go_  func(*raw)
}

var departures = []departure{{"terminate", (*raw).close}, {"fin", (*raw).fin}, {"rst", (*raw).rst}}

// close says goodbye.
func (c *raw) close() {
	c.send(&pgproto3.Terminate{}) //nolint:errcheck // it goes in any case
	c.nc.Close()
}

// fin closes the sending half without a word; what still arrives is left unread.
func (c *raw) fin() { c.nc.(*net.TCPConn).CloseWrite() }

// rst cuts the connection: the kernel tells the other side that nothing was read and nobody is there.
func (c *raw) rst() {
	c.nc.(*net.TCPConn).SetLinger(0)
	c.nc.Close()
}

// cancel asks for the cancel of what the session runs, with tail appended to the packet, and waits for the close.
func (c *raw) cancel(addr string, tail ...byte) error {
	return cancelKey(addr, c.pid, c.secret, tail...)
}

func cancelKey(addr string, pid uint32, secret []byte, tail ...byte) error {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer nc.Close()
	p := binary.BigEndian.AppendUint32(nil, uint32(12+len(secret)))
	p = binary.BigEndian.AppendUint32(p, 80877102)
	p = binary.BigEndian.AppendUint32(p, pid)
	p = append(append(p, secret...), tail...)
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := nc.Write(p); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, nc); err != nil && !gone(err) {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}
