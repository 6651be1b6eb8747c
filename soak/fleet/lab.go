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
	Change func(i int, settings string) string
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
		m := &Member{Name: memberName(i), PeerID: i + 1, lab: l}
		ip, err := l.Net.Host(m.Name)
		if err != nil {
			return err
		}
		for _, addr := range []*string{&m.Addr, &m.HTTP, &m.bind} {
			if *addr, err = l.reserve(ip); err != nil {
				return err
			}
		}
		if m.front, err = l.Net.Member(m.Name, m.bind); err != nil {
			return err
		}
		l.Members = append(l.Members, m)
	}
	for i, m := range l.Members {
		m.dir = filepath.Join(l.dir, m.Name)
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return err
		}
		text := l.settings(m)
		if l.config.Change != nil {
			text = l.config.Change(i, text)
		}
		if err := os.WriteFile(m.file(), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// settings is the file of a member.
func (l *Lab) settings(m *Member) string {
	var hosts []string
	for _, s := range l.Servers {
		hosts = append(hosts, strconv.Quote(s.Front))
	}
	var b strings.Builder
	ip, port, _ := net.SplitHostPort(m.Addr)
	fmt.Fprintf(&b, "[fencepost]\nlisten_addr = %q\nlisten_port = %s\nunix_socket_dir = \"\"\nadmin_users = [%q]\nauth_type = \"trust\"\n", ip, port, Admin)
	fmt.Fprintf(&b, "admin_http = %q\nlog_connections = false\nlog_disconnections = false\nlog_format = \"json\"\nso_reuseport = true\n", m.HTTP)
	if l.config.Peers {
		fmt.Fprintf(&b, "peer_id = %d\n", m.PeerID)
	}
	for _, line := range l.config.Lines {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintf(&b, "[shards.main]\nhosts = [%s]\nmonitor_user = %q\nmonitor_password = \"any\"\n%s\n", strings.Join(hosts, ", "), watcher, strings.Join(l.config.Shard, "\n"))
	for _, mode := range []string{"session", "transaction"} {
		fmt.Fprintf(&b, "[databases.%s]\nshard = \"main\"\ndbname = %q\npool_mode = %q\n", mode, Database, mode)
	}
	fmt.Fprintf(&b, "[users.%s]\npassword = \"any\"\n[users.%s]\npassword = \"any\"\n", User, Admin)
	switch {
	case l.config.Peers:
		for _, o := range l.Members {
			if o != m {
				fmt.Fprintf(&b, "[peers.%d]\naddr = %q\n", o.PeerID, o.Addr)
			}
		}
	case !l.config.Alone:
		b.WriteString(l.section(m))
	}
	return b.String()
}

// section is [fleet] of a member.
func (l *Lab) section(m *Member) string {
	var join []string
	for _, o := range l.Members {
		if o != m {
			join = append(join, strconv.Quote(o.front))
		}
	}
	return fmt.Sprintf("[fleet]\nname = %q\nmember = %q\npeer_id = %d\nbind = %q\nadvertise = %q\njoin = [%s]\nsecret_key = %q\nfleet_size = %d\n%s\n",
		Name, m.Name, m.PeerID, m.bind, m.front, strings.Join(join, ", "), Key, l.config.Members, strings.Join(l.config.Fleet, "\n"))
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
		g.Go(m.Stop)
	}
	err := g.Wait()
	if l.cluster != nil {
		err = errors.Join(err, l.cluster.Stop())
	}
	err = errors.Join(err, l.Net.Close())
	for _, p := range l.ports {
		err = errors.Join(err, p.Close())
	}
	for _, m := range l.Members {
		err = errors.Join(err, m.errors())
	}
	if l.config.Dir == "" && l.dir != "" {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}
