package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"fencepost/admin"
	"fencepost/cluster"
	"fencepost/config"
)

// sockets are all that the process listens on. They are open before anything else begins: a port in use ends a start that no
// server and no other member has heard of. What connects meanwhile waits in the kernel's queue.
type sockets struct {
	tcp      []net.Listener
	unix     net.Listener  // nil: none
	path     string        // of the Unix socket's file; "": it has none
	inode    os.FileInfo   // of that file: a successor may have put its own there by the end
	http     *admin.Server // nil: none
	fleet    cluster.Config
	gossip   io.Closer // nil: no fleet
	released bool      // the listener has the sockets for clients
}

// bind opens what the settings name. It reports each address that cannot be had, and leaves nothing open then.
func bind(s *Fencepost, cfg *config.Config) (*sockets, error) {
	b := &sockets{}
	err := errors.Join(b.listen(&cfg.Fencepost), b.listenHTTP(s, &cfg.Fencepost), b.listenFleet(s, cfg))
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// listen opens the sockets for clients. It blocks for no longer than bind and listen do.
func (b *sockets) listen(f *config.Fencepost) error {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error { return control(c, f) }}
	for _, addr := range f.ListenAddresses() {
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return fmt.Errorf("listen_addr %s: %w", addr, err)
		}
		b.tcp = append(b.tcp, ln)
	}
	if path := f.UnixSocket(); path != "" {
		return b.listenUnix(path, f)
	}
	return nil
}

func (b *sockets) listenUnix(path string, f *config.Fencepost) error {
	file := path[0] != '@'
	if file {
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			if !f.SoReuseport {
				return fmt.Errorf("unix_socket_dir: %s is in use by another process", path)
			}
		}
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("unix_socket_dir: %w", err)
		}
	}
	var err error
	if b.unix, err = net.Listen("unix", path); err != nil {
		return fmt.Errorf("unix_socket_dir: %w", err)
	}
	if file {
		b.unix.(*net.UnixListener).SetUnlinkOnClose(false)
		b.path = path
		if b.inode, err = os.Lstat(path); err != nil {
			return fmt.Errorf("unix_socket_dir: %w", err)
		}
		if err := os.Chmod(path, f.UnixSocketMode); err != nil {
			return fmt.Errorf("unix_socket_mode: %w", err)
		}
	}
	return nil
}

func (b *sockets) listenHTTP(s *Fencepost, f *config.Fencepost) error {
	if f.AdminHTTP == "" {
		return nil
	}
	b.http = admin.NewServer(s, s.log)
	if err := b.http.Listen(f.AdminHTTP, f.SoReuseport); err != nil {
		return fmt.Errorf("admin_http: %w", err)
	}
	return nil
}

func (b *sockets) listenFleet(s *Fencepost, cfg *config.Config) error {
	if cfg.Fleet == nil {
		return nil
	}
	c, err := s.fleetConfig(cfg.Fleet, cfg.Fencepost.AdminHTTP)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if b.fleet, b.gossip, err = c.Bound(); err != nil {
		return fmt.Errorf("fleet.bind %s: %w", cfg.Fleet.Bind, err)
	}
	return nil
}

// close ends HTTP and closes what nobody has taken.
func (b *sockets) close() (err error) {
	if b.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = b.http.Stop(ctx)
	}
	if b.gossip != nil {
		_ = b.gossip.Close()
	}
	if b.released {
		return err
	}
	for _, l := range b.tcp {
		_ = l.Close()
	}
	if b.unix != nil {
		_ = b.unix.Close()
	}
	b.removeFile()
	return err
}

// removeFile removes the Unix socket's file, if it is still this process's.
func (b *sockets) removeFile() {
	if b.path == "" || b.inode == nil {
		return
	}
	if now, err := os.Lstat(b.path); err == nil && os.SameFile(now, b.inode) {
		_ = os.Remove(b.path)
	}
	b.path = ""
}
