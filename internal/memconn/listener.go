package memconn

import (
	"fmt"
	"net"
	"sync"
)

// Listener is an in-memory net.Listener.
type Listener struct {
	name     addr
	capacity int

	mu      sync.Mutex
	changed sync.Cond
	backlog []*Conn
	dialed  int
	closed  bool
}

var _ net.Listener = (*Listener)(nil)

// Listen makes a listener whose connections buffer up to capacity bytes per direction. name is for addresses only.
func Listen(name string, capacity int) *Listener {
	l := &Listener{name: addr(name), capacity: capacity}
	l.changed.L = &l.mu
	return l
}

// Dial connects. It does not wait for Accept. It fails with net.ErrClosed when the listener is closed.
func (l *Listener) Dial() (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	l.dialed++
	client, server := pipe(l.capacity, addr(fmt.Sprintf("%s-client-%d", l.name, l.dialed)), l.name)
	l.backlog = append(l.backlog, server)
	l.changed.Broadcast()
	return client, nil
}

// Accept waits for a Dial. It fails with net.ErrClosed when the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

// Close ends Accept and closes the connections that nobody has accepted.
func (l *Listener) Close() error {
	l.mu.Lock()
	backlog := l.backlog
	l.closed, l.backlog = true, nil
	l.changed.Broadcast()
	l.mu.Unlock()
	for _, c := range backlog {
		c.Close()
	}
	return nil
}

// Addr is the listener's name.
func (l *Listener) Addr() net.Addr { return l.name }
