package eventloop

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// closeWrite half-closes what can be half-closed and closes the rest.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
	} else {
		c.Close()
	}
}

// Pitfall 4: a peer that leaves is noticed while reading is paused, with and without bytes in front of the end.
func TestHangUpWhilePaused(t *testing.T) {
	for name, before := range map[string]string{"silent": "", "after bytes": "Terminate"} {
		t.Run(name, func(t *testing.T) {
			rigs(t, Options{}, func(t *testing.T, r *rig) {
				k := newCollector(0)
				c, far := r.connect(k, nil)
				r.on(func() { c.Pause() })
				if before != "" {
					r.write(far, []byte(before))
				}
				closeWrite(far)
				if err := get(t, k.end); err != io.EOF {
					t.Fatalf("closed with %v", err)
				}
				r.on(func() {
					if k.all.Len() > 0 {
						t.Errorf("got %q while paused", k.all.String())
					}
				})
			})
		})
	}
}

// Pitfall 5: with the peer's close in the event, a read that did not fill the buffer has not seen the end.
func TestEndBehindBytes(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		for _, size := range []int{1, 1000, bufferSize, bufferSize + 1, 200_000} {
			k := newCollector(0)
			_, far := r.connect(k, nil)
			release := make(chan struct{})
			r.l.Post(func() { <-release }) // both arrive before the loop looks
			all := pattern(size)
			done := make(chan struct{})
			go func() { far.Write(all); closeWrite(far); close(done) }()
			if size <= 1000 {
				get(t, done)
			}
			close(release)
			if err := get(t, k.end); err != io.EOF {
				t.Fatalf("%d bytes: closed with %v", size, err)
			}
			if !bytes.Equal(k.all.Bytes(), all) {
				t.Fatalf("%d bytes: %d came", size, k.all.Len())
			}
		}
	})
}

// A handler that pauses in front of the end is told of the end all the same.
func TestPausedInFrontOfTheEnd(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		end := make(chan error, 1)
		_, far := r.connect(&hooks{
			data:   func(c Conn, _ []byte) { c.Pause() },
			closed: func(_ Conn, err error) { end <- err },
		}, nil)
		r.on(func() { far.Write([]byte("x")); closeWrite(far) })
		if err := get(t, end); err != io.EOF {
			t.Fatalf("closed with %v", err)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		k := newCollector(3)
		c, far := r.connect(k, nil)
		r.on(func() { c.Pause(); c.Pause() })
		r.write(far, []byte("abc"))
		for range 3 { // let the loop see the bytes
			far.SetReadDeadline(time.Now().Add(time.Millisecond))
			far.Read(make([]byte, 1))
			r.on(func() {
				if k.all.Len() > 0 || !c.Paused() {
					t.Errorf("got %q, paused %v", k.all.String(), c.Paused())
				}
			})
		}
		r.on(func() {
			c.Resume()
			if k.all.Len() > 0 {
				t.Error("OnData from inside Resume")
			}
			c.Resume()
		})
		if got := get(t, k.full); string(got) != "abc" {
			t.Fatalf("got %q", got)
		}
	})
}

// Bytes kept with Stash come first in the next OnData, in one slice, and survive the reuse of the shared buffer.
func TestStash(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		type call struct{ a, b string }
		got := make(chan call, 10)
		keep := 3
		_, far := r.connect(&hooks{data: func(c Conn, b []byte) {
			n := min(keep, len(b))
			got <- call{string(b[:len(b)-n]), string(b[len(b)-n:])}
			c.Stash(b[len(b)-n:])
		}}, nil)
		other := newCollector(5)
		_, noise := r.connect(other, nil)
		r.write(far, []byte("one two"))
		if c := get(t, got); c != (call{"one ", "two"}) {
			t.Fatalf("got %q", c)
		}
		r.write(noise, []byte("XXXXX")) // goes through the shared buffer
		get(t, other.full)
		r.on(func() { keep = 0 })
		r.write(far, []byte(" three"))
		if c := get(t, got); c.a != "two three" {
			t.Fatalf("got %q", c)
		}
	})
}

