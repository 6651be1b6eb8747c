package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
)

// Config says what to start.
type Config struct {
	Version     string // major version of PostgreSQL, "12" to "18"; "" for pgcluster.DefaultVersion
	Standbys    int    // streaming standbys beside the primary, 1 or more
	Synchronous bool   // a commit waits for one standby, whichever; with one standby alone a dead server stops all writes

	Roles     []pgcluster.Role  // created beside the superuser, without passwords, over TCP too
	Databases []string          // created, owned by the superuser
	Conf      map[string]string // settings of postgresql.conf that override those made here, on all servers

	Log      zerolog.Logger
	Progress func(string) // called with a line now and then while something is under way, from any goroutine; nil: nobody listens
}

// World is a running cluster with its relays and its observer. Close ends it. One event at a time may run; everything else
// may be called from any goroutine.
type World struct {
	config   Config
	cluster  *pgcluster.Cluster
	servers  []*Server
	observer *Observer
	busy     atomic.Bool // an event is running
	close    func() error

	mu      sync.Mutex // guards primary
	primary *Server
}

// Start starts the cluster, the relays and the observer, and returns when every standby streams and the observer has seen
// every server. What it began is undone when it fails or ctx ends.
func Start(ctx context.Context, c Config) (_ *World, err error) {
	if c.Standbys < 1 {
		return nil, fmt.Errorf("world: %d standbys; a failover needs one", c.Standbys)
	}
	w := &World{config: c}
	w.close = sync.OnceValue(w.end)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the world: %w", err), w.Close())
		}
	}()
	w.say("starting PostgreSQL %s with %d standbys", c.version(), c.Standbys)
	w.cluster, err = pgcluster.Start(ctx, c.options(w.front))
	if err != nil {
		return nil, err
	}
	w.primary = w.servers[0]
	if err := layTable(ctx, w.primary.node); err != nil {
		return nil, err
	}
	w.observer = observe(w.servers, c.Log)
	return w, w.whole(ctx, nil)
}

func (c Config) version() string {
	if c.Version == "" {
		return pgcluster.DefaultVersion
	}
	return c.Version
}

// options of the cluster. Commits wait for a standby on whichever server takes them: servers that follow another one pay no
// heed to the setting, so that all have it and none has to be told when it is promoted.
func (c Config) options(upstream func(*pgcluster.Node) (string, error)) pgcluster.Options {
	conf := map[string]string{
		"max_connections":               "200",
		"min_wal_size":                  "32MB",
		"max_wal_size":                  "256MB",
		"wal_recycle":                   "off",
		"wal_init_zero":                 "off",
		"log_line_prefix":               logPrefix,
		"log_min_messages":              "error",
		"log_min_error_statement":       "panic",
		"log_checkpoints":               "off",
		"default_transaction_read_only": "off",
		"synchronous_standby_names":     "",
	}
	if c.Synchronous {
		conf["synchronous_standby_names"] = "ANY 1 (*)"
	}
	for k, v := range c.Conf {
		conf[k] = v
	}
	return pgcluster.Options{
		Version: c.Version, Standbys: c.Standbys, Conf: conf, Roles: c.Roles, Databases: c.Databases,
		HBA: []string{"host all " + pgcluster.Superuser + " 127.0.0.1/32 trust"}, Upstream: upstream,
	}
}

// Close ends the observer, the servers and the relays, removes the cluster's folder, and waits for all of it, at most half a
// minute. The error says which processes and ports are left, if any are.
func (w *World) Close() error { return w.close() }

func (w *World) end() error {
	if w.observer != nil {
		w.observer.end()
	}
	var pids []int
	for _, s := range w.servers {
		pids = append(pids, s.node.Processes()...)
	}
	var err error
	if w.cluster != nil {
		err = w.cluster.Stop()
	}
	for _, s := range w.servers {
		err = errors.Join(err, s.close())
	}
	return errors.Join(err, w.left(pids))
}

// pollEvery is how often what is waited for is asked for.
const pollEvery = 5 * time.Millisecond

// leaveLimit is how long processes of servers that have ended may take to go.
const leaveLimit = 3 * time.Second

// left says which of the processes and of the world's ports are still there.
func (w *World) left(pids []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	//nolint:errcheck // what is left is looked at next
	poll.Until(ctx, pollEvery, func() (bool, error) { return len(pgcluster.Alive(pids)) == 0, nil })
	var left []string
	for _, pid := range pgcluster.Alive(pids) {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	for _, s := range w.servers {
		for _, addr := range s.addrs() {
			ln, err := net.Listen("tcp4", addr)
			if err != nil {
				left = append(left, "port "+addr)
				continue
			}
			ln.Close()
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("left of the world: %s", strings.Join(left, ", "))
}

// Servers are all servers, in the order in which a list of hosts names them. The first one is the first primary.
func (w *World) Servers() []*Server { return slices.Clone(w.servers) }

// Primary is the server that is meant to be the primary: during an event the old one until the new one has been promoted.
func (w *World) Primary() *Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.primary
}

func (w *World) setPrimary(s *Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.primary = s
}

// standbys are all servers but the primary.
func (w *World) standbys() []*Server {
	primary := w.Primary()
	return slices.DeleteFunc(w.Servers(), func(s *Server) bool { return s == primary })
}

// Observer is the world's only one.
func (w *World) Observer() *Observer { return w.observer }

func (w *World) say(format string, args ...any) {
	if w.config.Progress != nil {
		w.config.Progress(fmt.Sprintf(format, args...))
	}
}
