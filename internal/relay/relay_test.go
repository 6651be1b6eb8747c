package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fencepost/internal/pgcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 10 * time.Second

// address of a port that stays ours.
func address(t *testing.T) string {
	t.Helper()
	port, held, err := pgcluster.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// server gives its connections to the test.
type server struct {
	ln    net.Listener
	conns chan *net.TCPConn
	done  sync.WaitGroup
	over  chan struct{}
}

func serve(t *testing.T, addr string) *server {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln, conns: make(chan *net.TCPConn), over: make(chan struct{})}
	s.done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.done.Go(func() {
				// One on which nothing comes is the relay that looks whether somebody is there.
				came := make(chan error, 1)
				go func() { // ends with the connection
					_, err := c.Read(make([]byte, 1))
					came <- err
				}()
				select {
				case err := <-came:
					if err != nil {
						c.Close()
						return
					}
				case <-s.over:
					c.Close()
					return
				}
				select {
				case s.conns <- c.(*net.TCPConn):
				case <-s.over:
					c.Close()
				}
			})
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	select {
	case <-s.over:
		return
	default:
		close(s.over)
	}
	s.ln.Close()
	s.done.Wait()
}

func start(t *testing.T) (*Relay, *server) {
	t.Helper()
	addr := address(t)
	s := serve(t, addr)
	r := At(address(t), addr)
	t.Cleanup(r.Close)
	eventually(t, "the relay listens", r.Listens)
	return r, s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// pair is a connection through the relay, both ends.
func pair(t *testing.T, r *Relay, s *server) (client, end *net.TCPConn) {
	t.Helper()
	client = dial(t, r)
	send(t, client, "!")
	select {
	case end = <-s.conns:
	case <-time.After(limit):
		t.Fatal("nothing came to the server")
	}
	t.Cleanup(func() { end.Close() })
	end.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // reads tell
	return client, end
}

func dial(t *testing.T, r *Relay) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(limit)) //nolint:errcheck // reads tell
	return c.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, c net.Conn, s string) {
	t.Helper()
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
		t.Fatalf("got %q, %v; want %q", b, err, s)
	}
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// quiet checks that nothing comes for a while, neither bytes nor an end.
func quiet(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:errcheck // the read tells
	b := make([]byte, 1)
	if n, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came (%q), %v", n, b[:n], err)
	}
	c.SetReadDeadline(time.Now().Add(limit)) //nolint:errcheck // reads tell
}

// The relay refuses while its server is dead, whether it was told or found out, and listens again on its port.
func TestDeadServer(t *testing.T) {
	for _, told := range []bool{true, false} {
		r, s := start(t)
		client, end := pair(t, r, s)
		addr := s.ln.Addr().String()
		s.stop()
		if told {
			r.Down()
		} else { // the first one is reset, as by a port that has just been closed
			c, err := net.Dial("tcp", r.Addr())
			if err == nil {
				_, err = c.Read(make([]byte, 1))
				c.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the first connect to a dead server ended with %v", err)
			}
		}
		if _, err := net.Dial("tcp", r.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("told %v: connect to a dead server: %v", told, err)
		}
		send(t, end, "still here")
		want(t, client, "still here")
		r.Down()
		again := serve(t, addr)
		eventually(t, "the relay listens again", r.Listens)
		pair(t, r, again)
	}
}

func TestCut(t *testing.T) {
	r, s := start(t)
	client, end := pair(t, r, s)
	leaver, left := pair(t, r, s)
	for range 3 { // nothing of a time before is left
		if err := r.Cut(); err != nil {
			t.Fatal(err)
		}
		send(t, client, "to the server")
		send(t, end, "to the client")
		quiet(t, client)
		quiet(t, end)
		if c, err := net.DialTimeout("tcp", r.Addr(), 100*time.Millisecond); !timedOut(err) {
			t.Fatalf("connect through a network that is down: %v, %v", c, err)
		}
		r.Heal()
		want(t, client, "to the client")
		want(t, end, "to the server")
		pair(t, r, s)
	}

	if err := r.Cut(); err != nil {
		t.Fatal(err)
	}
	asking := make(chan error, 1)
	go func() { // ends when the relay answers: the kernel asks once a second
		c, err := net.DialTimeout("tcp", r.Addr(), limit)
		if err == nil {
			c.Close()
		}
		asking <- err
	}()
	leaver.Close()
	quiet(t, left)
	r.Heal()
	if _, err := left.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a connection that was closed meanwhile: %v", err)
	}
	left.Close()
	if err := <-asking; err != nil {
		t.Errorf("a connect that began while the network was down: %v", err)
	}
}

