package config

import (
	"fmt"
	"net"
	"slices"
)

// ConsoleDatabases are the names of the console, which no section may take.
var ConsoleDatabases = []string{"fencepost", "pgbouncer"}

// validate checks what takes more than one value. It leaves out what depends on a value that is wrong by itself.
func (r *reader) validate(c *Config) {
	r.validateProcess(&c.Fencepost)
	for _, name := range sortedKeys(c.Shards) {
		r.validateShard(c, c.Shards[name])
	}
	for _, name := range sortedKeys(c.Databases) {
		r.validateDatabase(c, c.Databases[name])
	}
	if len(c.Databases) == 0 && r.sound("databases") {
		r.problem(`must be set: at least one [databases.NAME], or [databases."*"] for any name`, nil, "databases")
	}
	r.validateUsers(c)
	r.validateMonitors(c)
}

// sound reports whether no problem is known at path or below it.
func (r *reader) sound(path ...string) bool {
	return !slices.ContainsFunc(r.problems, func(p Problem) bool {
		return len(p.path) >= len(path) && slices.Equal(p.path[:len(path)], path)
	})
}

func (r *reader) validateProcess(f *Fencepost) {
	if f.ListenAddr == "" && f.UnixSocketDir == "" {
		r.problem("must not be empty together with unix_socket_dir: clients could not connect", "", "fencepost", "listen_addr")
	}
	if f.EventLoop == LoopEpoll && !hasEpoll {
		r.problem(`must be "portable": this system has no epoll`, string(f.EventLoop), "fencepost", "event_loop")
	}
	if f.MinPoolSize > f.DefaultPoolSize && r.sound("fencepost", "default_pool_size") && r.sound("fencepost", "min_pool_size") {
		r.problem(fmt.Sprintf("must not be more than default_pool_size (%d)", f.DefaultPoolSize), f.MinPoolSize,
			"fencepost", "min_pool_size")
	}
	if r.sound("fencepost", "admin_http") && r.sound("fencepost", "listen_port") && f.listensOn(f.AdminHTTP) {
		r.problem("must not be where clients connect (listen_addr, listen_port)", f.AdminHTTP, "fencepost", "admin_http")
	}
}

// listensOn reports whether a listener for clients would take addr.
func (f *Fencepost) listensOn(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port != fmt.Sprint(f.ListenPort) || f.ListenAddr == "" {
		return false
	}
	return host == "" || f.ListenAddr == "*" || slices.Contains(f.ListenAddresses(), addr)
}

func (r *reader) validateDatabase(c *Config, db *Database) {
	section := []string{"databases", db.Name}
	at := func(key string) []string { return append(slices.Clone(section), key) }
	if slices.Contains(ConsoleDatabases, db.Name) {
		r.problem("must have another name: this one is the console's", nil, section...)
	} else if rule := nameRule(db.Name); rule != "" {
		r.problem(rule, nil, section...)
	}
	r.validatePlace(c, db, at)
	if shard := c.Shards[db.Shard]; db.Target == "" {
		db.Target = TargetReadWrite
		if shard != nil && shard.readsOnly() {
			db.Target = TargetStandby
		}
	}
	r.validateAsking(c, db, at)
	if db.DBName == "" && db.Name != "*" {
		db.DBName = db.Name
	}
	if db.Password.IsSet() && r.sound(at("password")...) {
		if !db.Password.plaintext() {
			r.problem("must be the password itself: a verifier is not enough to log in to a server", nil, at("password")...)
		}
		if !r.has(at("user")...) {
			r.problem("must come with user: it is the password of that user on the server", nil, at("password")...)
		}
	}
	size, least := db.PoolSize.Or(c.Fencepost.DefaultPoolSize), db.MinPoolSize.Or(c.Fencepost.MinPoolSize)
	if least > size && (db.PoolSize.Set || db.MinPoolSize.Set) && r.sound(at("pool_size")...) && r.sound(at("min_pool_size")...) &&
		r.sound("fencepost", "default_pool_size") && r.sound("fencepost", "min_pool_size") {
		r.problem(fmt.Sprintf("must not have a min_pool_size (%d) above its pool_size (%d), of which one may come from [fencepost]",
			least, size), nil, section...)
	}
}

// validatePlace checks where a database lives and gives databases with the same hosts one shard.
func (r *reader) validatePlace(c *Config, db *Database, at func(string) []string) {
	shard, hosts := r.has(at("shard")...), r.has(at("hosts")...)
	switch {
	case shard && hosts:
		r.problem("must not be set together with shard", nil, at("hosts")...)
	case hosts:
		db.Shard = hostList(db.Hosts)
		if c.Shards[db.Shard] == nil && len(db.Hosts) > 0 {
			c.Shards[db.Shard] = DefaultShard(db.Shard)
			c.Shards[db.Shard].Hosts = db.Hosts
		}
	case !shard:
		r.problem(`must be set: the name of a [shards.NAME] section; or use hosts instead`, nil, at("shard")...)
	case r.sound(at("shard")...) && !r.has("shards", db.Shard):
		written := sortedKeys(writtenShards(c))
		r.problem("must be the name of a [shards.NAME] section"+didYouMean(db.Shard, written), db.Shard, at("shard")...)
	}
}

func (r *reader) validateUsers(c *Config) {
	for _, name := range sortedKeys(c.Users) {
		if rule := nameRule(name); rule != "" {
			r.problem(rule, nil, "users", name)
		}
	}
	auth := c.Fencepost.AuthType
	switch {
	case auth == AuthTrust || !r.sound("fencepost", "auth_type") || !r.sound("users"):
	case len(c.Users) == 0:
		r.problem(fmt.Sprintf("must be set: with auth_type %q only users with a [users.NAME] section can log in", auth), nil, "users")
	default:
		r.warnOfLogins(c)
	}
}

// has reports whether the file has something at path.
func (r *reader) has(path ...string) bool {
	var value any = r.file
	for _, key := range path {
		table, _ := value.(map[string]any)
		var ok bool
		if value, ok = table[key]; !ok {
			return false
		}
	}
	return true
}
