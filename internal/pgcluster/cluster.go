// Package pgcluster runs real PostgreSQL for tests, the demo and the benchmarks: one primary, any number of streaming
// standbys, any version from 12 on.
//
//	c := pgcluster.New(t, pgcluster.Options{Version: "18", Standbys: 1})
//	conn, err := c.Primary().Connect(ctx, "postgres")
//
// Servers listen on 127.0.0.1 and on a unix socket in a folder of their own, run as the user postgres when we are root,
// do not wait for the disk, and start in a fraction of a second: initdb runs once per version, every cluster is a copy of
// its result with a system identifier of its own. They are stopped by process id, and by a small watching shell should
// this process be killed.
//
// Nothing here is safe for concurrent use on one Node; different nodes may be driven from different goroutines.
package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"fencepost/internal/poll"
)

// Superuser is the role every server has; over the unix socket it needs no password.
const Superuser = "postgres"

// Options says what to start. The zero value is one server of DefaultVersion that trusts everybody.
type Options struct {
	Version  string            // major version, "12" to "18"; "" for DefaultVersion
	Standbys int               // streaming standbys beside the primary
	Conf     map[string]string // settings of postgresql.conf, unquoted; they override the ones made here, on all nodes

	Auth      string   // pg_hba method for TCP: "trust" (default), "password", "md5", "scram-sha-256"
	HBA       []string // lines of pg_hba.conf that come before the ones made here
	Roles     []Role
	Databases []string // created on the primary, owned by Superuser

	Dir string // where the cluster's own folder is made; "" for a file system in memory or the folder for temporary files

	// Upstream, if not nil, is asked once for each node, before it first starts, at which host:port the nodes that follow it
	// are to reach it.
	Upstream func(*Node) (addr string, err error)
}

// Role is a login role to create.
type Role struct {
	Name       string
	Password   string // "" for none
	Encryption string // how the server keeps it: "scram-sha-256" (default) or "md5"
	Attributes string // appended to CREATE ROLE, for example "SUPERUSER" or "CONNECTION LIMIT 3"
}

// Cluster is one replication group. Stop ends it.
type Cluster struct {
	Nodes []*Node // in the order they were started; Nodes[0] is the first primary
	Dir   string  // everything the cluster has on disk; removed by Stop

	opts    Options
	as      account
	binDir  string
	primary *Node
	end     func() error // of the sentinel
}

// TB is what New needs of testing.TB.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// New starts a cluster for a test, fails the test if that is impossible and stops the cluster when the test ends. The
// servers' logs are printed if the test failed.
func New(tb TB, opts Options) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), opts)
	if err != nil {
		tb.Fatalf("pgcluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, n := range c.Nodes {
				tb.Logf("log of PostgreSQL %s, end:\n%s", n.Name, tail(n.Log(), 40))
			}
		}
		if err := c.Stop(); err != nil {
			tb.Logf("pgcluster: stop: %v", err)
		}
	})
	return c
}

