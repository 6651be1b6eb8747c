package network

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// orphan is the owner of a connection whose other end has been closed already, after it was written to.
const orphan = "orphan"

// owner is the member that has the other end of a connection, "" if no member has. A process that was started a moment ago
// may not have been announced yet.
func (n *Ports) owner(c net.Conn) string {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	own, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return ""
	}
	for range 10 {
		inode := inodeOf(peer.Port, own.Port)
		if inode == "" {
			return orphan
		}
		n.mu.Lock()
		pids := make(map[int]string, len(n.pids))
		for pid, name := range n.pids {
			pids[pid] = name
		}
		n.mu.Unlock()
		for pid, name := range pids {
			if holds(pid, "socket:["+inode+"]") {
				return name
			}
		}
		select {
		case <-n.gone:
			return ""
		case <-time.After(5 * time.Millisecond):
		}
	}
	return ""
}

// inodeOf is the socket with these ports of its own and of its peer; "" if there is none. Both ends are on the loopback
// interface.
func inodeOf(local, remote int) string {
	switch inode, err := diagnose(local, remote); {
	case err == nil && inode != 0:
		return fmt.Sprint(inode)
	case err == nil || errors.Is(err, errNoSocket):
		return ""
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	wantLocal, wantRemote := fmt.Sprintf(":%04X", local), fmt.Sprintf(":%04X", remote)
	for s := bufio.NewScanner(f); s.Scan(); {
		// "  12: 0100007F:9C40 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 123456 …"
		fields := strings.Fields(s.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], wantLocal) && strings.HasSuffix(fields[2], wantRemote) && fields[9] != "0" {
			return fields[9]
		}
	}
	return ""
}

// holds reports whether a process has a file open.
func holds(pid int, link string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == link {
			return true
		}
	}
	return false
}
