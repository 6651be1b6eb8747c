package network

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that gives back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					fmt.Fprint(c, line)
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// says sends a line and reports whether it came back in time.
func says(t *testing.T, c net.Conn, line string, limit time.Duration) bool {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
	return hears(t, c, line, limit)
}

func hears(t *testing.T, c net.Conn, line string, limit time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return err == nil && string(buf[:n]) == line+"\n"
}

const (
	soon = 5 * time.Second
	now  = 50 * time.Millisecond
)

func TestServerIsCutOff(t *testing.T) {
	n := New()
	defer n.Close()
	addr, err := n.Server("a", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	n.Runs("m1", os.Getpid())
	open := func() net.Conn {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := open()
	if !says(t, c, "one", soon) {
		t.Fatal("nothing passes")
	}
	n.Cut("m2", "a")
	if !says(t, c, "two", soon) {
		t.Fatal("another member is cut off")
	}
	n.Cut("m1", "a")
	fresh := open()
	if says(t, c, "three", now) || says(t, fresh, "four", now) {
		t.Fatal("bytes pass where nothing should")
	}
	n.Heal("m1", "a")
	if !hears(t, c, "three", soon) || !hears(t, fresh, "four", soon) {
		t.Fatal("what waited did not arrive")
	}
	n.CutWay("a", "m1")
	if says(t, c, "five", now) {
		t.Fatal("an answer passes where nothing should")
	}
	n.HealAll()
	if !hears(t, c, "five", soon) {
		t.Fatal("the answer did not arrive")
	}
}

func TestStrangersAreRefused(t *testing.T) {
	n := New()
	defer n.Close()
	addr, err := n.Server("a", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if says(t, c, "one", soon) {
		t.Error("a process that is no member was let through")
	}
}

// A datagram comes from the port of its sender, which is where its receiver answers to.
func TestDatagrams(t *testing.T) {
	n := New()
	defer n.Close()
	var socks []net.PacketConn
	var fronts []net.Addr
	for i := range 2 {
		s, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		front, err := n.Member(fmt.Sprint("m", i), s.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		addr, err := net.ResolveUDPAddr("udp4", front)
		if err != nil {
			t.Fatal(err)
		}
		socks, fronts = append(socks, s), append(fronts, addr)
	}
	passes := func(want bool, limit time.Duration) {
		t.Helper()
		if _, err := socks[0].WriteTo([]byte("hello"), fronts[1]); err != nil {
			t.Fatal(err)
		}
		if err := socks[1].SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		size, from, err := socks[1].ReadFrom(buf)
		if got := err == nil && string(buf[:size]) == "hello" && from.String() == fronts[0].String(); got != want {
			t.Errorf("%d bytes from %v, %v; want %t", size, from, err, want)
		}
	}
	passes(true, soon)
	n.CutWay("m0", "m1")
	passes(false, now)
	n.Heal("m0", "m1")
	passes(true, soon)
}
