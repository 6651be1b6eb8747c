// Package fleet puts three Fencepost processes that know of each other in front of a real PostgreSQL cluster, cuts them off
// from servers and from each other, kills them, and sees what becomes of their clients.
//
//	lab, err := fleet.Start(ctx, fleet.Config{Program: path})
//	defer lab.Close()
//	r, err := lab.SplitBrain(ctx, fleet.Split{})
//
// Every member reaches every server, and every other member, by way of package network, so that each can be cut off on its
// own. Nothing leaves the machine.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
	"fencepost/internal/product"
	"fencepost/internal/program"
	"fencepost/soak/fleet/network"
)

// Config says what to start.
type Config struct {
	Program  string       // Fencepost
	Members  int          // 0: three
	Standbys int          // 0: one
	Alone    bool         // the control: members do not know of each other, there is no [fleet]
	Peers    bool         // cancels by [peers]; with Alone
	Lines    []string     // of [fencepost], besides
	Shard    []string     // of [shards.main], besides
	Fleet    []string     // of [fleet], besides
	Dir      string       // for settings and logs; "" for a temporary one that Close removes
	Network  network.Kind // "": of ports

	// Change, if not nil, may change the settings of the member with that index, before it starts for the first time.
	Change func(i int, settings product.Settings)
}

// User logs in everywhere without a password, and Admin to the console. The monitors' user may see what timeline a standby
// receives.
const (
	watcher  = "watcher"
	User     = "client"
	Admin    = "ops"
	Database = "fleet"
)

// Key is the secret key all members have, and Name the fleet's.
const (
	Key  = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	Name = "lab"
)

// Lab is what Start started.
type Lab struct {
	Servers []*Server // the first primary, then its standbys
	Members []*Member
	Net     network.Network

	cluster *pgcluster.Cluster
	config  Config
	dir     string
	ports   []io.Closer // the reservations of the members' ports
}

// Server is one PostgreSQL server.
type Server struct {
	*pgcluster.Node
	Front string // where members reach it
}