// Start starts a cluster and returns when the primary takes writes and every standby streams and has replayed what was
// written so far. What it began is undone when it fails or ctx ends. The first start of a version also fetches its
// programs (see Install) and runs initdb.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	binDir, err := Install(ctx, opts.Version)
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	from, err := template(ctx, binDir, as)
	if err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		opts.Dir = workDir()
	}
	dir, err := os.MkdirTemp(opts.Dir, "fencepost-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, opts: opts, as: as, binDir: binDir}
	if c.end, err = startSentinel(dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := as.own(dir); err != nil {
		return nil, err
	}
	if err := c.lay(ctx, from); err != nil {
		return nil, err
	}
	if err := c.Nodes[0].Start(ctx); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.Nodes[1:] {
		g.Go(func() error { return n.Start(gctx) })
	}
	g.Go(func() error { return c.populate(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return c, c.CatchUp(ctx)
}

// newNode adds a node that has a name, a port and no data directory yet.
func (c *Cluster) newNode() (*Node, error) {
	port, held, err := reservePort()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("n%d", len(c.Nodes))
	n := &Node{
		Name: name, Host: "127.0.0.1", Port: port, SocketDir: c.Dir, DataDir: filepath.Join(c.Dir, name), BinDir: c.binDir,
		c: c, held: held, upstream: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	c.Nodes = append(c.Nodes, n)
	if c.opts.Upstream != nil {
		if n.upstream, err = c.opts.Upstream(n); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// lay makes the data directories: the template's copy for the primary, copies of that for the standbys.
func (c *Cluster) lay(ctx context.Context, template string) error {
	for i := range c.opts.Standbys + 1 {
		n, err := c.newNode()
		if err != nil {
			return err
		}
		if i == 0 {
			c.primary = n
			if err := clone(ctx, template, n.DataDir, c.as); err != nil {
				return err
			}
			if err := renumber(n.DataDir); err != nil {
				return err
			}
			continue
		}
		if err := clone(ctx, c.primary.DataDir, n.DataDir, c.as); err != nil {
			return err
		}
		if err := n.configure(); err != nil {
			return err
		}
		if err := n.follow(c.primary); err != nil {
			return err
		}
	}
	return c.primary.configure()
}

// populate creates the roles and databases that the options ask for.
func (c *Cluster) populate(ctx context.Context) error {
	var sql []string
	for _, r := range c.opts.Roles {
		name := pgx.Identifier{r.Name}.Sanitize()
		enc := r.Encryption
		if enc == "" {
			enc = "scram-sha-256"
		}
		pw := "NULL"
		if r.Password != "" {
			pw = quote(r.Password)
		}
		sql = append(sql, "SET password_encryption = "+quote(enc), "CREATE ROLE "+name+" LOGIN PASSWORD "+pw+" "+r.Attributes)
	}
	for _, db := range c.opts.Databases {
		sql = append(sql, "CREATE DATABASE "+pgx.Identifier{db}.Sanitize())
	}
	if len(sql) == 0 {
		return nil
	}
	return c.primary.Exec(ctx, sql...)
}

// Primary is the node that was promoted last, at first Nodes[0]; when that one is made to follow another, it is the other
// one. It is the cluster's own bookkeeping: nobody is asked, and the node may be stopped.
func (c *Cluster) Primary() *Node { return c.primary }

// Standbys are all nodes but the primary.
func (c *Cluster) Standbys() []*Node {
	var nodes []*Node
	for _, n := range c.Nodes {
		if n != c.primary {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// CatchUp waits until every running node that follows the primary has replayed what the primary has written by now, or
// until ctx ends.
func (c *Cluster) CatchUp(ctx context.Context) error {
	// Where the next record would go is not always a place that replay reaches (behind a switch of segments it is not),
	// so a record is written and flushed first.
	if err := c.primary.Exec(ctx, "SELECT pg_logical_emit_message(true, 'fencepost', 'catch up')"); err != nil {
		return err
	}
	var lsn string
	if err := c.primary.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text", &lsn); err != nil {
		return err
	}
	for _, n := range c.Standbys() {
		if n.following != c.primary || !n.Running() || n.Frozen() {
			continue
		}
		conn, err := n.Connect(ctx, "postgres")
		if err != nil {
			return err
		}
		err = poll.Until(ctx, pollEvery, func() (ok bool, err error) {
			err = conn.QueryRow(ctx, `SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)
				AND EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')`, lsn).Scan(&ok)
			return ok, err
		})
		conn.Close(ctx)
		if err != nil {
			return fmt.Errorf("standby %s did not reach %s: %w\n%s", n.Name, lsn, err, tail(n.Log(), 10))
		}
	}
	return nil
}

// Stop ends all servers at once, without a checkpoint, and removes the cluster's folder. It waits for the processes to be
// gone; one that does not go within 10 s is killed. It is safe to call again.
func (c *Cluster) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var g errgroup.Group
	for _, n := range c.Nodes {
		g.Go(func() error { return n.discard(ctx) })
	}
	err := g.Wait()
	if c.end != nil {
		err = errors.Join(err, c.end())
		c.end = nil
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
