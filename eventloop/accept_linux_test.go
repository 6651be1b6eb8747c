package eventloop

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen starts an echo server on a loop.
func listen(t testing.TB, l Loop, network, address string, failed func(error)) (Acceptor, net.Addr) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	h := &hooks{data: func(c Conn, b []byte) { c.Write(b) }}
	var a Acceptor
	on(l, func() {
		a, err = l.Listen(ln, func(s Socket) {
			if _, err := l.Adopt(s, h, nil); err != nil {
				t.Error(err)
			}
		}, failed)
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, ln.Addr()
}

func TestListen(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		for _, network := range []string{"tcp4", "tcp6", "unix"} {
			address := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": filepath.Join(t.TempDir(), "s")}[network]
			g := newGroup(t, Options{Kind: kind})
			l := g.Loop(0)
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			accepted := make(chan Socket, 1)
			var a Acceptor
			on(l, func() { a, err = l.Listen(ln, func(s Socket) { accepted <- s }, nil) })
			if err != nil {
				t.Fatal(err)
			}
			nc, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			s := get(t, accepted)
			if network == "unix" {
				if !s.IsUnix() || s.RemoteAddr().IsValid() || s.LocalAddr().IsValid() {
					t.Fatalf("unix %v, %v, %v", s.IsUnix(), s.RemoteAddr(), s.LocalAddr())
				}
			} else if s.IsUnix() || s.RemoteAddr().String() != nc.LocalAddr().String() || s.LocalAddr().String() != nc.RemoteAddr().String() {
				t.Fatalf("addresses %v, %v", s.RemoteAddr(), s.LocalAddr())
			}
			if fd := s.(*socket).fd; fd >= 0 && network != "unix" {
				if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY); v != 1 || err != nil {
					t.Fatalf("TCP_NODELAY %d, %v", v, err)
				}
			}
			s.Close()
			on(l, func() { a.Close(); a.Close() })
			if _, err := net.Dial(network, ln.Addr().String()); err == nil {
				t.Fatal("still listening after Close")
			}
			if _, err := os.Stat(address); network == "unix" && !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the socket file is still there: %v", err)
			}
		}
	})
}

// A socket file that another process has put in place of ours is not removed.
func TestUnixListenerLeavesItsSuccessorsFile(t *testing.T) {
	g := newGroup(t, Options{})
	path := filepath.Join(t.TempDir(), "s")
	a, _ := listen(t, g.Loop(0), "unix", path, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	on(g.Loop(0), a.Close)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

// A panic of the one who accepts closes the socket and nothing else.
func TestPanicInAccept(t *testing.T) {
	told := make(chan any, 10)
	kinds(t, func(t *testing.T, kind Kind) {
		g := newGroup(t, Options{Kind: kind, Panicked: func(reason any, _ []byte) { told <- reason }})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		on(g.Loop(0), func() { _, err = g.Loop(0).Listen(ln, func(Socket) { explode() }, nil) })
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Fatalf("still open: %d, %v", n, err)
			}
			nc.Close()
			if reason := get(t, told); reason != "exploded" {
				t.Fatalf("told of %v", reason)
			}
		}
	})
}

const starveEnv = "EVENTLOOP_TEST_STARVE"

// Without a free descriptor accepting rests for AcceptPause, is reported once per rest, does not spin, and goes on when
// there is one again. Runs in a process of its own, whose limit it lowers.
func TestAcceptWithoutDescriptors(t *testing.T) {
	if kind := os.Getenv(starveEnv); kind != "" {
		starve(t, Kind(kind))
		return
	}
	kinds(t, func(t *testing.T, kind Kind) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAcceptWithoutDescriptors$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), starveEnv+"="+string(kind))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

func starve(t *testing.T, kind Kind) {
	g := newGroup(t, Options{Kind: kind})
	l := g.Loop(0)
	failures := make(chan error, 100)
	_, addr := listen(t, l, "tcp", "127.0.0.1:0", func(err error) { failures <- err })
	nc, err := net.Dial("tcp", addr.String()) // the client's descriptor, taken before there are none
	if err != nil {
		t.Fatal(err)
	}
	nc.Write([]byte("x"))
	nc.Read(make([]byte, 1))
	late, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(late)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(late) + 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, (*syscall.Rlimit)(&low)); err != nil {
		t.Fatal(err)
	}
	var held []int
	for { // numbers below the limit that are still free
		fd, err := unix.FcntlInt(uintptr(late), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	start := time.Now()
	tcp := addr.(*net.TCPAddr)
	if err := unix.Connect(late, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := get(t, failures); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("failed with %v", err)
	}
	get(t, failures) // a second rest
	if d := time.Since(start); d < AcceptPause {
		t.Fatalf("tried again after %v", d)
	}
	if s := l.Stats(); s.Waits > 100 {
		t.Fatalf("%d waits in %v", s.Waits, time.Since(start))
	}
	for _, fd := range held {
		unix.Close(fd)
	}
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, (*syscall.Rlimit)(&limit))
	if _, err := unix.Write(late, []byte("x")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if n, err := unix.Read(late, b); n != 1 || err != nil {
		t.Fatalf("echo %d, %v", n, err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Fatalf("accepted after %v", d)
	}
	if n := len(failures); n > 0 {
		t.Fatalf("%d more failures", n)
	}
}