// Start starts servers and members, and returns when every member has elected the primary and, if they make a fleet, knows of
// every other.
func Start(ctx context.Context, c Config) (_ *Lab, err error) {
	if c.Members == 0 {
		c.Members = 3
	}
	if c.Standbys == 0 {
		c.Standbys = 1
	}
	l := &Lab{config: c, dir: c.Dir}
	if l.Net, err = network.Open(c.Network); err != nil {
		return nil, fmt.Errorf("start the fleet: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the fleet: %w", err), l.Close())
		}
	}()
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "fencepost-fleet-"); err != nil {
			return nil, err
		}
	}
	if err := l.startServers(ctx); err != nil {
		return nil, err
	}
	if err := l.lay(); err != nil {
		return nil, err
	}
	var g errgroup.Group
	for _, m := range l.Members {
		g.Go(func() error { return m.Start(ctx) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return l, l.Whole(ctx, l.Servers[0])
}

func (l *Lab) startServers(ctx context.Context) (err error) {
	l.cluster, err = pgcluster.Start(ctx, pgcluster.Options{Standbys: l.config.Standbys, Roles: []pgcluster.Role{{Name: User}, {Name: watcher, Attributes: "IN ROLE pg_read_all_stats"}}, Databases: []string{Database},
		Conf: map[string]string{"max_connections": "400", "autovacuum": "off", "log_connections": "off"}})
	if err != nil {
		return err
	}
	for i, n := range l.cluster.Nodes {
		front, err := l.Net.Server(serverName(i), n.Addr())
		if err != nil {
			return err
		}
		l.Servers = append(l.Servers, &Server{n, front})
	}
	conn, err := l.cluster.Primary().Connect(ctx, Database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it goes in any case
	for _, sql := range []string{"GRANT ALL ON SCHEMA public TO PUBLIC", "CREATE TABLE written (who text, n bigint, PRIMARY KEY (who, n))",
		"GRANT ALL ON written TO PUBLIC"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// serverName and memberName are the names of both in Net.
func serverName(i int) string { return string(rune('a' + i)) }
func memberName(i int) string { return "m" + strconv.Itoa(i+1) }

// ServerName is the name of a server in Net.
func (l *Lab) ServerName(s *Server) string { return serverName(slices.Index(l.Servers, s)) }

// lay makes the members' ports and settings.
func (l *Lab) lay() error {
	for i := range l.config.Members {
		m := &Member{PeerID: i + 1}
		ip, err := l.Net.Host(memberName(i))
		if err != nil {
			return err
		}
		for _, addr := range []*string{&m.addr, &m.http, &m.bind} {
			if *addr, err = l.reserve(ip); err != nil {
				return err
			}
		}
		if m.front, err = l.Net.Member(memberName(i), m.bind); err != nil {
			return err
		}
		l.Members = append(l.Members, m)
	}
	for i, m := range l.Members {
		name := memberName(i)
		c := product.Config{Name: name, Program: l.config.Program, Dir: filepath.Join(l.dir, name),
			Run: func(argv ...string) []string { return l.Net.Command(name, argv...) }}
		c.Started = func(p *program.Process) {
			l.Net.Runs(name, p.PID())
			go func() { // ends with the process
				<-p.Done()
				l.Net.Ran(p.PID())
			}()
		}
		err := os.MkdirAll(c.Dir, 0o700)
		if err == nil {
			c.Settings, err = l.settings(m)
		}
		if err != nil {
			return err
		}
		if l.config.Change != nil {
			l.config.Change(i, c.Settings)
		}
		if m.Fencepost, err = product.Lay(c); err != nil {
			return err
		}
	}
	return nil
}

// settings are those of a member.
func (l *Lab) settings(m *Member) (product.Settings, error) {
	var hosts, join []string
	for _, s := range l.Servers {
		hosts = append(hosts, s.Front)
	}
	ip, port, _ := net.SplitHostPort(m.addr)
	number, _ := strconv.Atoi(port)
	own := product.Section{"listen_addr": ip, "listen_port": number, "admin_http": m.http, "admin_users": []string{Admin}, "auth_type": "trust",
		"log_connections": false, "log_disconnections": false, "log_format": "json", "so_reuseport": true}
	s := product.Settings{"fencepost": own,
		"shards": {"main": product.Section{"hosts": hosts, "monitor_user": watcher, "monitor_password": "any"}},
		"users":  {User: product.Section{"password": "any"}, Admin: product.Section{"password": "any"}}, "databases": {}, "peers": {}}
	for _, mode := range []string{"session", "transaction"} {
		s["databases"][mode] = product.Section{"shard": "main", "dbname": Database, "pool_mode": mode}
	}
	for _, o := range l.Members {
		if o != m {
			join = append(join, o.front)
			s["peers"][strconv.Itoa(o.PeerID)] = product.Section{"addr": o.addr}
		}
	}
	if l.config.Peers {
		own["peer_id"] = m.PeerID
	} else {
		delete(s, "peers")
	}
	if !l.config.Alone {
		s["fleet"] = product.Section{"name": Name, "member": memberName(m.PeerID - 1), "peer_id": m.PeerID, "bind": m.bind, "advertise": m.front,
			"join": join, "secret_key": Key, "fleet_size": l.config.Members}
	}
	for section, lines := range map[string][]string{"fencepost": l.config.Lines, "shards.main": l.config.Shard, "fleet": l.config.Fleet} {
		if err := s.Add("[" + section + "]\n" + strings.Join(lines, "\n")); err != nil {
			return nil, err
		}
	}
	if l.config.Alone {
		delete(s, "fleet")
	}
	return s, nil
}

// reserve takes a port, for TCP and UDP, that a member finds free again when it is restarted, and returns its address at ip,
// which may have all ports for itself.
func (l *Lab) reserve(ip string) (addr string, err error) {
	for range 20 { // a port that is free for TCP may not be for UDP
		port, held, err := pgcluster.ReservePort()
		if err != nil {
			return "", err
		}
		l.ports = append(l.ports, held)
		if u, err := net.ListenPacket("udp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return net.JoinHostPort(ip, strconv.Itoa(port)), u.Close()
		}
	}
	return "", errors.New("no free port")
}

// Whole waits until every member that runs has elected the server and knows of every other that runs.
func (l *Lab) Whole(ctx context.Context, primary *Server) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	var why error
	err := poll.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		why = l.whole(ctx, primary)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the fleet does not become whole: %w", errors.Join(why, err))
	}
	return nil
}

func (l *Lab) whole(ctx context.Context, primary *Server) error {
	running := 0
	for _, m := range l.Members {
		if m.Running() {
			running++
		}
	}
	for _, m := range l.Members {
		if !m.Running() {
			continue
		}
		row, err := m.Shard(ctx)
		if err != nil {
			return err
		}
		if row["elected"] != primary.Front {
			return fmt.Errorf("%s has elected %s: %v", m.Name, row["elected"], row)
		}
		if l.config.Alone {
			continue
		}
		alive, err := m.alive(ctx)
		if err != nil {
			return err
		}
		if alive != running {
			return fmt.Errorf("%s knows of %d members of %d", m.Name, alive, running)
		}
	}
	return nil
}

// Close ends everything. The error says what a member that was not killed left behind or logged as an error.
func (l *Lab) Close() error {
	var g errgroup.Group
	for _, m := range l.Members {
		if m.Fencepost != nil {
			g.Go(m.end)
		}
	}
	err := g.Wait()
	if l.cluster != nil {
		err = errors.Join(err, l.cluster.Stop())
	}
	err = errors.Join(err, l.Net.Close())
	for _, p := range l.ports {
		err = errors.Join(err, p.Close())
	}
	if l.config.Dir == "" && l.dir != "" {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}
