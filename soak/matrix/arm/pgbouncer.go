package arm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"fencepost/internal/pgcluster"
	"fencepost/internal/program"
)

func (r *Running) startFixed(ctx context.Context, s *Setup) error {
	host, err := s.primary()
	if err != nil {
		return err
	}
	addr, err := r.launchPgBouncer(ctx, s, host)
	if err != nil {
		return err
	}
	r.Fixed, r.Version = true, "PgBouncer "+number(s.Programs.PgBouncer, "-V")
	return r.connectTo(s, "", addr)
}

// launchPgBouncer starts one in front of a host. server_login_retry, 15 s by default, is what a new client is refused for
// after a failed login: it is lowered, or PgBouncer would mostly be measured asleep.
func (r *Running) launchPgBouncer(ctx context.Context, s *Setup, host Host) (addr string, err error) {
	as, err := program.ServerAccount()
	if err != nil {
		return "", err
	}
	dir, err := program.Folder(s.Dir, r.Name, as)
	if err != nil {
		return "", err
	}
	addr, port, err := pgcluster.FreeAddr()
	if err != nil {
		return "", err
	}
	serverHost, serverPort, err := net.SplitHostPort(host.Addr)
	if err != nil {
		return "", err
	}
	users := filepath.Join(dir, "users.txt")
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 1000
server_login_retry = 1
log_connections = 0
log_disconnections = 0
`, s.Database, serverHost, serverPort, port, users, s.mode(), s.Pool)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(os.WriteFile(file, []byte(ini), 0o644), os.WriteFile(users, fmt.Appendf(nil, "%q \"\"\n", s.User), 0o644)); err != nil {
		return "", err
	}
	argv := append(append([]string(nil), s.Programs.PgBouncer...), file)
	return addr, r.launch(ctx, "pgbouncer-"+host.Name, dir, addr, argv, syscall.SIGQUIT, as)
}
