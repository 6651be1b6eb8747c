package config

import (
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shard is a section [shards.NAME]: one primary and its standbys, one replication group.
type Shard struct {
	// Name of the section, or one made of the hosts when they are written in a database.
	Name string
	// PostgreSQL servers of the shard: "host:port", "host" (port 5432), "[::1]:5432", "/directory" or
	// "/directory:port" for a Unix socket; or { addr = "…", role = "…" }. The roles: auto (the default: monitored;
	// serves writes while it is the primary, else reads), primary (as auto, but where a host has this role only such
	// hosts get writes), replica (monitored; serves reads only, even when it is promoted) and any (serves everything,
	// without a monitor: it must be the shard's only host). A shard of nothing but replicas serves only reads.
	Hosts []Host `group:"Hosts and monitors" key:"hosts" example:"127.0.0.1:5432" reload:"yes"`
	// User the monitors log in as, to ask each host what it is; it needs no privilege, and must not have a
	// default_transaction_read_only of its own. Absent: the first, by name, of the shard's databases that has a user
	// with a plaintext password, else of [users]; with auth_type trust and no such password, the same without one.
	MonitorUser string `key:"monitor_user" example:"fencepost" reload:"yes"`
	// Password for monitor_user. Absent: that user's plaintext password in [users].
	MonitorPassword Secret `key:"monitor_password" example:"file:/etc/fencepost/monitor" reload:"yes"`
	// Database monitor_user logs in to.
	MonitorDBName string `key:"monitor_dbname" default:"postgres" reload:"yes"`
	// Interval at which each host is asked; more often while something is in doubt.
	RoleCheckInterval time.Duration `key:"role_check_interval" default:"1s" min:"10ms" max:"1h" reload:"yes"`
	// File that keeps the cluster's identity and its highest timeline over a restart, so that a server left behind by
	// an earlier failover gets no writes from the start. Relative to the settings file's directory; each shard has its
	// own. "" is none.
	StateFile string `key:"state_file" default:"" reload:"yes"`

	// How long an answer of a host is proof that it is the primary; at least twice role_check_interval. Without proof
	// every server connection must prove it for itself before a client writes to it.
	EvidenceTTL time.Duration `group:"Choosing the primary" key:"evidence_ttl" default:"3s" min:"20ms" max:"1h" reload:"yes"`
	// Identifier of the cluster (system_identifier of pg_control_system()); a host of another one is never used.
	// Digits, in quotes or without. Absent: learnt from the hosts.
	SystemIdentifier uint64 `key:"system_identifier" example:"7300000000000000001" reload:"yes"`
	// What happens when two servers can be written to on one timeline: sitting (the one that is the primary stays) or
	// refuse (there is no primary until it is settled).
	OnTwoWriters TwoWriters `key:"on_two_writers" default:"sitting" reload:"yes"`

	// Silence of the primary after which the shard is unhealthy: connections stay, but each must prove that it can
	// write; at least twice role_check_interval. A primary silent for this long also yields to another one on its
	// timeline; what a standby silent for this long has not answered ends with 08006.
	UnhealthyAfter time.Duration `group:"Failover" key:"unhealthy_after" default:"10s" min:"20ms" max:"8760h" reload:"yes"`
	// Share of the connections to the primary, counted when the shard became unhealthy, that must be lost before the
	// state becomes failover. A new primary and a confirmed shutdown take effect at once.
	FailoverDisconnectRatio float64 `key:"failover_disconnect_ratio" default:"0.6" min:"0" max:"1" reload:"yes"`
	// Shortest time unhealthy before lost connections make the state failover.
	FailoverMinTime time.Duration `key:"failover_min_time" default:"30s" min:"0s" max:"8760h" reload:"yes"`
	// What happens to work for the primary while there is none: hold (it waits, up to query_wait_timeout) or refuse
	// (at once, SQLSTATE 57P03).
	FailoverPolicy FailoverPolicy `key:"failover_policy" default:"hold" reload:"yes"`
	// Idle server connections that each pool keeps, on each event loop, to the standby with the most WAL while the
	// shard is not healthy, so that a failover need not begin with logins.
	FailoverWarm int `key:"failover_warm" default:"0" min:"0" max:"10000" unit:"connections" reload:"yes"`
	// Server logins that each pool may have under way at a time, per host and event loop.
	ConnectConcurrency int `key:"connect_concurrency" default:"8" min:"1" max:"10000" unit:"logins" reload:"yes"`

	// How reads are spread over the standbys: least_waiting (where fewest clients wait), round_robin or random.
	StandbyBalance Balance `group:"Standbys" key:"standby_balance" default:"least_waiting" reload:"yes"`
	// A standby whose last replayed transaction lags by more gets no reads. "0s" is no limit.
	MaxLagTime time.Duration `key:"max_lag_time" default:"0s" min:"0s" max:"8760h" reload:"yes"`
	// A standby that lags by more WAL gets no reads. 0 is no limit.
	MaxLagBytes int64 `key:"max_lag_bytes" default:"0" min:"0" max:"1000000000000000" unit:"bytes" reload:"yes"`
}

// DefaultShard returns the section of an empty [shards.NAME]: without hosts, with every default.
func DefaultShard(name string) *Shard {
	s := &Shard{Name: name}
	setDefaults(s, shardSettings)
	return s
}

// HasRoles reports whether the hosts are asked what they are. False is a shard whose only host has the role any.
func (s *Shard) HasRoles() bool { return len(s.Hosts) != 1 || s.Hosts[0].Role != RoleAny }

// readsOnly reports whether no host can ever be the primary.
func (s *Shard) readsOnly() bool {
	return !slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Role != RoleReplica })
}

// Host is one PostgreSQL server of a shard.
type Host struct {
	// Addr is "host:port", "[ipv6]:port" or "/directory:port" (a Unix socket); the port is always there in a loaded
	// Config and may be missing (5432) in one made by hand.
	Addr string
	// Role the host may play. Zero means RoleAuto.
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

// canonical is Addr such that two ways to write one address are equal.
func (h Host) canonical() string {
	host, port := h.HostPort()
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port).String()
	}
	if strings.HasPrefix(host, "/") {
		host = path.Clean(host)
	} else {
		host = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	return host + ":" + strconv.Itoa(int(port))
}

// Endpoint returns Addr as net.Dial takes it: network "tcp" or "unix", and the address.
func (h Host) Endpoint() (network, addr string) {
	host, port := h.HostPort()
	if strings.HasPrefix(host, "/") {
		return "unix", host + "/.s.PGSQL." + strconv.Itoa(int(port))
	}
	return "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))
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
