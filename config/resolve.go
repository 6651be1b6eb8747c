package config

import (
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
}

// PoolSettings resolves the settings of the pool of db and user, which is the pool's user: the database's own if it has
// one, else the client's. A user that is not listed takes the database's.
func (c *Config) PoolSettings(db *Database, user string) PoolSettings {
	f := &c.Fencepost
	s := PoolSettings{
		Mode:             f.PoolMode,
		Size:             db.PoolSize.Or(f.DefaultPoolSize),
		MinSize:          db.MinPoolSize.Or(f.MinPoolSize),
		MaxDBConnections: db.MaxDBConnections.Or(f.MaxDBConnections),
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
		if db, ok = c.Databases["*"]; !ok || nameRule(name, maxDatabaseName) != "" {
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
