package network

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/prometheus/procfs"
)

// Both ways to ask the kernel give the same answer.
func TestInode(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	local, remote := c.LocalAddr().(*net.TCPAddr).Port, ln.Addr().(*net.TCPAddr).Port
	want := listed(t, local, remote)
	inode, err := diagnose(local, remote)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(inode) != want || want == "" || !holds(os.Getpid(), "socket:["+want+"]") {
		t.Errorf("inode %d, want %q", inode, want)
	}
	if _, err := diagnose(1, 2); err != errNoSocket {
		t.Errorf("a socket there is not: %v", err)
	}
	c.Close()
	if inode, err := diagnose(local, remote); inode != 0 || err != nil && err != errNoSocket {
		t.Errorf("a socket that was closed: %d %v", inode, err)
	}
}

func listed(t *testing.T, local, remote int) string {
	t.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	all, err := proc.NetTCP() //nolint:staticcheck // the other way to ask
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.LocalPort == uint64(local) && s.RemPort == uint64(remote) {
			return fmt.Sprint(s.Inode)
		}
	}
	return ""
}
