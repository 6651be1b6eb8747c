package eventloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Pitfall 1: what the socket does not take is queued and sent in order, and OnDrained comes when it is.
func TestPartialWritesKeepOrder(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		drained := make(chan int, 10)
		c, far := r.connect(&hooks{drained: func(c Conn) { drained <- c.Queued() }}, nil)
		all := pattern(8 << 20)
		start := make([]byte, 60<<10)
		refused := 0
		r.on(func() {
			for rest := all; len(rest) > 0; {
				n := min(len(rest), 10_007)
				if !c.Write(rest[:n]) {
					refused++
				}
				rest = rest[n:]
			}
			if c.Queued() == 0 {
				t.Error("a socket took 8 MiB that nobody read")
			}
			if _, err := io.ReadFull(far, start); err != nil { // there is room in the socket now, but it is not for the last
				t.Error(err)
			}
			c.Write([]byte("the last"))
		})
		if refused == 0 {
			t.Fatal("no write was refused")
		}
		all = append(all, "the last"...)
		if got := slices.Concat(start, r.read(far, len(all)-len(start))); !bytes.Equal(got, all) {
			t.Fatal("the bytes arrived changed")
		}
		if q := get(t, drained); q != 0 {
			t.Fatalf("drained with %d bytes queued", q)
		}
		r.on(func() {
			if !c.Write([]byte("x")) {
				t.Error("refused after it was drained")
			}
		})
		r.read(far, 1)
		if len(drained) > 0 {
			t.Fatal("drained twice")
		}
		r.on(func() {
			if s := r.l.(*loop).count; s.QueuedBytes != 0 || s.ShortWrites == 0 {
				t.Errorf("stats %+v", s)
			}
		})
	})
}

// proxy forwards between two connections as a session does, pausing the source of what was not taken.
type proxy struct {
	peer    map[Conn]Conn
	maxHeld int
	ended   chan error
}

func (p *proxy) OnData(c Conn, b []byte) {
	to := p.peer[c]
	if !to.Write(b) {
		c.Pause()
	}
	p.maxHeld = max(p.maxHeld, to.Queued())
}
func (p *proxy) OnDrained(c Conn) { p.peer[c].Resume() }
func (p *proxy) OnClosed(c Conn, err error) {
	c.Close()
	p.peer[c].CloseFlushed(time.Minute)
	if p.ended != nil {
		p.ended <- err
	}
}

// Pitfalls 1 and 2: only the source of the bytes that are stuck is paused, the other direction flows, and a queue holds
// no more than the read that overfilled it.
func TestPauseOnlyTheSource(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		p := &proxy{peer: map[Conn]Conn{}}
		a, farA := r.connect(p, nil)
		b, farB := r.connect(p, nil)
		r.on(func() { p.peer[a], p.peer[b] = b, a })
		all := pattern(16 << 20)
		go farA.Write(all) // farB does not read yet
		r.awaitOn(a.Paused)
		for range 100 { // the other way, and back through the slow peer's read side
			r.write(farB, []byte("ping"))
			if got := r.read(farA, 4); string(got) != "ping" {
				t.Fatalf("got %q", got)
			}
		}
		r.on(func() {
			if b.Paused() {
				t.Error("the direction that flows is paused")
			}
		})
		if got := r.read(farB, len(all)); !bytes.Equal(got, all) {
			t.Fatal("the bytes arrived changed")
		}
		r.on(func() {
			if p.maxHeld > bufferSize {
				t.Errorf("%d bytes were queued", p.maxHeld)
			}
			if a.Paused() || r.l.(*loop).count.QueuedBytes != 0 {
				t.Errorf("paused %v, %d bytes queued at the end", a.Paused(), r.l.(*loop).count.QueuedBytes)
			}
		})
	})
}

