package eventloop

import (
	"net"
	"testing"
)

// Pitfall 6: an event for a connection that was closed earlier in the same batch must not reach the connection that got
// its descriptor's number.
func TestStaleEvents(t *testing.T) {
	g := newGroup(t, Options{Kind: Epoll})
	l := g.Loop(0).(*loop)
	r := &rig{Group: g, t: t, l: l, kind: Epoll, pair: func(t testing.TB) (net.Conn, net.Conn) { a, b := tcpPair(t); return a, b }}
	const n = 40
	var conns [n]*conn
	var far [n]net.Conn
	successors := make(chan *conn, n)
	spoiled := make(chan string, n)
	// Whoever is called first closes all others and opens new connections, which get the numbers that became free.
	first := true
	for i := range n {
		conns[i], far[i] = r.connect(&hooks{data: func(c Conn, _ []byte) {
			if !first {
				spoiled <- "an event reached a closed connection"
				return
			}
			first = false
			for _, other := range conns {
				if Conn(other) != c {
					other.Close()
				}
			}
			for range n - 1 {
				near, _ := tcpPair(t)
				s, err := g.Socket(near)
				if err != nil {
					t.Error(err)
					return
				}
				c, err := l.Adopt(s, &hooks{
					data:   func(_ Conn, b []byte) { spoiled <- "data from nowhere" },
					closed: func(_ Conn, err error) { spoiled <- "closed for another" },
				}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				successors <- c.(*conn)
			}
		}}, nil)
	}
	release := make(chan struct{})
	l.Post(func() { <-release })
	for i := range n { // all in one batch
		if i%2 == 0 {
			r.write(far[i], []byte("x"))
		} else {
			far[i].(*net.TCPConn).SetLinger(0)
			far[i].Close()
		}
	}
	close(release)
	reused := 0
	numbers := map[int32]bool{}
	for _, c := range conns {
		numbers[c.fd] = true
	}
	for range n - 1 {
		if c := get(t, successors); numbers[c.fd] {
			reused++
		}
	}
	on(l, func() {})
	on(l, func() {
		if l.count.StaleEvents == 0 {
			t.Error("there was no stale event")
		}
	})
	if reused == 0 {
		t.Fatal("no number was used again")
	}
	if len(spoiled) > 0 {
		t.Fatal(<-spoiled)
	}
}
