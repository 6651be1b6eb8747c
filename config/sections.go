package config

import "time"

// Database is a section [databases.NAME]: what clients name when they connect. Unset fields inherit from [fencepost];
// Config.PoolSettings resolves them.
type Database struct {
	// Name of the section as clients ask for it. In what Config.Database returns for a "*" section: the name asked for.
	Name string
	// Shard the database lives on, a name of a [shards.NAME] section. Either this or hosts.
	Shard string `key:"shard" example:"main" reload:"yes"`
	// The shard's hosts written here instead of a section of their own, as in [shards.NAME], whose other settings then
	// have their defaults. Databases with equal lists share one shard.
	Hosts []Host `key:"hosts" example:"10.0.0.1:5432,10.0.0.2:5432" reload:"yes"`
	// Name of the database on the server. Absent: the name the client asks for.
	DBName string `key:"dbname" example:"app" reload:"yes"`
	// User to log in to the server with, for every client. Absent: the client's own name. Needed where [users] holds only
	// verifiers and the server asks for a password.
	User string `key:"user" example:"app_owner" reload:"yes"`
	// Password for user. Absent: that user's plaintext password in [users].
	Password Secret `key:"password" example:"file:/etc/fencepost/app_owner" reload:"yes"`
	// Which servers the database's clients get, unless they ask for others (startup option -c fencepost.target=…):
	// read-write (the primary), standby, prefer-standby (the primary if no standby can be used) or any. Absent:
	// read-write, or standby where all hosts of the shard are replicas. Not for a shard whose host has the role any.
	Target Target `key:"target" example:"read-write" reload:"yes"`
	// When a server connection must prove that its server takes writes before a client gets it for writing: always (at
	// every checkout), auto (once, and again after each doubt) or off (never: then clients may write to a server that
	// is no longer the primary). Absent: always in session mode, auto in the others. Has no effect with a host of role
	// any.
	Fence Fence `key:"fence" example:"always" reload:"yes"`
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
	// ("SCRAM-SHA-256$…"). Unless auth_type is trust a user without one cannot log in, nor one with an md5 hash if it is
	// scram-sha-256.
	Password Secret `key:"password" example:"change-me" reload:"yes"`
	// pool_mode for this user.
	PoolMode PoolMode `key:"pool_mode" example:"session" reload:"yes"`
	// default_pool_size for the pools of this user.
	PoolSize Optional[int] `key:"pool_size" example:"5" min:"1" max:"100000" unit:"connections" reload:"yes"`
	// query_wait_timeout for this user.
	QueryWaitTimeout Optional[time.Duration] `key:"query_wait_timeout" example:"10s" min:"0s" max:"8760h" reload:"yes"`
}
