package network

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/prometheus/procfs"
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
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	all, _ := proc.NetTCP() //nolint:staticcheck // it asks the kernel as diagnose could not
	for _, s := range all {
		if s.LocalPort == uint64(local) && s.RemPort == uint64(remote) && s.Inode != 0 {
			return fmt.Sprint(s.Inode)
		}
	}
	return ""
}

// holds reports whether a process has a file open.
func holds(pid int, link string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	all, _ := p.FileDescriptorTargets()
	return slices.Contains(all, link)
}
