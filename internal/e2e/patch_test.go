package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// patch is an address behind which servers come and go: connections are passed on to the server of the moment. To nobody:
// they are closed at once.
type patch struct {
	addr    string
	mu      sync.Mutex // guards what follows
	to      string
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

func startPatch(t testing.TB, to string) *patch {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &patch{addr: l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	w.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.connect("")
		w.running.Wait()
	})
	return w
}

// connect puts another server behind the address; what was open to the former one is closed.
func (w *patch) connect(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	for c := range w.conns {
		c.Close()
	}
	clear(w.conns)
}

func (w *patch) carry(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	if to == "" {
		return
	}
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	w.mu.Lock()
	if w.to != to {
		w.mu.Unlock()
		return
	}
	w.conns[c], w.conns[s] = true, true
	w.mu.Unlock()
	back := make(chan struct{})
	go func() { // ends with the connections
		defer close(back)
		io.Copy(c, s) //nolint:errcheck // how it ends is the ends' business
		c.Close()
		s.Close()
	}()
	io.Copy(s, c) //nolint:errcheck // likewise
	c.Close()
	s.Close()
	<-back
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	delete(w.conns, s)
}
