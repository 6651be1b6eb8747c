package eventloop

import (
	"runtime"
	"testing"
	"time"
)

// A connection moves to another loop without losing a byte, in whatever state its input is.
func TestDetachAndAdopt(t *testing.T) {
	rigs(t, Options{Loops: 2}, func(t *testing.T, r *rig) {
		got := make(chan string, 10)
		h := func(name string) *hooks {
			return &hooks{data: func(c Conn, b []byte) { got <- name + string(b) }}
		}
		c, far := r.connect(h("first "), nil)
		r.write(far, []byte("a"))
		if s := get(t, got); s != "first a" {
			t.Fatalf("got %q", s)
		}
		r.on(func() { c.Pause() })
		r.write(far, []byte("b")) // waits in the socket during the move
		var s Socket
		var err error
		r.on(func() {
			if s, err = c.Detach(); err != nil {
				t.Error(err)
			}
			if _, err := c.Detach(); err == nil {
				t.Error("detached twice")
			}
			c.Write([]byte("nobody's"))
			c.Close() // of a detached connection: nothing
		})
		second := r.Loop(1)
		var moved Conn
		on(second, func() {
			if moved, err = second.Adopt(s, h("second "), nil); err != nil {
				t.Error(err)
			}
			if moved.Loop() != second || moved.RemoteAddr() != c.RemoteAddr() {
				t.Error("wrong loop or address")
			}
			moved.Write([]byte("hello"))
		})
		if s := get(t, got); s != "second b" {
			t.Fatalf("got %q", s)
		}
		if b := r.read(far, 5); string(b) != "hello" {
			t.Fatalf("read %q", b)
		}
		r.write(far, []byte("c"))
		if s := get(t, got); s != "second c" {
			t.Fatalf("got %q", s)
		}
		r.on(func() {
			if _, err := r.l.Adopt(s, h(""), nil); err == nil {
				t.Error("adopted twice")
			}
		})
		on(second, func() {
			if s, err = moved.Detach(); err != nil {
				t.Error(err)
			}
		})
		r.on(func() { // and back, as a new connection to its first loop
			if _, err := r.l.Adopt(s, h("third "), nil); err != nil {
				t.Error(err)
			}
		})
		r.write(far, []byte("d"))
		if s := get(t, got); s != "third d" {
			t.Fatalf("got %q", s)
		}
	})
}

func TestDetachRefused(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		holding := make(chan struct{})
		c, far := r.connect(&hooks{data: func(c Conn, b []byte) { c.Stash(b); close(holding) }}, nil)
		r.write(far, []byte("x"))
		get(t, holding)
		r.on(func() {
			if _, err := c.Detach(); err == nil {
				t.Error("detached with bytes stashed")
			}
			c.Unstash()
			c.Write(make([]byte, 8<<20))
			if _, err := c.Detach(); err == nil {
				t.Error("detached with bytes queued")
			}
		})
		r.read(far, 8<<20)
		r.on(func() {
			c.CloseFlushed(time.Minute)
			if _, err := c.Detach(); err == nil {
				t.Error("detached while closing")
			}
		})
	})
}

func TestAdoptRefused(t *testing.T) {
	rigs(t, Options{Loops: 2}, func(t *testing.T, r *rig) {
		near, far := r.pair(t)
		s, err := r.Socket(near)
		if err != nil {
			t.Fatal(err)
		}
		r.on(func() {
			if _, err := r.l.Adopt(s, &hooks{}, r.Loop(1).NewMailbox()); err == nil {
				t.Error("adopted with the mailbox of another loop")
			}
			if r.l.(*loop).count.Conns != 0 {
				t.Error("counted")
			}
		})
		if n, err := far.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("the refused socket is still open: %d, %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestQuiet(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		end := make(chan error, 1)
		c, far := r.connect(&hooks{closed: func(_ Conn, err error) { end <- err }}, nil)
		soonNot := func(what string) {
			t.Helper()
			for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); runtime.Gosched() {
				if !c.Quiet() { // a stream learns of it from its reader
					return
				}
			}
			t.Error("quiet although " + what)
		}
		r.on(func() {
			if !c.Quiet() {
				t.Error("not quiet while nothing happens")
			}
			c.Pause()
			far.Write([]byte("bytes in front of the end"))
			soonNot("something has come")
		})
		far.Close()
		r.on(func() {
			soonNot("the peer has closed, behind what is not read")
			c.Resume()
		})
		get(t, end)
		r.on(func() {
			if c.Quiet() {
				t.Error("quiet after OnClosed")
			}
		})
		c, far = r.connect(&hooks{closed: func(_ Conn, err error) { end <- err }}, nil)
		r.on(func() {
			far.Close()
			soonNot("the peer has closed")
		})
		get(t, end)
	})
}
