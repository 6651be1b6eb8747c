// Package demo runs Fencepost's main job on one machine: a real primary and two streaming standbys, a fleet of three
// Fenceposts in front of them, clients that write and read through all of them, and after a while the end of the primary.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"fencepost/internal/pgcluster"
)

// Options of a demo.
type Options struct {
	Out      io.Writer
	Port     int             // of the first member, and the next ones of the others; free ones are taken for those in use
	Clients  int             // sample clients, spread over the members; a quarter of them, at least one, reads from standbys
	Version  string          // of Fencepost
	For      time.Duration   // 0: until ctx ends
	Failover time.Duration   // when the primary is killed; 0: only when asked
	Again    <-chan struct{} // each value asks for a failover; nil: nobody asks
}

const (
	user     = "app"
	password = "demo"
	poolSize = 4
	members  = 3
)

// stage is what a running demo consists of.
type stage struct {
	say     func(format string, args ...any)
	options Options
	cluster *pgcluster.Cluster
	members [members]member
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

	s.place()
	s.say("Starting a fleet of %d Fenceposts, whose settings list the three servers without roles (%s) …", members, filepath.Join(dir, "m1.toml"))
	end, err := s.begin(dir)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return err
	}
	if err := setUp(ctx, s.port(0)); err != nil {
		return err
	}
	s.banner(dir)
	return s.play(ctx)
}

func (s *stage) banner(dir string) {
	m := s.members
	s.say(`
The members listen on 127.0.0.1:%[1]d, %[8]d and %[9]d. %[2]d clients write and %[3]d read from standbys, in turns by way of each of
them; a member has %[4]d server connections for each server at most. In another terminal, try, with any of the ports:

  export PGPASSWORD=%[5]s
  psql -h 127.0.0.1 -p %[1]d -U app app                            a session through Fencepost, on the primary
  psql -h 127.0.0.1 -p %[8]d -U app app_read -c 'SELECT pg_is_in_recovery()'          … on a standby
  PGOPTIONS='-c fencepost.target=standby' psql -h 127.0.0.1 -p %[1]d -U app app       … on a standby, as the client wants
  psql 'host=127.0.0.1,127.0.0.1 port=%[8]d,%[1]d user=app dbname=app'       … at whichever member is there
  psql -h 127.0.0.1 -p %[1]d -U app fencepost -c 'SHOW SHARDS'     the console: also SHOW FLEET, SHOW REPLICATION, SHOW HELP
  pgbench -h 127.0.0.1 -p %[1]d -U app -i app && pgbench -h 127.0.0.1 -p %[1]d -U app -c 50 -T 10 app
  curl -s http://%[6]s/metrics | grep fencepost_shard

The members' logs: %[7]s`, m[0].port, s.options.writers(), s.options.readers(), poolSize, password, m[0].http, filepath.Join(dir, "m*.log"),
		m[1].port, m[2].port)
	if d := s.options.Failover; d > 0 {
		s.say("In %s the primary will be killed and a standby promoted.", d)
	}
	if s.options.Again != nil {
		s.say("Press Enter to start a failover at any time, as often as you like.")
	}
	s.say("Ctrl-C ends the demo and removes everything it made.\n")
}
