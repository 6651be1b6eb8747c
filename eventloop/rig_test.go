package eventloop

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"fencepost/internal/memconn"
)

// rig is a group of loops and a way to make connected pairs for it.
type rig struct {
	*Group
	t    *testing.T
	l    Loop // the first
	kind Kind
	pair func(t testing.TB) (a, b net.Conn)
}

// rigs runs a test with every implementation over every sort of connection it takes.
func rigs(t *testing.T, opt Options, f func(t *testing.T, r *rig)) {
	tcp := func(t testing.TB) (net.Conn, net.Conn) { a, b := tcpPair(t); return a, b }
	mem := func(t testing.TB) (net.Conn, net.Conn) {
		a, b := memconn.Pipe(16 << 10)
		t.Cleanup(func() { a.Close(); b.Close() })
		return a, b
	}
	type variant struct {
		kind Kind
		name string
		pair func(t testing.TB) (a, b net.Conn)
	}
	variants := []variant{{Portable, "tcp", tcp}, {Portable, "memory", mem}}
	if defaultKind == Epoll {
		variants = append(variants, variant{Epoll, "tcp", tcp}, variant{Epoll, "unix", unixPair})
	}
	for _, v := range variants {
		t.Run(string(v.kind)+"/"+v.name, func(t *testing.T) {
			opt := opt
			opt.Kind = v.kind
			g := newGroup(t, opt)
			f(t, &rig{Group: g, t: t, l: g.Loop(0), kind: v.kind, pair: v.pair})
		})
	}
}

func unixPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// connect adopts one end of a new pair on the first loop and returns both.
func (r *rig) connect(h Handler, mb *Mailbox) (*conn, net.Conn) {
	return r.connectOn(r.l, h, mb)
}

func (r *rig) connectOn(l Loop, h Handler, mb *Mailbox) (*conn, net.Conn) {
	r.t.Helper()
	near, far := r.pair(r.t)
	s, err := r.Socket(near)
	if err != nil {
		r.t.Fatal(err)
	}
	var c Conn
	on(l, func() { c, err = l.Adopt(s, h, mb) })
	if err != nil {
		r.t.Fatal(err)
	}
	return c.(*conn), far
}

func (r *rig) on(f func()) { on(r.l, f) }

// awaitOn waits until f, which is called on the loop, is true.
func (r *rig) awaitOn(f func() bool) {
	r.t.Helper()
	done := make(chan struct{})
	var look func()
	look = func() {
		if f() {
			close(done)
			return
		}
		r.l.Post(look)
	}
	r.l.Post(look)
	get(r.t, done)
}

// write writes from outside of the loop, to a peer that may be slow.
func (r *rig) write(far net.Conn, b []byte) {
	r.t.Helper()
	if _, err := far.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// read reads n bytes within a time that fails the test instead of hanging.
func (r *rig) read(far net.Conn, n int) []byte {
	r.t.Helper()
	far.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, n)
	if k, err := io.ReadFull(far, b); err != nil {
		r.t.Fatalf("read %d of %d bytes: %v", k, n, err)
	}
	return b
}

// get waits for a value within a time that fails the test instead of hanging.
func get[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// pattern is n bytes in which a lost, doubled or misplaced piece shows.
func pattern(n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = append(b, byte(i), byte(i>>8), byte(i>>16), 0xa5)
	}
	return b[:n]
}

// collector is a handler that keeps what it receives.
type collector struct {
	hooks
	all  bytes.Buffer
	want int
	full chan []byte // all, once want bytes have come
	end  chan error
}

func newCollector(want int) *collector {
	k := &collector{want: want, full: make(chan []byte, 1), end: make(chan error, 1)}
	k.hooks.data = func(_ Conn, b []byte) {
		k.all.Write(b)
		if k.want > 0 && k.all.Len() >= k.want {
			k.want = 0
			k.full <- k.all.Bytes()
		}
	}
	k.hooks.closed = func(_ Conn, err error) { k.end <- err }
	return k
}
