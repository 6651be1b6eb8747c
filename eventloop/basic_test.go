package eventloop

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// kinds runs a test with each implementation that exists here.
func kinds(t *testing.T, f func(t *testing.T, kind Kind)) {
	all := []Kind{Portable}
	if defaultKind == Epoll {
		all = append(all, Epoll)
	}
	for _, k := range all {
		t.Run(string(k), func(t *testing.T) { f(t, k) })
	}
}

func newGroup(t testing.TB, opt Options) *Group {
	t.Helper()
	processors := runtime.GOMAXPROCS(0)
	g, err := NewGroup(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Stop()
		runtime.GOMAXPROCS(processors)
	})
	return g
}

// on runs f on the loop and waits for it.
func on(l Loop, f func()) {
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); f() }) {
		panic("the loop has stopped")
	}
	<-done
}

// hooks is a Handler of functions; a nil one does nothing.
type hooks struct {
	data    func(c Conn, b []byte)
	drained func(c Conn)
	closed  func(c Conn, err error)
}

func (h *hooks) OnData(c Conn, b []byte) {
	if h.data != nil {
		h.data(c, b)
	}
}

func (h *hooks) OnDrained(c Conn) {
	if h.drained != nil {
		h.drained(c)
	}
}

func (h *hooks) OnClosed(c Conn, err error) {
	if h.closed != nil {
		h.closed(c, err)
	}
	c.Close()
}

// tcpPair is a connected pair of sockets over loopback.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	x, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	y, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x.(*net.TCPConn), y.(*net.TCPConn)
}

func TestEcho(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind})
		l := g.Loop(0)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		h := &hooks{
			data:   func(c Conn, b []byte) { c.Write(b) },
			closed: func(c Conn, err error) { closed <- err },
		}
		addr := ln.Addr().String()
		on(l, func() {
			_, err = l.Listen(ln, func(s Socket) {
				if _, err := l.Adopt(s, h, nil); err != nil {
					t.Error(err)
				}
			}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, word := range []string{"select", "1"} {
			nc.Write([]byte(word))
			b := make([]byte, len(word))
			if _, err := io.ReadFull(nc, b); err != nil || string(b) != word {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		nc.Close()
		if err := <-closed; err != io.EOF {
			t.Fatalf("closed with %v", err)
		}
	})
}
