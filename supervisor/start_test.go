package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
)

// visited is a port that counts who connects to it.
func visited(t *testing.T) (addr string, visits *atomic.Int64) {
	t.Helper()
	l := taken(t)
	visits = new(atomic.Int64)
	go func() { // ends with the test
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), visits
}

func taken(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// An address in use ends the start before a server or another member has heard of it, and leaves no other address in use.
func TestAnAddressInUseEndsTheStartFirst(t *testing.T) {
	for _, key := range []string{"listen_addr", "unix_socket_dir", "admin_http", "fleet.bind"} {
		t.Run(key, func(t *testing.T) {
			dir := t.TempDir()
			in := taken(t).Addr().String()
			at := map[string]string{"listen_addr": fmt.Sprintf("127.0.0.1:%d", free(t)), "admin_http": fmt.Sprintf("127.0.0.1:%d", free(t)), "fleet.bind": fmt.Sprintf("127.0.0.1:%d", free(t))}
			if at[key] = in; key == "unix_socket_dir" {
				_, port, _ := net.SplitHostPort(at["listen_addr"])
				l, err := net.Listen("unix", dir+"/.s.PGSQL."+port)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			server, logins := visited(t)
			other, joins := visited(t)
			_, err := Start(everywhere(t, at, dir, server, other), "test", zerolog.Nop())
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("the start failed with %v", err)
			}
			if logins.Load()+joins.Load() > 0 {
				t.Errorf("%d logins, %d attempts to join", logins.Load(), joins.Load())
			}
			for k, addr := range at {
				l, err := net.Listen("tcp", addr)
				if (err == nil) == (k == key) {
					t.Errorf("%s afterwards: %v", k, err)
				}
				if err == nil {
					l.Close()
				}
			}
			files, err := os.ReadDir(dir)
			if own := key == "unix_socket_dir"; err != nil || len(files) != map[bool]int{false: 0, true: 1}[own] {
				t.Errorf("files afterwards: %v, %v", files, err)
			}
		})
	}
}

// What has been opened beforehand is what is served.
func TestEveryAddressIsServed(t *testing.T) {
	at := map[string]string{"listen_addr": fmt.Sprintf("127.0.0.1:%d", free(t)), "admin_http": fmt.Sprintf("127.0.0.1:%d", free(t)), "fleet.bind": fmt.Sprintf("127.0.0.1:%d", free(t))}
	dir := t.TempDir()
	server, _ := visited(t)
	other, joins := visited(t)
	s, err := Start(everywhere(t, at, dir, server, other), "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(at["listen_addr"])
	path := dir + "/.s.PGSQL." + port
	for network, addr := range map[string]string{"tcp": at["listen_addr"], "unix": path} {
		c, err := net.Dial(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}); err != nil { // SSLRequest
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil || b[0] != 'N' {
			t.Errorf("%s: %q, %v", network, b, err)
		}
		c.Close()
	}
	for end := time.Now().Add(10 * time.Second); joins.Load() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not join")
		}
	}
	s.Shutdown(admin.Immediate)
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	for k, addr := range at {
		if l, err := net.Listen("tcp", addr); err != nil {
			t.Errorf("%s afterwards: %v", k, err)
		} else {
			l.Close()
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the Unix socket afterwards: %v", err)
	}
}

// everywhere are settings with every kind of address.
func everywhere(t *testing.T, at map[string]string, dir, server, other string) *config.Config {
	t.Helper()
	_, port, _ := net.SplitHostPort(at["listen_addr"])
	cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, `
[fencepost]
listen_port = %s
listen_addr = "127.0.0.1"
unix_socket_dir = %q
admin_http = %q
auth_type = "trust"
[fleet]
name = "test"
member = "a"
peer_id = 1
bind = %q
join = [%q]
[shards.main]
hosts = [%q]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`, port, dir, at["admin_http"], at["fleet.bind"], other, server))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
