package config

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"
)

// PoolSettings is what holds for one pool: [fencepost] overridden by the database, overridden by the user.
type PoolSettings struct {
	Mode             PoolMode
	Size             int           // server connections the pool may open, at least 1
	MinSize          int           // server connections to keep open, never more than Size
	MaxDBConnections int           // of all pools of the database; 0 = no limit
	QueryWaitTimeout time.Duration // 0 = no limit
	ServerLifetime   time.Duration // 0 = one use
	Fence            Fence         // never empty
}

// PoolSettings resolves the settings of the pool of db and user, which is the pool's user: the database's own if it has
// one, else the client's. A user that is not listed takes the database's.
func (c *Config) PoolSettings(db *Database, user string) PoolSettings {
	f := &c.Fencepost
	s := PoolSettings{
		Mode:             f.PoolMode,
		Size:             db.PoolSize.Or(f.DefaultPoolSize),
		MinSize:          db.MinPoolSize.Or(f.MinPoolSize),
		MaxDBConnections: c.Share(db.MaxDBConnections.Or(f.MaxDBConnections)),
		QueryWaitTimeout: db.QueryWaitTimeout.Or(f.QueryWaitTimeout),
		ServerLifetime:   db.ServerLifetime.Or(f.ServerLifetime),
	}
	if db.PoolMode != "" {
		s.Mode = db.PoolMode
	}
	if u := c.Users[user]; u != nil {
		if u.PoolMode != "" {
			s.Mode = u.PoolMode
		}
		s.Size = u.PoolSize.Or(s.Size)
		s.QueryWaitTimeout = u.QueryWaitTimeout.Or(s.QueryWaitTimeout)
	}
	s.MinSize = min(s.MinSize, s.Size)
	s.Fence = db.Fence
	if s.Fence == "" {
		s.Fence = FenceAuto
		if s.Mode == PoolSession { // a check per session costs nothing, and a session may last
			s.Fence = FenceAlways
		}
	}
	return s
}

// Database returns what holds for the database a client asks for: its own section, else a copy of the section "*" with
// the name asked for. DBName is always filled in. It reports false for an unknown name and for the console's names. The
// result must not be changed, and two results for one name are equal but need not be the same pointer.
func (c *Config) Database(name string) (*Database, bool) {
	if IsConsole(name) || name == "" {
		return nil, false
	}
	db, ok := c.Databases[name]
	if !ok || name == "*" {
		if db, ok = c.Databases["*"]; !ok || nameRule(name) != "" {
			return nil, false
		}
	}
	if db.Name == name && db.DBName != "" {
		return db, true
	}
	found := *db
	found.Name = name
	if found.DBName == "" {
		found.DBName = name
	}
	return &found, true
}

// IsConsole reports whether a database name is the console's.
func IsConsole(name string) bool { return name == ConsoleDatabases[0] || name == ConsoleDatabases[1] }

// ServerLogin returns who logs in to the server for a client of db: the database's user with its password, or with that
// user's plaintext password in [users]; else the client's own name with its plaintext password in [users]. The password
// is not set where there is none or only a verifier; the login then works only if the server asks for none.
func (c *Config) ServerLogin(db *Database, clientUser string) (user string, password Secret) {
	user = clientUser
	if db.User != "" {
		user = db.User
	}
	if db.Password.IsSet() {
		return user, db.Password
	}
	if u := c.Users[user]; u != nil && u.Password.plaintext() {
		return user, u.Password
	}
	return user, Secret{}
}

// MonitorLogin returns who logs in to the hosts of a shard, and to which database, to ask what they are: monitor_user
// with its password, or with its plaintext password in [users]; without monitor_user the first, by name, of the databases
// on the shard with a user and a plaintext password, else of [users]. With auth_type trust and no password to be found it
// is the same without one, and likewise for a monitor_user that has none: that works if the servers ask for none. It
// reports false if there is nobody, which a loaded Config with roles in the shard excludes.
func (c *Config) MonitorLogin(shard *Shard) (user string, password Secret, dbname string, ok bool) {
	dbname = shard.MonitorDBName
	if shard.MonitorUser != "" {
		password = shard.MonitorPassword
		if u := c.Users[shard.MonitorUser]; !password.IsSet() && u != nil && u.Password.plaintext() {
			password = u.Password
		}
		return shard.MonitorUser, password, dbname, true
	}
	first := "" // with trust, who could log in without a password
	for _, name := range sortedKeys(c.Databases) {
		db := c.Databases[name]
		if db.Shard != shard.Name || db.User == "" {
			continue
		}
		if user, password := c.ServerLogin(db, ""); password.IsSet() {
			return user, password, dbname, true
		}
		first = cmp.Or(first, db.User)
	}
	for _, name := range sortedKeys(c.Users) {
		if u := c.Users[name]; u.Password.plaintext() {
			return name, u.Password, dbname, true
		}
	}
	if users := sortedKeys(c.Users); first == "" && len(users) > 0 {
		first = users[0]
	}
	if c.Fencepost.AuthType != AuthTrust || first == "" {
		return "", Secret{}, "", false
	}
	return first, Secret{}, dbname, true
}

// ListenAddresses returns the TCP addresses to listen on, for net.Listen: ":port" for all, none without TCP.
func (f *Fencepost) ListenAddresses() []string {
	port := strconv.Itoa(f.ListenPort)
	switch f.ListenAddr {
	case "":
		return nil
	case "*":
		return []string{":" + port}
	}
	var addrs []string
	for word := range strings.SplitSeq(f.ListenAddr, ",") {
		addrs = append(addrs, net.JoinHostPort(strings.TrimSpace(word), port))
	}
	return addrs
}

// UnixSocket returns the address of the Unix socket to listen on, for net.Listen ("@…" is the abstract namespace), or ""
// for none.
func (f *Fencepost) UnixSocket() string {
	if f.UnixSocketDir == "" {
		return ""
	}
	return f.UnixSocketDir + "/.s.PGSQL." + strconv.Itoa(f.ListenPort)
}
