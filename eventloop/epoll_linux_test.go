package eventloop

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
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
				c.Pause() // a hang-up of its predecessor would be reported at once
				successors <- c.(*conn)
			}
		}}, nil)
	}
	started, release := make(chan struct{}), make(chan struct{})
	l.Post(func() { close(started); <-release })
	<-started
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

// Pitfall 7: a socket that is never empty gives way to the others after its share of the turn.
func TestTurnIsBounded(t *testing.T) {
	for name, pair := range map[string]func(t testing.TB) (net.Conn, net.Conn){
		"tcp":  func(t testing.TB) (net.Conn, net.Conn) { a, b := tcpPair(t); return a, b },
		"unix": unixPair,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, Options{Kind: Epoll})
			r := &rig{Group: g, t: t, l: g.Loop(0), kind: Epoll, pair: pair}
			const inFlight, rounds = bufferSize + bufferSize/2, 100
			var farBig net.Conn
			total, whole, atSmall := 0, 0, -1
			done := make(chan struct{})
			big, farBig := r.connect(&hooks{data: func(_ Conn, b []byte) {
				if len(b) == bufferSize {
					whole++ // the loop cannot know from this read that the socket is empty
				}
				if total += len(b); total < rounds*inFlight {
					farBig.Write(b) // there is room: as much was taken
				} else if total-len(b) < rounds*inFlight {
					close(done)
				}
			}}, nil)
			small, farSmall := r.connect(&hooks{data: func(Conn, []byte) { atSmall = total }}, nil)
			r.on(func() { big.Pause(); small.Pause() })
			r.write(farBig, pattern(inFlight))
			r.write(farSmall, []byte("x"))
			r.on(func() { big.Resume(); small.Resume() })
			get(t, done)
			r.on(func() {
				if whole < rounds/2 {
					t.Errorf("only %d reads filled the buffer: nothing is tested", whole)
				}
				if atSmall < 0 || atSmall > 2*turnBytes {
					t.Errorf("the other connection had its turn after %d bytes", atSmall)
				}
			})
		})
	}
}

// A write may fail without any event for the socket; the handler hears of it all the same, paused or not.
func TestWriteErrorWithoutAnEvent(t *testing.T) {
	for _, pause := range []bool{false, true} {
		g := newGroup(t, Options{Kind: Epoll})
		r := &rig{Group: g, t: t, l: g.Loop(0), kind: Epoll, pair: unixPair}
		end := make(chan error, 2)
		c, _ := r.connect(&hooks{closed: func(_ Conn, err error) { end <- err }}, nil)
		r.awaitOn(func() bool { return c.loop.count.Turns > 0 }) // the socket was announced as writable
		r.on(func() {
			if pause {
				c.Pause()
			}
			if err := unix.Shutdown(int(c.fd), unix.SHUT_WR); err != nil {
				t.Error(err)
			}
		})
		r.awaitOn(func() bool { return c.loop.count.Turns > 1 }) // and as changed: no more events
		r.on(func() {
			c.Write([]byte("x"))
			c.Write([]byte("dropped"))
		})
		if err := get(t, end); !errors.Is(err, unix.EPIPE) {
			t.Fatalf("closed with %v", err)
		}
	}
}
