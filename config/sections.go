package config

import (
	"net"
	"strconv"
	"strings"
	"time"
)

// Shard is a section [shards.NAME]: one primary and its standbys, one replication group.
type Shard struct {
	// Name of the section, or one made of the hosts when they are written in a database.
	Name string
	// PostgreSQL servers of the shard: "host:port", "host" (port 5432), "[::1]:5432", "/directory" or "/directory:port" for
	// a Unix socket; or { addr = "…", role = "any" }. This version takes one host, and its role is any.
	Hosts []Host `key:"hosts" example:"127.0.0.1:5432" reload:"yes"`
}

// Host is one PostgreSQL server of a shard.
type Host struct {
	// Addr is "host:port", "[ipv6]:port" or "/directory:port" (a Unix socket); the port is always there in a loaded
	// Config and may be missing (5432) in one made by hand.
	Addr string
	// Role the host may play. Zero means RoleAny.
	Role Role
}

// HostPort splits Addr into what pgconn and net.Dial want: a name, an IP address without brackets or the directory of a
// Unix socket, and the port.
func (h Host) HostPort() (host string, port uint16) {
	host, digits := splitAddr(h.Addr)
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return host, defaultPort
	}
	return host, uint16(n)
}

// Endpoint returns Addr as net.Dial takes it: network "tcp" or "unix", and the address.
func (h Host) Endpoint() (network, addr string) {
	host, port := h.HostPort()
	if strings.HasPrefix(host, "/") {
		return "unix", host + "/.s.PGSQL." + strconv.Itoa(int(port))
	}
	return "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Database is a section [databases.NAME]: what clients name when they connect. Unset fields inherit from [fencepost];
// Config.PoolSettings resolves them.
type Database struct {
	// Name of the section as clients ask for it. In what Config.Database returns for a "*" section: the name asked for.
	Name string
	// Shard the database lives on, a name of a [shards.NAME] section. Either this or hosts.
	Shard string `key:"shard" example:"main" reload:"yes"`
	// The shard's hosts written here instead of a section of their own, as in [shards.NAME]. Databases with equal lists
	// share one shard.
	Hosts []Host `key:"hosts" example:"127.0.0.1:5432" reload:"yes"`
	// Name of the database on the server. Absent: the name the client asks for.
	DBName string `key:"dbname" example:"app" reload:"yes"`
	// User to log in to the server with, for every client. Absent: the client's own name. Needed where [users] holds only
	// verifiers and the server asks for a password.
	User string `key:"user" example:"app_owner" reload:"yes"`
	// Password for user. Absent: that user's plaintext password in [users].
	Password Secret `key:"password" example:"file:/etc/fencepost/app_owner" reload:"yes"`
	// pool_mode for this database.
	PoolMode PoolMode `key:"pool_mode" example:"session" reload:"yes"`
	// default_pool_size for this database.
	PoolSize Optional[int] `key:"pool_size" example:"50" min:"1" max:"100000" unit:"connections" reload:"yes"`
	// min_pool_size for this database.
	MinPoolSize Optional[int] `key:"min_pool_size" example:"5" min:"0" max:"100000" unit:"connections" reload:"yes"`
	// max_db_connections for this database. 0 is no limit.
	MaxDBConnections Optional[int] `key:"max_db_connections" example:"80" min:"0" max:"100000" unit:"connections" reload:"yes"`
	// query_wait_timeout for this database.
	QueryWaitTimeout Optional[time.Duration] `key:"query_wait_timeout" example:"30s" min:"0s" max:"8760h" reload:"yes"`
	// server_lifetime for this database.
	ServerLifetime Optional[time.Duration] `key:"server_lifetime" example:"30m" min:"0s" max:"8760h" reload:"yes"`
}

// User is a section [users.NAME]: somebody who may log in. Its pool settings win over the database's.
type User struct {
	// Name of the section, the role's name.
	Name string
	// The user's secret: the password in plain text, an md5 hash as PostgreSQL stores it ("md5…"), or a SCRAM verifier
	// ("SCRAM-SHA-256$…"). Needed unless auth_type is trust.
	Password Secret `key:"password" example:"change-me" reload:"yes"`
	// pool_mode for this user.
	PoolMode PoolMode `key:"pool_mode" example:"session" reload:"yes"`
	// default_pool_size for the pools of this user.
	PoolSize Optional[int] `key:"pool_size" example:"5" min:"1" max:"100000" unit:"connections" reload:"yes"`
	// query_wait_timeout for this user.
	QueryWaitTimeout Optional[time.Duration] `key:"query_wait_timeout" example:"10s" min:"0s" max:"8760h" reload:"yes"`
}

const defaultPort = 5432

// splitAddr cuts the port off an address; digits is empty when there is none.
func splitAddr(addr string) (host, digits string) {
	if rest, ok := strings.CutPrefix(addr, "["); ok {
		host, after, closed := strings.Cut(rest, "]")
		if closed && (after == "" || after[0] == ':') {
			return host, strings.TrimPrefix(after, ":")
		}
	}
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || strings.Count(addr, ":") > 1 && !strings.HasPrefix(addr, "/") {
		return addr, "" // no port, or an IPv6 address without brackets
	}
	return addr[:i], addr[i+1:]
}
