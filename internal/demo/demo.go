// Package demo runs Fencepost's main job on one machine: a real primary and a streaming standby, Fencepost in front of
// them, and clients that work through it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/internal/pgcluster"
	"fencepost/supervisor"
)

// Options of a demo.
type Options struct {
	Out     io.Writer
	Port    int           // of Fencepost; a free one is taken if it is in use
	Clients int           // sample clients
	Version string        // of Fencepost
	For     time.Duration // 0: until ctx ends
}

const (
	user     = "app"
	password = "demo"
	poolSize = 4
)

// Run runs the demo until ctx ends, and removes everything it made.
func Run(ctx context.Context, o Options) (err error) {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	say := func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }
	dir, err := os.MkdirTemp("", "fencepost-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	say("Starting PostgreSQL: a primary and a streaming standby …")
	began := time.Now()
	cluster, err := pgcluster.Start(ctx, pgcluster.Options{Standbys: 1, Auth: "scram-sha-256", Databases: []string{"app"},
		Roles: []pgcluster.Role{{Name: user, Password: password, Attributes: "SUPERUSER"}}})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() {
		say("Stopping PostgreSQL …")
		err = errors.Join(err, cluster.Stop())
	}()
	primary, standby := cluster.Primary(), cluster.Standbys()[0]
	say("  primary %s and standby %s are up (%.1f s)", primary.Addr(), standby.Addr(), time.Since(began).Seconds())

	port, httpAddr := freePort(o.Port), fmt.Sprintf("127.0.0.1:%d", freePort(o.Port+1))
	path := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(path, settings(port, httpAddr, primary.Addr(), standby.Addr()), 0o600); err != nil {
		return err
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	logFile, err := os.Create(filepath.Join(dir, "fencepost.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	say("Starting Fencepost (settings: %s) …", path)
	f, err := supervisor.Start(cfg, o.Version, zerolog.New(logFile).With().Timestamp().Logger())
	if err != nil {
		return err
	}
	defer func() {
		say("Stopping Fencepost …")
		f.Shutdown(admin.WaitForServers)
		err = errors.Join(err, f.Wait())
	}()
	if err := setUp(ctx, port); err != nil {
		return err
	}
	banner(say, o, port, httpAddr, logFile.Name())
	return load(ctx, say, o.Clients, port)
}

func settings(port int, httpAddr, primary, standby string) []byte {
	return fmt.Appendf(nil, `# Written by fencepost demo; removed when it ends.
[fencepost]
listen_port = %d
unix_socket_dir = ""
admin_http = %q
admin_users = [%q]
default_pool_size = %d
log_connections = false
log_disconnections = false
drain_timeout = "3s"

[shards.main]
hosts = [%q]

[shards.standby]
hosts = [%q]

[databases.app]
shard = "main"

[databases.app_read]
shard = "standby"
dbname = "app"

[users.%s]
password = %q
`, port, httpAddr, user, poolSize, primary, standby, user, password)
}

func banner(say func(string, ...any), o Options, port int, httpAddr, logFile string) {
	say(`
Fencepost listens on 127.0.0.1:%[1]d; %[2]d clients share %[3]d server connections. In another terminal, try:

  export PGPASSWORD=%[4]s
  psql -h 127.0.0.1 -p %[1]d -U app app                       a session through Fencepost, on the primary
  psql -h 127.0.0.1 -p %[1]d -U app app_read -c 'SELECT pg_is_in_recovery()'     … on the standby
  psql -h 127.0.0.1 -p %[1]d -U app fencepost -c 'SHOW POOLS' the console (SHOW HELP lists its commands)
  pgbench -h 127.0.0.1 -p %[1]d -U app -i app && pgbench -h 127.0.0.1 -p %[1]d -U app -c 50 -T 10 app
  curl -s http://%[5]s/metrics | grep fencepost_

Fencepost's log: %[6]s
Ctrl-C ends the demo and removes all of it.
`, port, o.Clients, poolSize, password, httpAddr, logFile)
}

// freePort is want if nobody listens there, else a port the system picks.
func freePort(want int) int {
	for _, p := range []int{want, 0} {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err == nil {
			defer ln.Close()
			return ln.Addr().(*net.TCPAddr).Port
		}
	}
	return want
}