// A write that fails is reported by OnClosed, later and once.
func TestWriteErrorReportedLater(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		ended := make(chan error, 2)
		inside := false
		h := &hooks{closed: func(_ Conn, err error) {
			if inside {
				t.Error("OnClosed from inside Write")
			}
			ended <- err
		}}
		c, far := r.connect(h, nil)
		r.on(func() { c.Pause() }) // so that the loop does not see the end by itself first
		if tcp, ok := far.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		block := make([]byte, 32<<10)
		r.on(func() {
			// On the loop nothing is noticed until the turn is over.
			far.Close()
			inside = true
			for range 1000 {
				if !c.Write(block) {
					break
				}
			}
			inside = false
			if len(ended) > 0 {
				t.Error("reported within the turn's callback")
			}
		})
		err := get(t, ended)
		if r.kind == Epoll && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("closed with %v", err)
		}
		if err == nil {
			t.Fatal("closed without an error")
		}
		r.on(func() {
			if !c.Write(block) || c.Queued() != 0 {
				t.Error("a closed connection keeps bytes")
			}
		})
		if len(ended) > 0 {
			t.Fatal("reported twice")
		}
	})
}

// What the peer sent before the socket failed for writing still arrives, and the error after it.
func TestBytesBeforeAFailedWriteArrive(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		k := newCollector(0)
		c, far := r.connect(k, nil)
		r.on(func() {
			r.write(far, []byte("FATAL: terminating"))
			far.Close()
			for range 1000 {
				if !c.Write(make([]byte, 32<<10)) {
					break
				}
			}
		})
		get(t, k.end)
		if got := k.all.String(); got != "FATAL: terminating" {
			t.Fatalf("got %q", got)
		}
	})
}

func TestCloseFlushed(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		called := make(chan string, 10)
		h := &hooks{
			data:    func(Conn, []byte) { called <- "data" },
			drained: func(Conn) { called <- "drained" },
			closed:  func(Conn, error) { called <- "closed" },
		}
		c, far := r.connect(h, nil)
		all := pattern(8 << 20)
		r.on(func() {
			c.Write(all)
			c.CloseFlushed(time.Minute)
			c.Write([]byte("after")) // dropped
		})
		r.write(far, pattern(1000)) // discarded
		if got := r.read(far, len(all)); !bytes.Equal(got, all) {
			t.Fatal("the bytes arrived changed")
		}
		if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("read %d, %v after the end", n, err)
		}
		r.on(func() {
			if n := len(r.l.(*loop).timers.heap); n > 0 {
				t.Errorf("%d timers left", n)
			}
		})
		if len(called) > 0 {
			t.Fatalf("a callback after CloseFlushed: %s", <-called)
		}
	})
}

// A close with unread input resets the connection; the last message must arrive all the same.
func TestCloseFlushedWithUnreadInput(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		c, far := r.connect(&hooks{}, nil)
		r.on(func() { c.Pause() })
		r.write(far, pattern(1000))
		r.on(func() {
			c.Write([]byte("bye"))
			c.CloseFlushed(time.Minute)
		})
		r.read(far, 3)
		// A stream's reader may not have come to the input yet, and then there is a reset after all.
		if n, err := far.Read(make([]byte, 1)); n != 0 || err == nil || r.kind == Epoll && err != io.EOF {
			t.Fatalf("read %d, %v after the end", n, err)
		}
	})
}

func TestCloseFlushedLimit(t *testing.T) {
	rigs(t, Options{}, func(t *testing.T, r *rig) {
		c, _ := r.connect(&hooks{}, nil)
		start := time.Now()
		r.on(func() {
			c.Write(make([]byte, 8<<20))
			c.CloseFlushed(50 * time.Millisecond)
			if c.has(closed) {
				t.Error("closed with bytes queued")
			}
		})
		r.awaitOn(func() bool { return c.has(closed) })
		if d := time.Since(start); d < 50*time.Millisecond {
			t.Fatalf("closed after %v", d)
		}
		r.on(func() {
			if s := r.l.(*loop).count; s.Conns != 0 || s.QueuedBytes != 0 {
				t.Errorf("left over: %+v", s)
			}
		})
	})
}
