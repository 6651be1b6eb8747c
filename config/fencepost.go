package config

import (
	"io/fs"
	"time"
)

// Fencepost is the section [fencepost]: the process, its pools and its defaults for databases and users.
type Fencepost struct {
	// Addresses to accept TCP connections on, separated by commas. "*" is every address, "" none (the Unix socket only).
	ListenAddr string `group:"Listening and process" key:"listen_addr" default:"127.0.0.1" reload:"restart"`
	// Port of the TCP listeners; also part of the Unix socket's name.
	ListenPort int `key:"listen_port" default:"6432" min:"1" max:"65535" reload:"restart"`
	// Connections the kernel keeps for a listener until they are accepted; the kernel caps it at net.core.somaxconn.
	ListenBacklog int `key:"listen_backlog" default:"4096" min:"1" max:"65535" unit:"connections" reload:"restart"`
	// Directory of the Unix socket .s.PGSQL.<listen_port>. "" is none; a name that starts with @ is in Linux's abstract
	// namespace.
	UnixSocketDir string `key:"unix_socket_dir" default:"/tmp" reload:"restart"`
	// Permissions of the Unix socket, in octal. Not used in the abstract namespace.
	UnixSocketMode fs.FileMode `key:"unix_socket_mode" default:"0777" max:"0777" reload:"restart"`
	// Let several processes listen on the same port, so that a new one can take over while the old one drains. Covers
	// admin_http too.
	SoReuseport bool `key:"so_reuseport" default:"false" reload:"restart"`
	// File to write the process id to. "" is none.
	Pidfile string `key:"pidfile" default:"" reload:"restart"`
	// Number of this process in its fleet, written into the cancel keys it issues so that other members can pass a cancel
	// on. 0 is none.
	PeerID int `key:"peer_id" default:"0" min:"0" max:"16383" reload:"restart"`
	// Event loops, one thread each.
	EventLoops int `key:"event_loops" default:"1" min:"1" max:"256" reload:"restart"`
	// Implementation of the event loops: epoll (Linux only) or portable (goroutines; slower, runs anywhere). Where
	// there is no epoll the default is portable.
	EventLoop EventLoopKind `key:"event_loop" default:"epoll" reload:"restart"`

	// When a server connection goes back to its pool: session (when the client leaves), transaction (at the end of each
	// transaction) or statement (after each statement; transaction blocks are refused).
	PoolMode PoolMode `group:"Pools" key:"pool_mode" default:"transaction" reload:"yes"`
	// Most server connections of a pool. A pool is one database and one server user.
	DefaultPoolSize int `key:"default_pool_size" default:"20" min:"1" max:"100000" unit:"connections" reload:"yes"`
	// Server connections to keep open in each pool that has been used, even while idle.
	MinPoolSize int `key:"min_pool_size" default:"0" min:"0" max:"100000" unit:"connections" reload:"yes"`
	// Most clients connected at the same time; more are refused. Each takes a file descriptor, as does each server
	// connection: where the limit of open files (ulimit -n) is too low for both, the log says so at the start and how many
	// clients are served.
	MaxClientConn int `key:"max_client_conn" default:"1000" min:"1" max:"1000000" unit:"connections" reload:"yes"`
	// Most server connections of all pools of one database together. 0 is no limit.
	MaxDBConnections int `key:"max_db_connections" default:"0" min:"0" max:"100000" unit:"connections" reload:"yes"`
	// Take the idle server connection that has waited longest, which spreads the load, instead of the one used last, which
	// lets unneeded ones time out.
	ServerRoundRobin bool `key:"server_round_robin" default:"false" reload:"yes"`

	// Longest wait of a client for a server connection; then its query is refused. "0s" is no limit.
	QueryWaitTimeout time.Duration `group:"Time limits and server connections" key:"query_wait_timeout" default:"2m" min:"0s" max:"8760h" reload:"yes"`
	// Longest time to connect and log in to a server.
	ServerConnectTimeout time.Duration `key:"server_connect_timeout" default:"15s" min:"1ms" max:"8760h" reload:"yes"`
	// Upper bound of the pause between attempts to connect to a server that failed. The pause starts at 100 ms and grows
	// while the attempts fail; an attempt that succeeds ends it.
	ServerLoginRetry time.Duration `key:"server_login_retry" default:"15s" min:"100ms" max:"8760h" reload:"yes"`
	// Close a server connection that was idle for this long, down to min_pool_size. "0s" is never.
	ServerIdleTimeout time.Duration `key:"server_idle_timeout" default:"10m" min:"0s" max:"8760h" reload:"yes"`
	// Close a server connection this long after it was opened, as soon as no client holds it. "0s" closes it after its
	// first use.
	ServerLifetime time.Duration `key:"server_lifetime" default:"1h" min:"0s" max:"8760h" reload:"yes"`
	// Sent to a server connection when a client in session mode leaves, before the next one gets it. "" sends nothing.
	ServerResetQuery string `key:"server_reset_query" default:"DISCARD ALL" reload:"yes"`
	// Prepared statements that a server connection keeps for clients in transaction and statement mode, by text: the one used
	// longest ago goes first. 0 keeps none: a client's named statement lasts until its transaction ends.
	MaxPreparedStatements int `key:"max_prepared_statements" default:"200" min:"0" max:"100000" unit:"statements" reload:"yes"`
	// Longest time for a client to log in. "0s" is no limit.
	ClientLoginTimeout time.Duration `key:"client_login_timeout" default:"1m" min:"0s" max:"8760h" reload:"yes"`
	// Cancel what a client is running when it disconnects, instead of letting it run to its end.
	CancelOnDisconnect bool `key:"cancel_on_disconnect" default:"true" reload:"yes"`
	// Longest wait for PostgreSQL to take a cancel request; then the server connection it was meant for is closed
	// instead of reused.
	CancelAckTimeout time.Duration `key:"cancel_ack_timeout" default:"5s" min:"1ms" max:"8760h" reload:"yes"`

	// Startup parameters of clients to drop without an error. "options" drops what is unknown inside of options.
	IgnoreStartupParameters []string `group:"Startup parameters" key:"ignore_startup_parameters" default:"extra_float_digits" reload:"yes"`
	// Parameters to carry from client to server connection besides client_encoding, DateStyle, TimeZone,
	// standard_conforming_strings and application_name. Only parameters that the server reports (ParameterStatus) can
	// be carried.
	TrackExtraParameters []string `key:"track_extra_parameters" default:"IntervalStyle" reload:"restart"`

	// How clients prove who they are: scram-sha-256, md5 (which does SCRAM for users whose secret is a SCRAM verifier),
	// password (in clear text) or trust (not at all; users need not be listed).
	AuthType AuthType `group:"Access, console and metrics" key:"auth_type" default:"scram-sha-256" reload:"yes"`
	// Users who may use every command of the console (databases fencepost and pgbouncer).
	AdminUsers []string `key:"admin_users" default:"" reload:"yes"`
	// Users who may use the console's SHOW commands.
	StatsUsers []string `key:"stats_users" default:"" reload:"yes"`
	// Address of the HTTP server for metrics and health, host:port. It asks for no password. "" is none.
	AdminHTTP string `key:"admin_http" default:"127.0.0.1:6433" reload:"restart"`
	// Interval the averages of SHOW STATS are taken over.
	StatsPeriod time.Duration `key:"stats_period" default:"1m" min:"1s" max:"8760h" reload:"yes"`

	// What SIGTERM does; a second one stops at once. drain ends each session at its next transaction boundary
	// (SQLSTATE 57P01), wait_for_clients waits until the clients leave. Both refuse new clients once drain_grace is over.
	Sigterm SigtermAction `group:"Ending" key:"sigterm" default:"drain" reload:"yes"`
	// Time between the order to drain and the closing of the listeners. Meanwhile clients are served as before, but
	// /readyz already answers 503, so that load balancers turn away. A second order ends it.
	DrainGrace time.Duration `key:"drain_grace" default:"0s" min:"0s" max:"1h" reload:"yes"`
	// Longest time SIGTERM waits, after drain_grace, before the remaining sessions are ended. "0s" is no limit: then a
	// session that never finishes is ended by a second signal or by the service manager.
	DrainTimeout time.Duration `key:"drain_timeout" default:"0s" min:"0s" max:"8760h" reload:"yes"`

	// Least level that is logged: debug, info, warn or error.
	LogLevel LogLevel `group:"Logging" key:"log_level" default:"info" reload:"yes"`
	// json, one object per line, or console, for people.
	LogFormat LogFormat `key:"log_format" default:"json" reload:"restart"`
	// Log each client's successful login.
	LogConnections bool `key:"log_connections" default:"true" reload:"yes"`
	// Log when a client disconnects, with the reason.
	LogDisconnections bool `key:"log_disconnections" default:"true" reload:"yes"`
	// Log the errors Fencepost itself sends to clients.
	LogPoolerErrors bool `key:"log_pooler_errors" default:"true" reload:"yes"`

	// Have the kernel probe idle TCP connections, to clients and to servers. This and the following four apply to new
	// connections.
	TCPKeepalive bool `group:"TCP" key:"tcp_keepalive" default:"true" reload:"yes"`
	// Idle time before the first probe, in whole seconds. "0s" is the system's.
	TCPKeepIdle time.Duration `key:"tcp_keepidle" default:"0s" min:"0s" max:"9h" reload:"yes"`
	// Time between probes, in whole seconds. "0s" is the system's.
	TCPKeepIntvl time.Duration `key:"tcp_keepintvl" default:"0s" min:"0s" max:"9h" reload:"yes"`
	// Unanswered probes after which a connection is dead. 0 is the system's.
	TCPKeepCnt int `key:"tcp_keepcnt" default:"0" min:"0" max:"127" unit:"probes" reload:"yes"`
	// Longest time data we sent may stay unacknowledged before the connection is dead, in whole milliseconds (Linux).
	// "0s" is the system's.
	TCPUserTimeout time.Duration `key:"tcp_user_timeout" default:"0s" min:"0s" max:"24h" reload:"yes"`
}
