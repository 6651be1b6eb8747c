package network

import (
	"bufio"
	"fmt"
	"io"
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
	n := NewPorts()
	defer n.Close() //nolint:errcheck // it has none
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
	try(t, n.Cut("m2", "a"))
	if !says(t, c, "two", soon) {
		t.Fatal("another member is cut off")
	}
	try(t, n.Cut("m1", "a"))
	fresh := open()
	if says(t, c, "three", now) || says(t, fresh, "four", now) {
		t.Fatal("bytes pass where nothing should")
	}
	try(t, n.Heal("m1", "a"))
	if !hears(t, c, "three", soon) || !hears(t, fresh, "four", soon) {
		t.Fatal("what waited did not arrive")
	}
	try(t, n.CutWay("a", "m1"))
	if says(t, c, "five", now) {
		t.Fatal("an answer passes where nothing should")
	}
	try(t, n.HealAll())
	if !hears(t, c, "five", soon) {
		t.Fatal("the answer did not arrive")
	}
}

func TestStrangersAreRefused(t *testing.T) {
	n := NewPorts()
	defer n.Close() //nolint:errcheck // it has none
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

// talkers are two members' sockets, and the addresses by which they know each other.
func talkers(t *testing.T, n Network) (socks []net.PacketConn, fronts []net.Addr) {
	t.Helper()
	for i := range 2 {
		s, err := net.ListenPacket("udp4", "127.0.0.1:0")
		try(t, err)
		t.Cleanup(func() { s.Close() })
		front, err := n.Member(fmt.Sprint("m", i), s.LocalAddr().String())
		try(t, err)
		addr, err := net.ResolveUDPAddr("udp4", front)
		try(t, err)
		socks, fronts = append(socks, s), append(fronts, addr)
	}
	return socks, fronts
}

// passes sends a datagram and reports whether it came, as if from an address.
func passes(t *testing.T, from, to net.PacketConn, addr, as net.Addr, limit time.Duration) bool {
	t.Helper()
	if _, err := from.WriteTo([]byte("hello"), addr); err != nil {
		t.Fatal(err)
	}
	try(t, to.SetReadDeadline(time.Now().Add(limit)))
	buf := make([]byte, 10)
	size, src, err := to.ReadFrom(buf)
	return err == nil && string(buf[:size]) == "hello" && src.String() == as.String()
}

// A datagram comes from the port of its sender, which is where its receiver answers to.
func TestDatagrams(t *testing.T) {
	n := NewPorts()
	defer n.Close() //nolint:errcheck // it has none
	socks, fronts := talkers(t, n)
	there := func(limit time.Duration) bool { return passes(t, socks[0], socks[1], fronts[1], fronts[0], limit) }
	if !there(soon) {
		t.Error("nothing passes")
	}
	try(t, n.CutWay("m0", "m1"))
	if there(now) {
		t.Error("a datagram passes where nothing should")
	}
	try(t, n.Heal("m0", "m1"))
	if !there(soon) {
		t.Error("nothing passes after Heal")
	}
}

// try fails the test if the system refused something.
func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is lost are datagrams, in one direction.
func TestPortsLose(t *testing.T) {
	n := NewPorts()
	defer n.Close() //nolint:errcheck // it has none
	socks, fronts := talkers(t, n)
	try(t, n.Lose("m0", "m1", 50))
	const sent = 100
	got := 0
	for range sent {
		if passes(t, socks[0], socks[1], fronts[1], fronts[0], 20*time.Millisecond) {
			got++
		}
	}
	if got < sent/4 || got > sent*3/4 {
		t.Errorf("%d of %d arrived, want about half", got, sent)
	}
	if !passes(t, socks[1], socks[0], fronts[0], fronts[1], soon) {
		t.Error("the other direction loses, too")
	}
	try(t, n.Heal("m1", "m0"))
	for range 20 {
		if !passes(t, socks[0], socks[1], fronts[1], fronts[0], soon) {
			t.Fatal("it loses after Heal")
		}
	}
}

// A long way delays a connect, bytes in both directions and the end, and keeps their order.
func TestSlow(t *testing.T) {
	n := NewPorts()
	defer n.Close() //nolint:errcheck // it has none
	addr, err := n.Server("a", echo(t))
	try(t, err)
	n.Runs("m1", os.Getpid())
	const delay = 30 * time.Millisecond
	trip := func(c net.Conn, line string) time.Duration {
		began := time.Now()
		if !says(t, c, line, soon) {
			t.Fatalf("%q does not come back", line)
		}
		return time.Since(began)
	}
	c, err := net.Dial("tcp4", addr)
	try(t, err)
	defer c.Close()
	trip(c, "before")
	try(t, n.Slow("a", delay))
	if took := trip(c, "one"); took < 2*delay {
		t.Errorf("there and back in %s", took)
	}
	late, err := net.Dial("tcp4", addr)
	try(t, err)
	defer late.Close()
	if took := trip(late, "two"); took < 4*delay {
		t.Errorf("connect, there and back in %s", took)
	}
	if _, err := fmt.Fprintln(c, "slow"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(delay/3, func() {
		n.Slow("a", 0)           //nolint:errcheck // it has none
		fmt.Fprintln(c, "quick") // overtakes nothing
	})
	try(t, c.SetReadDeadline(time.Now().Add(soon)))
	both := make([]byte, len("slow\nquick\n"))
	if _, err := io.ReadFull(c, both); err != nil || string(both) != "slow\nquick\n" {
		t.Errorf("%q came, %v", both, err)
	}
}