// A server that dies behind a network that is down refuses once it is up, and not before; one that is back then takes
// connections.
func TestDeadBehindCut(t *testing.T) {
	r, s := start(t)
	addr := s.ln.Addr().String()
	for _, back := range []bool{false, true} {
		if err := r.Cut(); err != nil {
			t.Fatal(err)
		}
		s.stop()
		r.Down()
		if _, err := net.DialTimeout("tcp", r.Addr(), 50*time.Millisecond); !timedOut(err) {
			t.Errorf("connect to a dead server through a network that is down: %v", err)
		}
		if back {
			s = serve(t, addr)
		}
		r.Heal()
		if !back {
			if _, err := net.Dial("tcp", r.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("connect after the network is up: %v", err)
			}
			s = serve(t, addr)
		}
		eventually(t, "the relay listens again", r.Listens)
		pair(t, r, s)
	}
}

// Replies of a connection that was open before become late, by at least Min, in order, and on time again.
func TestLate(t *testing.T) {
	r, s := start(t)
	client, end := pair(t, r, s)
	const least = 50 * time.Millisecond
	r.SetLate(Late{}, Late{Min: least, Max: 2 * least})
	began := time.Now()
	for i := range 20 {
		send(t, end, strconv.Itoa(i%10))
	}
	send(t, client, "up")
	want(t, end, "up")
	if took := time.Since(began); took >= least {
		t.Logf("the way up took %v: a busy machine, or it was late too", took)
	}
	want(t, client, "01234567890123456789")
	if took := time.Since(began); took < least {
		t.Errorf("replies took %v", took)
	}

	r.SetLate(Late{}, Late{Min: 4 * least, Max: 4 * least})
	send(t, end, "first")
	quiet(t, client) // so that it is on its way
	r.SetLate(Late{}, Late{})
	send(t, end, "second")
	want(t, client, "firstsecond")

	began = time.Now()
	r.SetLate(Late{Min: least, Max: least}, Late{})
	client.CloseWrite()
	if _, err := end.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) < least {
		t.Errorf("the end came after %v, %v", time.Since(began), err)
	}
}

// Every end of a connection arrives as what it was.
func TestEnds(t *testing.T) {
	r, s := start(t)
	client, end := pair(t, r, s)
	end.CloseWrite()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("closed by the server: %v", err)
	}
	send(t, client, "the other way")
	want(t, end, "the other way")

	client, end = pair(t, r, s)
	end.SetLinger(0) //nolint:errcheck // the read tells
	end.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset by the server: %v", err)
	}

	client, end = pair(t, r, s)
	r.Reset()
	for _, c := range []net.Conn{client, end} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reset by the relay: %v", err)
		}
	}
}

func TestBulk(t *testing.T) {
	r, s := start(t)
	client, end := pair(t, r, s)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	go func() { // ends when all is written, or with the connection
		for i := 0; i < len(data); i += 1 << 20 {
			switch i {
			case 1 << 20:
				r.SetLate(Late{Max: time.Millisecond}, Late{})
			case 2 << 20:
				r.SetLate(Late{}, Late{})
			}
			client.Write(data[i : i+1<<20]) //nolint:errcheck // what does not come shows it
		}
		client.CloseWrite()
	}()
	got, err := io.ReadAll(end)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(data))
	}
}

// Close ends everything, whatever state it is in, and gives up the port.
func TestClose(t *testing.T) {
	r, s := start(t)
	pair(t, r, s)
	r.SetLate(Late{Min: time.Hour, Max: time.Hour}, Late{})
	client := stuck(t, r)
	if err := r.Cut(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection of a relay that was closed: %v", err)
	}
	if r.Open() != 0 {
		t.Errorf("%d connections are open", r.Open())
	}
	ln, err := net.Listen("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

// stuck is a second connection, whose bytes do not arrive.
func stuck(t *testing.T, r *Relay) *net.TCPConn {
	t.Helper()
	client := dial(t, r)
	send(t, client, "!")
	eventually(t, "the connection is there", func() bool { return r.Open() >= 2 })
	return client
}
