package supervisor

import (
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"fencepost/config"
)

// descriptors are the shares of the files that the process may have open: each client and each server connection takes one.
type descriptors struct {
	limit   int // of the process
	own     int // loops, listeners, monitors, and some connections that have not said yet what they want
	servers int // server connections, as far as the settings say: users who are not listed and names that "*" stands for are unknown
	clients int // max_client_conn
}

// maxFiles stands for a limit that is none.
const maxFiles = 1 << 30

// filesOf asks for the limit of open files and counts what the settings allow. The Go runtime has raised the soft limit to the
// hard one when the process started.
func filesOf(cfg *config.Config) *descriptors {
	f := &cfg.Fencepost
	d := &descriptors{limit: maxFiles, own: 32 + 3*f.EventLoops, clients: f.MaxClientConn}
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		d.limit = int(min(uint64(l.Cur), maxFiles))
	}
	if cfg.Fleet != nil {
		d.own += 16
	}
	for _, sh := range cfg.Shards {
		d.own += 2 * len(sh.Hosts)
	}
	for _, db := range cfg.Databases {
		d.servers = min(d.servers+serversOf(cfg, db), maxFiles)
	}
	return d
}

// serversOf is how many server connections a database may have. Its limits hold for each host.
func serversOf(cfg *config.Config, db *config.Database) int {
	users := []string{db.User}
	if db.User == "" && len(cfg.Users) > 0 {
		users = users[:0]
		for name := range cfg.Users {
			users = append(users, name)
		}
	}
	n, most := 0, 0
	for _, user := range users {
		p := cfg.PoolSettings(db, user)
		n, most = n+p.Size, p.MaxDBConnections
	}
	if most > 0 {
		n = min(n, most)
	}
	if db.Target != config.TargetReadWrite {
		n *= len(cfg.Shards[db.Shard].Hosts)
	}
	return n
}

// needed is how many files the settings ask for.
func (d *descriptors) needed() int { return d.own + d.servers + d.clients }

// spare is how many clients can be served beside those that are there. Server connections have a share that clients do not get; used
// says how many there are, and is asked only where they may have more than that.
func (d *descriptors) spare(clients int, used func() int) int {
	servers := min(d.servers, d.limit/4)
	if servers < d.servers {
		servers = max(servers, used())
	}
	return d.limit - d.own - servers - clients
}

// warn says that the limit of open files is too low for what the settings allow.
func (d *descriptors) warn(log zerolog.Logger) {
	if d.needed() <= d.limit {
		return
	}
	log.Warn().Int("limit", d.limit).Int("needed", d.needed()).Int("max_client_conn", d.clients).Int("server_connections", d.servers).
		Int("own", d.own).Int("clients_served", max(0, d.spare(0, func() int { return 0 }))).
		Msg("the limit of open files (ulimit -n) is lower than the settings need: clients beyond clients_served are refused with 53300")
}