// A session that waits for a backend holds and pauses; when it is granted within the turn the bytes are still in the
// shared buffer, and when it is granted later they have been copied.
func TestHeldAcrossAGrant(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		type look struct {
			held   string
			shared bool
		}
		got := make(chan look, 10)
		see := func(c *conn) {
			b := c.Stashed()
			if string(b) == "" {
				got <- look{}
				return
			}
			buf := r.l.(*loop).buf
			shared := &b[0] == &buf[0]
			got <- look{string(b), shared}
		}
		_, far := r.connect(&hooks{data: func(c Conn, b []byte) {
			c.Stash(b)
			c.Pause()
			r.l.Post(func() { see(c.(*conn)) }) // within the turn: the run queue is drained before bytes are copied
			r.l.SetTimer(&Timer{Fire: func() {
				see(c.(*conn))
				c.Unstash()
				see(c.(*conn))
				c.Resume()
			}}, time.Millisecond)
		}}, nil)
		r.write(far, []byte("SELECT 1"))
		for i, want := range []look{{"SELECT 1", true}, {"SELECT 1", false}, {}} {
			if l := get(t, got); l != want {
				t.Fatalf("look %d: %+v, want %+v", i, l, want)
			}
		}
	})
}

// Resume delivers held bytes once more, without anything new from the peer.
func TestResumeDeliversHeldBytes(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		got := make(chan string, 10)
		first := true
		c, far := r.connect(&hooks{data: func(c Conn, b []byte) {
			got <- string(b)
			if first {
				first = false
				c.Stash(b[1:])
				c.Pause()
			}
		}}, nil)
		r.write(far, []byte("abc"))
		get(t, got)
		r.on(func() { c.Resume() })
		if s := get(t, got); s != "bc" {
			t.Fatalf("got %q", s)
		}
		r.on(func() {
			if c.Stashed() != nil {
				t.Errorf("still holds %q", c.Stashed())
			}
		})
	})
}

// Everything that is sent is delivered once and in order to a handler that holds whatever suits it.
func TestHoldLargeAndSmall(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		all := pattern(3 << 20)
		var got bytes.Buffer
		done := make(chan struct{})
		calls := 0
		c, far := r.connect(&hooks{data: func(c Conn, b []byte) {
			calls++
			keep := min(len(b), []int{0, 1, 511, 5000, 70_000, 200_000}[calls%6])
			if got.Len()+len(b) == len(all) {
				keep = 0
			}
			got.Write(b[:len(b)-keep])
			c.Stash(b[len(b)-keep:])
			if got.Len() == len(all) {
				close(done)
			}
		}}, nil)
		go far.Write(all)
		get(t, done)
		if !bytes.Equal(got.Bytes(), all) {
			t.Fatal("the bytes were changed")
		}
		r.on(func() {
			if c.stash != nil {
				t.Error("an empty Stash keeps a buffer")
			}
		})
	})
}

// Pitfall 7: a connection that has much to read lets the others have their turn.
func TestFairness(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		order := make(chan string, 10_000)
		total := 0
		const size = 8 << 20
		var big *conn
		big, farBig := r.connect(&hooks{data: func(_ Conn, b []byte) {
			if total += len(b); total == size {
				order <- "big"
			}
		}}, nil)
		small, farSmall := r.connect(&hooks{data: func(Conn, []byte) { order <- "small" }}, nil)
		r.on(func() { big.Pause(); small.Pause() })
		go farBig.Write(pattern(size))
		r.write(farSmall, []byte("x"))
		r.on(func() { big.Resume(); small.Resume() })
		if first := get(t, order); first != "small" {
			t.Fatal("the small one waited for the big one")
		}
		get(t, order)
	})
}
