package soak

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"fencepost/internal/product"
)

// loginTimeout is client_login_timeout.
const loginTimeout = 6 * time.Second

// settings are Fencepost's. smallPool is the pool size of the scarce database, which reloads change.
func (r *run) settings(smallPool int) product.Settings {
	own := product.Section{
		"listen_port": portOf(r.addr), "admin_users": []string{opsUser}, "event_loops": r.opts.Loops, "max_client_conn": 2000,
		"default_pool_size": 4, "server_connect_timeout": "10s", "server_login_retry": "1s", "server_idle_timeout": "4s",
		"server_lifetime": "20s", "client_login_timeout": loginTimeout.String(), "log_format": "json",
	}
	if r.opts.LoopKind != "" {
		own["event_loop"] = r.opts.LoopKind
	}
	if r.product != nil {
		own["admin_http"] = r.product.HTTP
	}
	dbs, logins := product.Section{}, product.Section{}
	for _, d := range r.dbs {
		size := d.poolSize
		if d.scarce {
			size = smallPool
		}
		dbs[d.name] = product.Section{"shard": "main", "dbname": d.server, "pool_mode": d.mode, "pool_size": size,
			"min_pool_size": d.minPoolSize, "max_db_connections": d.maxConns, "query_wait_timeout": d.wait}
	}
	for _, u := range append([]string{opsUser}, users...) {
		logins[u] = product.Section{"password": password(u)}
	}
	return product.Settings{"fencepost": own, "databases": dbs, "users": logins,
		"shards": {"main": product.Section{"hosts": product.AnyRole(r.node.Addr())}}}
}

// writeSettings writes Fencepost's settings file with the given size of the scarce pool.
func (r *run) writeSettings(smallPool int) error {
	return r.product.Rewrite(r.settings(smallPool).Text())
}

// liveHeap has the process collect its garbage and returns what is left: the heap profile's page does both.
func (r *run) liveHeap(ctx context.Context) (live int64, err error) {
	for range 2 { // what finalizers hold is free after the second
		text, err := r.product.Get(ctx, "/debug/pprof/heap?debug=1&gc=1")
		if err != nil {
			return 0, err
		}
		_, rest, found := strings.Cut(text, "\n# HeapAlloc = ")
		number, _, _ := strings.Cut(rest, "\n")
		if live, err = strconv.ParseInt(number, 10, 64); !found || err != nil {
			return 0, fmt.Errorf("the heap profile does not say HeapAlloc: %w", err)
		}
	}
	return live, nil
}

// residentBytes is a process's resident memory.
func residentBytes(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return int64(s.VmRSS), err
}
