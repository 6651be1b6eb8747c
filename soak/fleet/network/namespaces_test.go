package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/internal/poll"
)

// namespaces is a network that is closed when the test ends, and of which nothing is left then.
func namespaces(t *testing.T) *Namespaces {
	t.Helper()
	n, err := NewNamespaces()
	if errors.Is(err, ErrNotPermitted) {
		t.Skip(err)
	}
	try(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil || slices.Contains(leftovers(), n.number) {
			t.Errorf("the network is left behind: %v", err)
		}
	})
	return n
}

func host(t *testing.T, n *Namespaces, name string) (ip string) {
	t.Helper()
	ip, err := n.Host(name)
	try(t, err)
	return ip
}

// from opens a connection where a member is.
func from(t *testing.T, n *Namespaces, name, addr string, limit time.Duration) (c net.Conn, err error) {
	t.Helper()
	err = inside(n.place(name).space, func() (err error) { c, err = net.DialTimeout("tcp4", addr, limit); return err })
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestNamespaces(t *testing.T) {
	n := namespaces(t)
	addr, err := n.Server("a", echo(t))
	try(t, err)
	host(t, n, "m1")
	host(t, n, "m2")
	c, err := from(t, n, "m1", addr, soon)
	try(t, err)
	other, err := from(t, n, "m2", addr, soon)
	try(t, err)
	if !says(t, c, "one", soon) || !says(t, other, "one", soon) {
		t.Fatal("nothing passes")
	}
	try(t, n.Cut("m1", "a"))
	if says(t, c, "two", now) {
		t.Fatal("bytes pass where nothing should")
	}
	if _, err := from(t, n, "m1", addr, now); err == nil {
		t.Fatal("a connect succeeds where nothing should pass")
	}
	if !says(t, other, "three", soon) {
		t.Fatal("another member is cut off")
	}
	try(t, n.Heal("m1", "a"))
	if !hears(t, c, "two", soon) {
		t.Fatal("what waited did not arrive")
	}
	try(t, n.CutWay("a", "m1"))
	if says(t, c, "four", now) {
		t.Fatal("an answer passes where nothing should")
	}
	try(t, n.HealAll())
	if !hears(t, c, "four", soon) {
		t.Fatal("the answer did not arrive")
	}
	const delay = 30 * time.Millisecond
	try(t, n.Slow("a", delay))
	began := time.Now()
	if !says(t, c, "five", soon) || time.Since(began) < 2*delay {
		t.Errorf("there and back in %s", time.Since(began))
	}
	if err := n.Cut("m1", "nobody"); err == nil {
		t.Error("cut off from nobody")
	}
}

// What is lost is lost one way, and its sender hears nothing of it.
func TestNamespacesLose(t *testing.T) {
	n := namespaces(t)
	var socks []net.PacketConn
	for _, name := range []string{"m1", "m2"} {
		bind := net.JoinHostPort(host(t, n, name), "7946")
		if front, err := n.Member(name, bind); err != nil || front != bind {
			t.Fatalf("%s, %v; want %s", front, err, bind)
		}
		var s net.PacketConn
		try(t, inside(n.place(name).space, func() (err error) { s, err = net.ListenPacket("udp4", bind); return err }))
		t.Cleanup(func() { s.Close() })
		socks = append(socks, s)
	}
	// arrive says how many of those that are sent one after the other do.
	arrive := func(from, to net.PacketConn, sent int) (got int) {
		t.Helper()
		for range sent {
			if passes(t, from, to, to.LocalAddr(), from.LocalAddr(), 20*time.Millisecond) {
				got++
			}
		}
		return got
	}
	try(t, n.Lose("m1", "m2", 50))
	const sent = 100
	if got := arrive(socks[0], socks[1], sent); got < sent/4 || got > sent*3/4 {
		t.Errorf("%d of %d arrived, want about half", got, sent)
	}
	if got := arrive(socks[1], socks[0], 50); got != 50 {
		t.Errorf("%d of 50 arrived in the other direction", got)
	}
	try(t, n.CutWay("m1", "m2"))
	if got := arrive(socks[0], socks[1], 5); got != 0 {
		t.Errorf("%d of 5 arrived where nothing should", got)
	}
	try(t, n.Heal("m2", "m1"))
	if got := arrive(socks[0], socks[1], 50); got != 50 {
		t.Errorf("%d of 50 arrived after Heal", got)
	}
}

// The process that was started is the program, in its namespace.
func TestNamespacesCommand(t *testing.T) {
	n := namespaces(t)
	host(t, n, "m1")
	argv := n.Command("m1", "sleep", "60")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // as package program has it
	try(t, cmd.Start())
	dir := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	bounded, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := poll.Until(bounded, 5*time.Millisecond, func() (bool, error) {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		return strings.TrimSpace(string(name)) == "sleep", err
	})
	try(t, err)
	runs, err := os.Stat(filepath.Join(dir, "ns", "net"))
	try(t, err)
	space, err := os.Stat(filepath.Join(spaces, n.place("m1").space))
	try(t, err)
	if !os.SameFile(runs, space) {
		t.Error("it runs in another namespace")
	}
	for range 200 { // which ends no thread that a program was started on
		try(t, inside(n.place("m1").space, func() error { return nil }))
	}
	try(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", err)
	}
}

// What a run has left that was killed goes when the next one begins; what is in use stays.
func TestLeftovers(t *testing.T) {
	lives, dead := namespaces(t), namespaces(t)
	if lives.number == dead.number {
		t.Fatal("two networks have one number")
	}
	host(t, dead, "m1")
	host(t, lives, "m1")
	addr, err := lives.Server("a", echo(t))
	try(t, err)
	dead.held.Close() // as the kernel does with files of a process that was killed
	next := namespaces(t)
	if left := leftovers(); dead.number != next.number && slices.Contains(left, dead.number) || !slices.Contains(left, lives.number) {
		t.Errorf("there are %v; %d was to go, %d to stay", left, dead.number, lives.number)
	}
	c, err := from(t, lives, "m1", addr, soon)
	try(t, err)
	if !says(t, c, "one", soon) {
		t.Error("nothing passes any more")
	}
	if !inUse(address(lives.number, 9)) || inUse("203.0.113.1") {
		t.Error("addresses in use are not told from others")
	}
}

func TestChoose(t *testing.T) {
	want := OfNamespaces
	n, err := NewNamespaces()
	if err != nil {
		want = OfPorts
	} else {
		try(t, n.Close())
	}
	if k, why, err := Choose(Auto); err != nil || k != want || why == "" {
		t.Errorf("%q, %q, %v; want %q", k, why, err, want)
	}
	if k, _, err := Choose(OfPorts); err != nil || k != OfPorts {
		t.Errorf("%q, %v", k, err)
	}
	if _, _, err := Choose("strings"); err == nil {
		t.Error("a kind there is not was chosen")
	}
}
