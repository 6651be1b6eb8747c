// Package demo runs Fencepost's main job on one machine: a real primary and two streaming standbys, Fencepost in front of
// them, clients that write and read through it, and after a while the end of the primary.
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
	Out      io.Writer
	Port     int             // of Fencepost; a free one is taken if it is in use
	Clients  int             // sample clients; a quarter of them, at least one, reads from standbys
	Version  string          // of Fencepost
	For      time.Duration   // 0: until ctx ends
	Failover time.Duration   // when the primary is killed; 0: only when asked
	Again    <-chan struct{} // each value asks for a failover; nil: nobody asks
}

const (
	user     = "app"
	password = "demo"
	poolSize = 4
)

// stage is what a running demo consists of.
type stage struct {
	say     func(format string, args ...any)
	options Options
	cluster *pgcluster.Cluster
	port    int // of Fencepost
	tally   *tally
}

// Run runs the demo until ctx ends, and removes everything it made.
func Run(ctx context.Context, o Options) (err error) {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	s := &stage{say: func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }, options: o, tally: newTally()}
	dir, err := os.MkdirTemp("", "fencepost-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	s.say("Starting PostgreSQL: a primary and two streaming standbys …")
	began := time.Now()
	s.cluster, err = pgcluster.Start(ctx, pgcluster.Options{Standbys: 2, Auth: "scram-sha-256", Databases: []string{"app"},
		Roles: []pgcluster.Role{{Name: user, Password: password, Attributes: "SUPERUSER"}}})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() {
		s.say("Stopping PostgreSQL …")
		err = errors.Join(err, s.cluster.Stop())
	}()
	s.say("  %s is the primary, %s and %s are standbys (%.1f s)", s.cluster.Nodes[0].Addr(), s.cluster.Nodes[1].Addr(),
		s.cluster.Nodes[2].Addr(), time.Since(began).Seconds())

	s.port = freePort(o.Port)
	httpAddr := fmt.Sprintf("127.0.0.1:%d", freePort(o.Port+1))
	path := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(path, s.settings(httpAddr), 0o600); err != nil {
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
	s.say("Starting Fencepost, which is told where the three are and not which is what (settings: %s) …", path)
	f, err := supervisor.Start(cfg, o.Version, zerolog.New(logFile).With().Timestamp().Logger())
	if err != nil {
		return err
	}
	defer func() {
		s.say("Stopping Fencepost …")
		f.Shutdown(admin.WaitForServers)
		err = errors.Join(err, f.Wait())
	}()
	if err := setUp(ctx, s.port); err != nil {
		return err
	}
	s.banner(httpAddr, logFile.Name())
	return s.play(ctx)
}

func (s *stage) settings(httpAddr string) []byte {
	n := s.cluster.Nodes
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
hosts = [%q, %q, %q]

[databases.app]
shard = "main"

[databases.app_read]
shard = "main"
dbname = "app"
target = "prefer-standby"

[users.%s]
password = %q
`, s.port, httpAddr, user, poolSize, n[0].Addr(), n[1].Addr(), n[2].Addr(), user, password)
}

func (s *stage) banner(httpAddr, logFile string) {
	s.say(`
Fencepost listens on 127.0.0.1:%[1]d; %[2]d clients write and %[3]d read from standbys, over %[4]d server connections for
each server at most. In another terminal, try:

  export PGPASSWORD=%[5]s
  psql -h 127.0.0.1 -p %[1]d -U app app                            a session through Fencepost, on the primary
  psql -h 127.0.0.1 -p %[1]d -U app app_read -c 'SELECT pg_is_in_recovery()'          … on a standby
  PGOPTIONS='-c fencepost.target=standby' psql -h 127.0.0.1 -p %[1]d -U app app       … on a standby, as the client wants
  psql -h 127.0.0.1 -p %[1]d -U app fencepost -c 'SHOW SHARDS'     the console: also SHOW REPLICATION, SHOW POOLS, SHOW HELP
  pgbench -h 127.0.0.1 -p %[1]d -U app -i app && pgbench -h 127.0.0.1 -p %[1]d -U app -c 50 -T 10 app
  curl -s http://%[6]s/metrics | grep fencepost_shard

Fencepost's log: %[7]s`, s.port, s.options.writers(), s.options.readers(), poolSize, password, httpAddr, logFile)
	if d := s.options.Failover; d > 0 {
		s.say("In %s the primary will be killed and a standby promoted.", d)
	}
	if s.options.Again != nil {
		s.say("Press Enter to have that done at another time, as often as you like.")
	}
	s.say("Ctrl-C ends the demo and removes all of it.\n")
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
