package raw

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Meter counts what goes over the connections of a run, by looking at message headers as they pass. The zero value is
// ready; all fields may be read at any time.
type Meter struct {
	Open  atomic.Int64 // connections that are open now
	Dials atomic.Int64 // connections that were opened
	// Requests are Query, Sync and FunctionCall messages sent: each is owed one ReadyForQuery.
	Requests atomic.Int64
	Ready    atomic.Int64 // ReadyForQuery received, those that end a login left out
	Logins   atomic.Int64 // logins that succeeded
	Read     atomic.Int64 // bytes
	Written  atomic.Int64 // bytes

	mu    sync.Mutex // guards conns
	conns map[*metered]struct{}
}

// Dial connects and counts what goes over the connection if it speaks the protocol from the startup packet on.
func (m *Meter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return m.dial(ctx, network, addr, true)
}

// DialUncounted connects for traffic that is no protocol; only the connection itself is counted.
func (m *Meter) DialUncounted(ctx context.Context, network, addr string) (net.Conn, error) {
	return m.dial(ctx, network, addr, false)
}

func (m *Meter) dial(ctx context.Context, network, addr string, protocol bool) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &metered{TCPConn: nc.(*net.TCPConn), m: m, protocol: protocol, startup: true}
	m.Dials.Add(1)
	m.Open.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conns == nil {
		m.conns = map[*metered]struct{}{}
	}
	m.conns[c] = struct{}{}
	return c, nil
}

// CloseAll closes every connection that is open, for the end of a run whose clients do not come back by themselves.
func (m *Meter) CloseAll() int {
	m.mu.Lock()
	all := make([]*metered, 0, len(m.conns))
	for c := range m.conns {
		all = append(all, c)
	}
	m.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
	return len(all)
}

// metered is a connection that counts.
type metered struct {
	*net.TCPConn
	m        *Meter
	protocol bool
	closed   atomic.Bool
	startup  bool // the startup packet, which has no type, is still to be written
	loggedIn bool
	in, out  framer
	pace     atomic.Int64 // bytes per second that are read, 0: as they come
	debt     int64        // bytes read since it rested
}

// paceSteps is how often per second a connection with a pace rests.
const paceSteps = 50

// Read counts ReadyForQuery.
func (c *metered) Read(p []byte) (int, error) {
	pace := c.pace.Load()
	if pace > 0 {
		p = p[:min(len(p), int(pace/paceSteps)+1)]
	}
	n, err := c.TCPConn.Read(p)
	if c.debt += int64(n); pace == 0 {
		c.debt = 0
	} else if c.debt >= pace/paceSteps {
		time.Sleep(time.Duration(c.debt) * time.Second / time.Duration(pace))
		c.debt = 0
	}
	c.m.Read.Add(int64(n))
	if c.protocol {
		c.in.scan(p[:n], func(typ byte) {
			switch {
			case typ != 'Z':
			case c.loggedIn:
				c.m.Ready.Add(1)
			default:
				c.loggedIn = true
				c.m.Logins.Add(1)
			}
		})
	}
	return n, err
}

// Write counts requests, before they are sent: what is counted as answered was counted as asked.
func (c *metered) Write(p []byte) (int, error) {
	if c.protocol {
		b := p
		if c.startup && len(b) >= 4 {
			c.startup = false
			b = b[min(int(binary.BigEndian.Uint32(b)), len(b)):]
		}
		c.out.scan(b, func(typ byte) {
			if typ == 'Q' || typ == 'S' || typ == 'F' {
				c.m.Requests.Add(1)
			}
		})
	}
	n, err := c.TCPConn.Write(p)
	c.m.Written.Add(int64(n))
	return n, err
}

// Close closes once.
func (c *metered) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	err := c.TCPConn.Close()
	c.m.Open.Add(-1)
	c.m.mu.Lock()
	delete(c.m.conns, c)
	c.m.mu.Unlock()
	return err
}

// reset closes with a reset instead of an orderly end.
func (c *metered) reset() error {
	if err := c.SetLinger(0); err != nil {
		return err
	}
	return c.Close()
}

// framer follows message boundaries.
type framer struct {
	head [5]byte
	have int
	skip int // bytes of the body still to come
}

func (f *framer) atBoundary() bool { return f.have == 0 && f.skip == 0 }

func (f *framer) scan(p []byte, message func(typ byte)) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have == len(f.head) {
			message(f.head[0])
			f.have = 0
			f.skip = max(int(binary.BigEndian.Uint32(f.head[1:]))-4, 0)
		}
	}
}

// dialLimit bounds connecting and logging in when the caller's context does not.
const dialLimit = time.Minute
