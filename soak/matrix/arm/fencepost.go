package arm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"fencepost/internal/pgcluster"
	"fencepost/internal/program"
)

// admin is the console's user.
const admin = "operator"

func (r *Running) startFencepost(ctx context.Context, s *Setup) error {
	return r.launchFencepost(ctx, s, "", s.Programs.Fencepost, "serve", "-c")
}

// startControl: no fence, for a fence alone would find the wrong server out.
func (r *Running) startControl(ctx context.Context, s *Setup) error {
	return r.launchFencepost(ctx, s, `fence = "off"`, s.Programs.Control, "-without", "election", "-c")
}

// settings is the file of both. What is not here has its default.
func (s *Setup) settings(port int, http, fence string) string {
	var hosts []string
	for _, h := range s.Hosts {
		hosts = append(hosts, fmt.Sprintf("%q", h.Addr))
	}
	mode := "transaction"
	if s.Session {
		mode = "session"
	}
	return fmt.Sprintf(`[fencepost]
listen_addr = "127.0.0.1"
listen_port = %d
unix_socket_dir = ""
auth_type = "trust"
admin_users = [%q]
admin_http = %q
pool_mode = %q
default_pool_size = %d
log_connections = false
log_disconnections = false

[shards.main]
hosts = [%s]
monitor_user = %q
failover_warm = %d

[databases.%s]
shard = "main"
%s
`, port, admin, http, mode, s.Pool, strings.Join(hosts, ", "), s.User, s.Warm, s.Database, fence)
}

func (r *Running) launchFencepost(ctx context.Context, s *Setup, fence, binary string, args ...string) error {
	addr, port, err := pgcluster.FreeAddr()
	if err != nil {
		return err
	}
	http, _, err := pgcluster.FreeAddr()
	if err != nil {
		return err
	}
	dir, err := program.Folder(s.Dir, r.Name, nil)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(file, []byte(s.settings(port, http, fence)), 0o600); err != nil {
		return err
	}
	r.Version = version(s.Programs.Fencepost, "version")
	if err := r.launch(ctx, r.Name, dir, addr, append(append([]string{binary}, args...), file), syscall.SIGINT, nil); err != nil {
		return err
	}
	r.console = openConsole(addr)
	r.ends = append(r.ends, r.console.close)
	return r.connectTo(s, "", addr)
}
