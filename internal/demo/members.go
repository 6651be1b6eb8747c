package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/supervisor"
)

// member is one Fencepost of the fleet.
type member struct {
	port  int    // for clients
	http  string // admin_http
	fleet string // where it hears the others
}

// place finds the members' addresses.
func (s *stage) place() {
	for i := range s.members {
		s.members[i] = member{port: freePort(s.options.Port + i), http: fmt.Sprintf("127.0.0.1:%d", freePort(s.options.Port+members+i)),
			fleet: fmt.Sprintf("127.0.0.1:%d", freePort(s.options.Port+2*members+i))}
	}
}

// port is where client number i of a kind connects to.
func (s *stage) port(i int) int { return s.members[i%members].port }

// begin starts the members; end, which is to be called whatever begin returns, ends them.
func (s *stage) begin(dir string) (end func() error, err error) {
	var ends []func() error
	end = func() error {
		s.say("Stopping Fencepost …")
		errs := make([]error, len(ends))
		var all sync.WaitGroup
		for i, e := range ends {
			all.Go(func() { errs[i] = e() })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	for i := range s.members {
		path := filepath.Join(dir, fmt.Sprintf("m%d.toml", i+1))
		if err := os.WriteFile(path, s.settings(i), 0o600); err != nil {
			return end, err
		}
		cfg, err := config.Load(path)
		if err != nil {
			return end, err
		}
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("m%d.log", i+1)))
		if err != nil {
			return end, err
		}
		log := &logFile{file: file}
		f, err := supervisor.Start(cfg, s.options.Version, zerolog.New(log).With().Timestamp().Logger())
		if err != nil {
			return end, errors.Join(err, log.Close())
		}
		ends = append(ends, func() error {
			f.Shutdown(admin.WaitForServers)
			return errors.Join(f.Wait(), log.Close())
		})
	}
	return end, nil
}

// logFile takes no more once it is closed: the last streams between members end behind their backs.
type logFile struct {
	mu   sync.Mutex // guards file
	file *os.File   // nil: closed
}

// Write implements io.Writer.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(b), nil
	}
	return l.file.Write(b)
}

// Close implements io.Closer.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.file
	l.file = nil
	return file.Close()
}

// settings are those of a member.
func (s *stage) settings(i int) []byte {
	n, m := s.cluster.Nodes, s.members[i]
	var join []string
	for k, o := range s.members {
		if k != i {
			join = append(join, fmt.Sprintf("%q", o.fleet))
		}
	}
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

[fleet]
name = "demo"
member = "m%d"
peer_id = %d
bind = %q
join = [%s]
fleet_size = %d

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
`, m.port, m.http, user, poolSize, i+1, i+1, m.fleet, strings.Join(join, ", "), members, n[0].Addr(), n[1].Addr(), n[2].Addr(), user, password)
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
