package memconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestBytesAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(10)
		all := bytes.Repeat([]byte("0123456789abcdef"), 100)
		go func() {
			if n, err := a.Write(all); n != len(all) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
			a.CloseWrite()
		}()
		synctest.Wait()
		if n := b.Buffered(); n != 10 {
			t.Fatalf("%d bytes buffered", n)
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, all) {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		if _, err := b.Write([]byte("other way")); err != nil {
			t.Fatal(err)
		}
		got = make([]byte, 9)
		if _, err := io.ReadFull(a, got); err != nil || string(got) != "other way" {
			t.Fatalf("read %q, %v", got, err)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(10)
		waiting := make(chan error, 2)
		go func() { _, err := a.Read(make([]byte, 1)); waiting <- err }()
		go func() { _, err := b.Write(make([]byte, 100)); waiting <- err }()
		synctest.Wait()
		<-waiting // the read had bytes
		a.Write([]byte("last"))
		a.Close()
		a.Close()
		if err := <-waiting; !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("write to a closed peer: %v", err)
		}
		if got, err := io.ReadAll(b); string(got) != "last" || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("read after Close: %v", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("write after Close: %v", err)
		}
	})
}

func TestBreak(t *testing.T) {
	a, b := Pipe(10)
	a.Write([]byte("lost"))
	lost := errors.New("reset")
	b.Break(lost)
	if _, err := b.Read(make([]byte, 10)); err != lost {
		t.Fatalf("read: %v", err)
	}
	if _, err := a.Write([]byte("x")); err != lost {
		t.Fatalf("write: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(1)
		start := time.Now()
		a.SetReadDeadline(start.Add(time.Second))
		a.SetReadDeadline(start.Add(2 * time.Second)) // the first has no effect
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Fatalf("read: %v after %v", err, time.Since(start))
		}
		b.Write([]byte("x"))
		a.SetDeadline(time.Time{})
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		a.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := a.Write([]byte("xy")); n != 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d, %v", n, err)
		}
		var timeout net.Error
		a.SetReadDeadline(time.Now().Add(-1))
		if _, err := a.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("read with a deadline in the past: %v", err)
		}
	})
}

func TestListener(t *testing.T) {
	l := Listen("server", 10)
	c, err := l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	late, err := l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x"))
	if n, err := s.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
	if c.RemoteAddr() != l.Addr() || s.RemoteAddr() != c.LocalAddr() || c.LocalAddr() == late.LocalAddr() {
		t.Fatalf("addresses %v %v %v", c.LocalAddr(), c.RemoteAddr(), s.RemoteAddr())
	}
	l.Close()
	if _, err := late.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("a connection nobody accepted: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := l.Dial(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}
