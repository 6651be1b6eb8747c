package e2e

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/wire"
)

// fakeServer is a listener that speaks as much of a server's side as a test wants, and then something else.
type fakeServer struct {
	addr    string
	logins  atomic.Int64 // startup packets seen
	cancels atomic.Int64
	mu      sync.Mutex
	conns   map[net.Conn]bool
}

// fakeConn is one connection of a fakeServer.
type fakeConn struct {
	net.Conn
	server *fakeServer
}

// errLeave ends a script: the connection is closed.
var errLeave = errors.New("leave")

// startFake listens; each connection that sends a startup packet is handled by script on a goroutine that ends with the
// connection. Cancel requests are counted and their connections closed.
func startFake(t testing.TB, script func(c *fakeConn) error) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[nc] = true
			f.mu.Unlock()
			running.Go(func() {
				defer nc.Close()
				c := &fakeConn{nc, f}
				if c.greeting() == nil {
					script(c) //nolint:errcheck // how it ends is the script's business
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		for nc := range f.conns {
			nc.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	return f
}

// greeting reads the startup packet, refusing encryption.
func (c *fakeConn) greeting() error {
	for {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		rest := make([]byte, binary.BigEndian.Uint32(head[:])-8)
		if _, err := io.ReadFull(c, rest); err != nil {
			return err
		}
		switch binary.BigEndian.Uint32(head[4:]) {
		case 80877103, 80877104:
			if err := c.put([]byte("N")); err != nil {
				return err
			}
		case 80877102:
			c.server.cancels.Add(1)
			return errLeave
		default:
			c.server.logins.Add(1)
			return nil
		}
	}
}

func (c *fakeConn) put(p []byte) error {
	_, err := c.Write(p)
	return err
}

var (
	authOK   = wire.AppendAuthenticationOk(nil)
	ready    = wire.AppendReadyForQuery(nil, wire.TxIdle)
	complete = wire.AppendCommandComplete(nil, "SELECT 1")
)

// welcome logs the client in, and answers the Sync with which it makes sure.
func (c *fakeConn) welcome() error {
	p := append([]byte(nil), authOK...)
	for _, s := range [][2]string{{"server_version", "18.0"}, {"client_encoding", "UTF8"}, {"DateStyle", "ISO, MDY"}, {"TimeZone", "UTC"},
		{"standard_conforming_strings", "on"}, {"IntervalStyle", "postgres"}, {"application_name", ""}} {
		p = wire.AppendParameterStatus(p, s[0], s[1])
	}
	p = wire.AppendBackendKeyData(p, 4711, []byte("key!"))
	return c.put(append(p, ready...))
}

// serve answers until the connection ends: Sync with ReadyForQuery, and whatever is asked with answer.
func (c *fakeConn) serve(answer func(typ byte, body []byte) error) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		var err error
		switch head[0] {
		case wire.MsgSync:
			err = c.put(ready)
		case wire.MsgTerminate:
			return errLeave
		default:
			err = answer(head[0], body)
		}
		if err != nil {
			return err
		}
	}
}

// always answers every query with p, behind a whole login.
func always(p ...[]byte) func(c *fakeConn) error {
	return func(c *fakeConn) error {
		if err := c.welcome(); err != nil {
			return err
		}
		return c.serve(func(byte, []byte) error {
			for _, b := range p {
				if b == nil {
					return errLeave
				}
				if err := c.put(b); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// silence keeps the connection and says nothing.
func (c *fakeConn) silence() error {
	_, err := io.Copy(io.Discard, c)
	return err
}

// after is put with a pause before it.
func (c *fakeConn) after(d time.Duration, p []byte) error {
	<-time.After(d)
	return c.put(p)
}
