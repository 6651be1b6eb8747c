package admin

import (
	"cmp"
	"slices"

	"fencepost/actors/lane/pool"
	"fencepost/config"
)

// showPools is SHOW POOLS. Every server connection is in exactly one of the columns sv_active, sv_being_canceled,
// sv_idle, sv_used and sv_login. sv_used are those being cleaned after a client or being closed. sv_active_cancel and
// cl_active_cancel_req are cancel requests on their way to a server, which take no connection of the pool.
func showPools(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	own, err := consoles(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	t := &table{columns: "ssiiiiiiiiiiiiiss", names: []string{"database", "user", "cl_active", "cl_waiting",
		"cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active", "sv_active_cancel", "sv_being_canceled", "sv_idle",
		"sv_used", "sv_tested", "sv_login", "maxwait", "maxwait_us", "pool_mode", "load_balance_hosts"}}
	for _, p := range pools(rows) {
		mode := ""
		if p.spec != nil {
			mode = p.spec.Mode
		}
		t.row(p.key.Database, p.key.ServerUser, max(p.clients-p.waiting, 0), p.waiting, p.cancelling, 0,
			p.servers[pool.Leased], p.cancelling, p.beingCanceled, p.servers[pool.Idle],
			p.servers[pool.Cleaning]+p.servers[pool.Closing], 0, p.servers[pool.Dialling],
			whole(p.oldest), micros(p.oldest), mode, null{})
	}
	t.row(consoleDatabase, consoleDatabase, own, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "statement", null{})
	t.sort()
	return t, nil
}

// sort orders rows by their first two columns.
func (t *table) sort() {
	slices.SortStableFunc(t.rows, func(a, b []string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
}

// showDatabases is SHOW DATABASES: those in the settings, and those that are used or paused by way of "*". host and port
// are those of the primary, NULL while there is none.
func showDatabases(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	cfg := x.ops.Config()
	elected := electedHosts(ctx, x.ops, rows)
	clients := map[string]int{}
	for name := range cfg.Databases {
		if name != "*" {
			clients[name] = 0
		}
	}
	for _, name := range x.c.pausedDatabases() {
		clients[name] = 0
	}
	for i := range rows {
		clients[rows[i].Pool.Database] += rows[i].Clients
	}
	t := &table{columns: "ssissiiiissiiiiii", names: []string{"name", "host", "port", "database", "force_user", "pool_size",
		"min_pool_size", "reserve_pool_size", "server_lifetime", "pool_mode", "load_balance_hosts", "max_connections",
		"current_connections", "max_client_connections", "current_client_connections", "paused", "disabled"}}
	for name, n := range clients {
		db, ok := cfg.Database(name)
		if !ok {
			continue // removed by a reload, its last clients are leaving
		}
		var host, port any = null{}, null{}
		if addr := elected[db.Shard]; addr != "" {
			h, p := config.Host{Addr: addr}.HostPort()
			host, port = h, int(p)
		}
		set := cfg.PoolSettings(db, "")
		t.row(name, host, port, db.DBName, orNull(db.User), set.Size, set.MinSize, 0, whole(set.ServerLifetime),
			orNull(string(db.PoolMode)), null{}, set.MaxDBConnections, x.ops.ServerConnections(name), 0, n, x.c.isPaused(name), false)
	}
	f := &cfg.Fencepost
	t.row(consoleDatabase, null{}, f.ListenPort, consoleDatabase, consoleDatabase, 2, 0, 0, whole(f.ServerLifetime), "statement",
		null{}, 0, 0, 0, 0, false, false)
	t.sort()
	return t, nil
}

// showUsers is SHOW USERS: those in the settings. current_connections are server connections logged in as that user.
func showUsers(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	cl, err := clients(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	servers, attached := map[string]int{}, map[string]int{}
	for _, p := range pools(rows) {
		servers[p.key.ServerUser] += p.size()
	}
	for i := range cl {
		if cl[i].State != ended {
			attached[cl[i].User]++
		}
	}
	t := &table{columns: "ssssiiii", names: []string{"name", "pool_size", "reserve_pool_size", "pool_mode",
		"max_user_connections", "current_connections", "max_user_client_connections", "current_client_connections"}}
	for name, u := range x.ops.Config().Users {
		size := ""
		if u.PoolSize.Set {
			size = text(u.PoolSize.Value)
		}
		t.row(name, size, "", orNull(string(u.PoolMode)), 0, servers[name], 0, attached[name])
	}
	t.sort()
	return t, nil
}

// showLists is SHOW LISTS. What PgBouncer keeps in free lists and DNS caches does not exist here and is 0.
func showLists(x *execution) (*table, error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	own, err := consoles(ctx, x.ops)
	if err != nil {
		return nil, err
	}
	all := pools(rows)
	servers, attached := 0, own
	for _, p := range all {
		servers += p.size()
		attached += p.clients
	}
	cfg := x.ops.Config()
	used := int(x.ops.Clients())
	t := &table{columns: "si", names: []string{"list", "items"}}
	for _, r := range []struct {
		list  string
		items int
	}{
		{"databases", listed(cfg) + 1}, {"users", len(cfg.Users)}, {"peers", len(cfg.Peers)}, {"pools", len(all) + 1}, {"peer_pools", 0},
		{"free_clients", 0}, {"used_clients", used}, {"login_clients", max(used-attached, 0)}, {"free_servers", 0},
		{"used_servers", servers}, {"dns_names", 0}, {"dns_zones", 0}, {"dns_queries", 0}, {"dns_pending", 0},
	} {
		t.row(r.list, r.items)
	}
	return t, nil
}

// listed is the number of databases in the settings that have a name.
func listed(cfg *config.Config) int {
	n := len(cfg.Databases)
	if _, ok := cfg.Databases["*"]; ok {
		n--
	}
	return n
}
