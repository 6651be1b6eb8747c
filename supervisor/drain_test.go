package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
)

// free is a TCP port that nobody listens on.
func free(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// running starts a process whose server is never asked for, and returns the addresses for clients and for HTTP.
func running(t *testing.T, grace string) (s *Fencepost, clients, web string) {
	t.Helper()
	clients, web = fmt.Sprintf("127.0.0.1:%d", free(t)), fmt.Sprintf("127.0.0.1:%d", free(t))
	return start(t, clients, web, grace, ""), clients, web
}

func start(t *testing.T, clients, web, grace, sockets string) *Fencepost {
	t.Helper()
	_, port, _ := net.SplitHostPort(clients)
	cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, `
[fencepost]
listen_port = %s
unix_socket_dir = %q
so_reuseport = true
admin_http = %q
auth_type = "trust"
admin_users = ["ops"]
drain_grace = %q
[shards.main]
hosts = [{ addr = "127.0.0.1:1", role = "any" }]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`, port, sockets, web, grace))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(admin.Immediate); _ = s.Wait() })
	return s
}

func ready(t *testing.T, web string) int {
	t.Helper()
	resp, err := http.Get("http://" + web + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// enters reports whether a client of the console gets in.
func enters(t *testing.T, addr string) bool {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	f := pgproto3.NewFrontend(c, c)
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "ops", "database": "fencepost"}})
	if err := f.Flush(); err != nil {
		return false
	}
	m, err := f.Receive()
	_, ok := m.(*pgproto3.AuthenticationOk)
	return err == nil && ok
}

// Whoever asks /readyz is told at once, and clients are still taken; another order to end overtakes the wait.
func TestDrainGrace(t *testing.T) {
	s, clients, web := running(t, "1h")
	if got := ready(t, web); got != http.StatusOK || !enters(t, clients) {
		t.Fatalf("/readyz %d", got)
	}
	s.Shutdown(admin.WaitForServers)
	for end := time.Now().Add(10 * time.Second); ready(t, web) != http.StatusServiceUnavailable; {
		if time.Now().After(end) {
			t.Fatal("/readyz does not say it")
		}
	}
	if !enters(t, clients) {
		t.Error("no client is taken within drain_grace")
	}
	s.Shutdown(admin.Immediate)
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("drain_grace holds up the end")
	}
	if enters(t, clients) {
		t.Error("clients are taken after the end")
	}
}

// The wait ends by itself, and not before its time.
func TestDrainGraceEnds(t *testing.T) {
	s, _, _ := running(t, "300ms")
	began := time.Now()
	s.Shutdown(admin.WaitForServers)
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("ended after %v", took)
	}
}

// A process that takes over has its socket file and its port when the one before it has ended.
func TestSuccessor(t *testing.T) {
	dir := t.TempDir()
	clients, web := fmt.Sprintf("127.0.0.1:%d", free(t)), fmt.Sprintf("127.0.0.1:%d", free(t))
	first := start(t, clients, web, "0s", dir)
	start(t, clients, web, "0s", dir)
	first.Shutdown(admin.WaitForServers)
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	if !enters(t, clients) || ready(t, web) != http.StatusOK {
		t.Error("the port is gone")
	}
	_, port, _ := net.SplitHostPort(clients)
	c, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL."+port))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A client of the Unix socket has no address; the log says where it came from.
func TestLogOfUnixClients(t *testing.T) {
	dir, port := t.TempDir(), free(t)
	cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, `
[fencepost]
listen_port = %d
listen_addr = "127.0.0.1"
unix_socket_dir = %q
admin_http = ""
auth_type = "trust"
admin_users = ["ops"]
[shards.main]
hosts = [{ addr = "127.0.0.1:1", role = "any" }]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`, port, dir))
	if err != nil {
		t.Fatal(err)
	}
	lines := make(lineLog, 100)
	s, err := Start(cfg, "test", zerolog.New(lines))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(admin.Immediate); _ = s.Wait() }()
	c, err := net.Dial("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", port)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := pgproto3.NewFrontend(c, c)
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "ops", "database": "fencepost"}})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	limit := time.After(10 * time.Second)
	for {
		select {
		case line := <-lines:
			if strings.Contains(line, "client logged in") {
				if !strings.Contains(line, `"addr":"unix"`) {
					t.Error(line)
				}
				return
			}
		case <-limit:
			t.Fatal("no line says that a client has logged in")
		}
	}
}

// lineLog passes on the lines of a log; those beyond its room are dropped.
type lineLog chan string

func (l lineLog) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}
