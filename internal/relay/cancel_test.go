package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
)

// echo takes one connection after the other, writes down what the first message is, and answers sessions with what they
// send. It closes cancel connections, as PostgreSQL does.
func echo(t *testing.T) (addr string, cancels <-chan []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, 8)
				if _, err := io.ReadFull(c, head); err != nil {
					return
				}
				if binary.BigEndian.Uint32(head[4:]) != cancelCode {
					io.Copy(c, io.MultiReader(bytes.NewReader(head), c)) //nolint:errcheck // an echo
					return
				}
				rest := make([]byte, binary.BigEndian.Uint32(head)-8)
				if _, err := io.ReadFull(c, rest); err == nil {
					got <- slices.Concat(head, rest)
				}
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String(), got
}

// listening is a relay that knows cancel requests, as late as the delay.
func listening(t *testing.T, delay time.Duration, treat Treatment) (*Relay, <-chan []byte) {
	t.Helper()
	addr, got := echo(t)
	r, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.SetLate(Late{delay, delay}, Late{delay, delay})
	r.Treat(func() Treatment { return treat })
	return r, got
}

func cancelPacket(secret int) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(12+secret))
	p = binary.BigEndian.AppendUint32(p, cancelCode)
	return append(p, bytes.Repeat([]byte{7}, 4+secret)...)
}

// What a session sends comes back in order and whole, as late as the link is long, and so does its end.
func TestSession(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		r, _ := listening(t, delay, Treatment{})
		c := dial(t, r)
		want := append([]byte{0, 0, 0, 9, 0, 3, 0, 0}, bytes.Repeat([]byte("0123456789abcdef"), 1<<16)...)
		began := time.Now()
		go func() {
			c.Write(want) //nolint:errcheck // what does not come back shows it
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("delay %v: %d bytes, %v; want %d", delay, len(got), err, len(want))
		}
		if took := time.Since(began); took < 2*delay {
			t.Errorf("delay %v: there and back in %v", delay, took)
		}
		if r.Sessions.Load() != 1 || r.Seen.Load() != 0 {
			t.Error("not counted as a session")
		}
	}
}

func TestCancel(t *testing.T) {
	const delay, wait, most = 20 * time.Millisecond, 30 * time.Millisecond, 10 * time.Second
	for _, c := range []struct {
		name   string
		treat  Treatment
		sent   bool          // the server gets it
		least  time.Duration // it takes to do so
		closed bool          // the other side sees the server's close
		reset  bool
	}{
		{"passed", Treatment{}, true, delay, true, false},
		{"delayed", Treatment{Wait: wait}, true, delay + wait, true, false},
		{"hanging", Treatment{Fate: Hang}, false, 0, false, false},
		{"mute", Treatment{Fate: Mute}, true, delay, false, false},
		{"reset", Treatment{Fate: Reset, Wait: wait}, true, delay + wait, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, got := listening(t, delay, c.treat)
			nc := dial(t, r)
			packet := cancelPacket(32)
			began := time.Now()
			if _, err := nc.Write(packet); err != nil {
				t.Fatal(err)
			}
			if c.sent {
				if p := <-got; !bytes.Equal(p, packet) {
					t.Errorf("the server got %x", p)
				}
				if took := time.Since(began); took < c.least {
					t.Errorf("the server had it after %v, want at least %v", took, c.least)
				}
			}
			if !c.closed && !c.reset { // it stays open
				nc.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) //nolint:errcheck // the read tells
			}
			_, err := nc.Read(make([]byte, 1))
			took := time.Since(began)
			if c.closed != errors.Is(err, io.EOF) || c.reset != errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v", err)
			}
			if c.closed && (took < c.least+delay || took > most) {
				t.Errorf("closed after %v", took)
			}
			r.Close() // waits for its goroutines, which count
			if (r.Sent.Load() == 1) != c.sent || r.Seen.Load() != 1 || r.Length.Load() != int64(len(packet)) {
				t.Errorf("counted %d sent, %d seen, %d bytes", r.Sent.Load(), r.Seen.Load(), r.Length.Load())
			}
		})
	}
}

// A canceller that goes at once has still cancelled.
func TestCancellerThatGoes(t *testing.T) {
	r, got := listening(t, 0, Treatment{Wait: 20 * time.Millisecond})
	nc := dial(t, r)
	if _, err := nc.Write(cancelPacket(4)); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	<-got
}

// A relay leads elsewhere while what is open goes on: to nobody, to a dead server and back.
func TestLead(t *testing.T) {
	r, _ := listening(t, 0, Treatment{})
	alive := *r.server.Load()
	held := dial(t, r)
	answers := func() {
		t.Helper()
		send(t, held, "12345678")
		want(t, held, "12345678")
	}
	answers()
	r.Lead("")
	if _, err := dial(t, r).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind which nobody is: %v", err)
	}
	r.Lead(address(t))
	r.Down()
	if c, err := net.Dial("tcp", r.Addr()); err == nil {
		c.Close()
		t.Error("it still accepts")
	}
	answers()
	r.Lead(alive)
	eventually(t, "the relay listens again", r.Listens)
	held = dial(t, r)
	answers()
}
